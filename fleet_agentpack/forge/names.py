"""What is named from outside, judged before it is used: definitions, directories, addresses."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args
from urllib.parse import unquote, urljoin, urlsplit

from fleet_agentpack.forge.errors import ForgeError, list_all
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.journal import SwapError
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock
from fleet_agentpack.kit.paths import EscapeError, PathArguments, check_relative, expand_home
from fleet_agentpack.kit.proxies import is_loopback
from fleet_agentpack.kit.semver import Version, VersionError, best_version

Kind = Literal["agent", "tool"]
Source = Literal["local", "global", "stockyard"]
Scope = Literal["local", "global"]
Format = Literal[
    "fractary",
    "claude-agent",
    "claude-command",
    "claude-plugin",
    "agent-skill",
    "codex-agent",
    "copilot-agent",
]

KINDS: tuple[Kind, ...] = ("agent", "tool")
LONGEST_NAME = 200
LONGEST_SHOWN = 80
NO_VERSION = "0.0.0"  # of what has none, nor a plugin that has
MAX_MANIFEST_BYTES = 10_000_000

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


@dataclass(frozen=True)
class Directories:
    """The project, the home and the environment that a service works with."""

    root: Path | None  # the project's directory; None where there is no project
    home: Path
    environ: Mapping[str, str]
    no_project: str = ""  # why there is none and what to do, as a sentence
    start: Path | None = None  # of a caller's relative paths, unless it is the project

    @property
    def project(self) -> Path:
        """The project's own definitions and configuration. Raises `ForgeError` without one."""
        if self.root is None:
            raise ForgeError("CONFIG_ERROR", "this needs a project", self.no_project)
        return self.root / ".fractary"

    @property
    def user(self) -> Path:
        """The user's directory, shared by all projects."""
        return self.home / ".fractary"

    @property
    def claude(self) -> Path:
        """Where Claude Code keeps what is the user's."""
        return self.paths.expand("$CLAUDE_CONFIG_DIR")

    @property
    def codex(self) -> Path:
        """Where Codex keeps what is the user's."""
        return self.paths.expand("$CODEX_HOME")

    @property
    def paths(self) -> PathArguments:
        """What paths mean that a caller gives."""
        return PathArguments(self.start or self.root, self.home, self.environ, self.no_project)

    def shown(self, path: Path | str) -> str:
        """A path for a result: relative inside the project, else as it is."""
        inside = self.root is not None and Path(path).is_relative_to(self.root)
        return str(Path(path).relative_to(self.root)) if inside and self.root else str(path)

    def expanded(self, text: str) -> Path:
        """A configured path: `~` is the home, anything relative starts at the project."""
        return (self.root or self.home) / expand_home(text, self.home)


@contextmanager
def writing_below(root: Path) -> Iterator[None]:
    """Hold the lock of a `.fractary` directory. Raises `ForgeError` when a write fails inside."""
    try:
        with file_lock(root / ".forge.lock"):
            yield
    except LockTimeoutError as error:
        raise ForgeError.conflict(
            f"another command is writing to {root}", "Try again when it has ended"
        ) from error
    except OSError as error:
        raise ForgeError.unwritable(Path(error.filename or root), error) from error
    except SwapError as error:
        raise ForgeError.conflict(
            str(error), "Remove the cause, then run the command again", path=error.path
        ) from error


def write_file(path: Path, content: bytes | str) -> None:
    """Replace a file; a symbolic link to it stays one."""
    write_atomic(Path(os.path.realpath(path)), content, durable=True)


DEFAULT_TTL_S = 3600


@dataclass(frozen=True)
class Registry:
    """A place that plugins, or definitions, can be fetched from."""

    name: str
    url: str
    priority: float
    kind: str = "manifest"
    enabled: bool = True
    cache_ttl_s: float = DEFAULT_TTL_S
    auth_type: str = "bearer"
    token_env: str | None = None
    ref: str = ""  # of a repository: a branch, tag or commit


GITHUB = "https://github.com"
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]*\Z")
_OWNER_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.-]+\Z")
_SCP = re.compile(
    r"(?P<user>[A-Za-z0-9_.-]+)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^:-][^:]*)\Z"
)
_CHECKSUM = re.compile(r"sha256[:-]([0-9a-f]{64})\Z", re.IGNORECASE)


def is_commit(text: object) -> bool:
    """Whether a text is a whole commit id."""
    return isinstance(text, str) and bool(_COMMIT.match(text))


def is_ref(text: object) -> bool:
    """Whether a text can be the name of a branch or tag, and nothing else."""
    return isinstance(text, str) and bool(_REF.match(text)) and ".." not in text


def git_url(text: str) -> str | None:
    """A URL that git may fetch from: `owner/repo` is on GitHub, `git@host:path` is SSH."""
    if _OWNER_REPO.match(text):
        return f"{GITHUB}/{text.removesuffix('.git')}.git"
    if scp := _SCP.match(text):
        return f"ssh://{scp['user']}@{scp['host']}/{scp['path'].lstrip('/')}"
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return None
    if not text.isprintable() or " " in text or parts.query or parts.fragment:
        return None
    if parts.scheme == "file":
        return text if parts.netloc in ("", "localhost") and parts.path.startswith("/") else None
    if parts.scheme not in ("https", "ssh", "http") or not host or host.startswith("-"):
        return None
    return None if parts.scheme == "http" and not is_loopback(host) else text


def local_path(url: str) -> Path:
    """The path in a `file:` URL."""
    return Path(unquote(urlsplit(url).path))


def is_address(url: str) -> bool:
    """Whether a registry can be at this URL; git reads from SSH too."""
    return is_registry_url(url) or (url.startswith("ssh://") and url.isprintable())


def is_registry_url(url: str) -> bool:
    """Whether a registry can be read from this URL."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return False
    if not url.isprintable():
        return False
    if parts.scheme == "file":
        return parts.netloc in ("", "localhost") and parts.path.startswith("/")
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def plain_path(path: object) -> str | None:
    """A path inside a repository, empty for all of it; None for one that leads out."""
    if not isinstance(path, str) or path.startswith("/"):
        return None
    plain = posixpath.normpath(path or ".")
    if plain == ".":
        return ""
    try:
        return str(check_relative(plain))
    except EscapeError:
        return None


def path_in_market(market: Mapping[str, object], source: object) -> str | None:
    """The directory that an entry's relative source means; None outside the marketplace."""
    metadata = market.get("metadata")
    root = metadata.get("pluginRoot") if isinstance(metadata, Mapping) else None
    if isinstance(source, str) and isinstance(root, str) and not source.startswith("./"):
        source = f"{root}/{source}"
    return plain_path(source)


def checksum_of(value: object) -> str | None:
    """The hexadecimal digest in `sha256:…` or `sha256-…`, None for anything else."""
    match = _CHECKSUM.match(value) if isinstance(value, str) else None
    return match[1].lower() if match else None


def safe_url(base: str, url: object) -> str | None:
    """A URL that a manifest refers to; a remote one may not point into this machine's files."""
    if not isinstance(url, str) or not url:
        return None
    try:
        target = urljoin(base, url)
    except ValueError:
        return None
    if not is_registry_url(target) or (target.startswith("file:") and not base.startswith("file:")):
        return None
    return target


def scheme_of(url: str) -> str:
    """How git would reach an address."""
    if _SCP.match(url):
        return "ssh"
    return urlsplit(url).scheme or "file"
