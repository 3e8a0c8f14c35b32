"""Names and references from outside, checked before they are used; which definition is which."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from fleet_agentpack.forge.errors import ForgeError, list_all
from fleet_agentpack.kit.semver import Version, VersionError, best_version

Kind = Literal["agent", "tool"]
Source = Literal["local", "global", "stockyard"]
Scope = Literal["local", "global"]

KINDS: tuple[Kind, ...] = ("agent", "tool")
LONGEST_NAME = 200
LONGEST_SHOWN = 80

_PART = r"[A-Za-z0-9_][A-Za-z0-9._:-]*"
_NAME = re.compile(rf"(?:@?{_PART}/)?(?:{_PART}/){{0,2}}{_PART}\Z")
_PLUGIN = re.compile(rf"(?:@{_PART}/)?{_PART}\Z")
_KEBAB = re.compile(r"[a-z][a-z0-9-]*\Z")


@dataclass(frozen=True)
class Reference:
    """A name and the versions of it that are meant."""

    name: str
    wanted: str = "latest"

    @property
    def any_version(self) -> bool:
        """Whether no version in particular is asked for."""
        return self.wanted in ("latest", "*", "")

    def choose(self, versions: Sequence[str]) -> str | None:
        """The version that is meant; without one the newest, a prerelease if need be."""
        if not versions or not self.any_version:
            return best_version(versions, self.wanted)
        return best_version(versions) or max(versions, key=version_order)

    def __str__(self) -> str:
        return self.name if self.any_version else f"{self.name}@{self.wanted}"


def parse_reference(text: str) -> Reference:
    """Split `name@range` at the first `@` that is not a scope's; no range means the latest."""
    name, _, wanted = text[1:].partition("@")
    return Reference(text[:1] + name, wanted or "latest")


def checked_reference(kind: str, name: str, version: str | None = None) -> Reference:
    """The reference that a caller means by a name and perhaps a version.

    Raises `ForgeError` for a name that no definition can have, or two versions at once.
    """
    reference = parse_reference(name)
    check_name(kind, reference.name)
    if version and not reference.any_version and version != reference.wanted:
        raise ForgeError.invalid(
            f"the name asks for version {reference.wanted!r} and `version` for {version!r}",
            "Give the version once",
            name=_shortened(name),
        )
    return Reference(reference.name, version or reference.wanted)


def check_name(kind: str, name: str) -> None:
    """Refuse what cannot be a name: paths, `..`, glob characters, blanks."""
    if not is_usable_name(name, kind):
        raise ForgeError.invalid(
            f"{_shortened(name)!r} cannot be the name of an agent, tool or plugin: "
            "letters, digits, `-`, `_`, `.`, `:` and a scope such as @org/ are allowed",
            list_all(kind),
            name=_shortened(name),
        )


def is_usable_name(name: object, kind: str = "plugin") -> bool:
    """Whether a name from a file or a registry may become part of a path."""
    pattern = _PLUGIN if kind == "plugin" else _NAME
    return (
        isinstance(name, str)
        and len(name) <= LONGEST_NAME
        and ".." not in name
        and bool(pattern.match(name))
    )


def is_kebab(name: str) -> bool:
    """Whether a name is of lower-case words joined by hyphens, as new ones should be."""
    return bool(_KEBAB.match(name))


def version_order(version: str) -> tuple[bool, Version]:
    """A key to sort versions by; text that is not a version comes first."""
    try:
        return True, Version.parse(version)
    except VersionError:
        return False, Version(0, 0, 0)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


Format = Literal[
    "fractary",
    "claude-agent",
    "claude-command",
    "claude-plugin",
    "agent-skill",
    "codex-agent",
    "copilot-agent",
]


NO_VERSION = "0.0.0"  # of what has none, nor a plugin that has


@dataclass(frozen=True)
class Identity:
    """A definition apart from its contents; two owners may each have one of the same name."""

    kind: Kind
    name: str  # without its owner
    version: str = ""
    owner: str | None = None  # the plugin that ships it; None for a project's or a user's own
    format: Format = "fractary"
    directory: Path | None = None  # of a definition that is a whole directory

    @property
    def qualified(self) -> str:
        """The name that means this one and no other, such as `work/cli-helper`."""
        return f"{self.owner}/{self.name}" if self.owner else self.name


def without_owner(name: str, *owners: str) -> str | None:
    """The rest of an owner-qualified name, None when none of these is its owner."""
    for owner in owners:
        for prefix in (f"{owner}/", f"@{owner}/", f"{owner}:"):
            if name.startswith(prefix) and len(name) > len(prefix):
                return name[len(prefix) :]
    return None


def with_format(name: str) -> tuple[Format | None, str]:
    """The format that a name starts with, if any, and the rest of it."""
    first, _, rest = name.partition("/")
    return (cast("Format", first), rest) if rest and first in get_args(Format) else (None, name)
