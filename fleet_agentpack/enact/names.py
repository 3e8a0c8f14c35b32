"""Names of tools as people write them, and the table of their MCP names; touches no file."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet_agentpack.enact.errors import FIND_NAME, EnactError

LONGEST_NAME = 200
LONGEST_MCP_NAME = 64
SHORT_HASH, LONG_HASH = 10, 32  # digits; the second where two have the same first ones
BUILTIN_NAMESPACE = "agentpack"
META_TOOLS = ("search", "learn", "install", "uninstall", "list", "run")
MAIN_SCRIPTS = ("default", "run", "main")
SCRIPT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

# `__` stands for `/` in MCP names: a segment that had one, or `_` at an end, could pass for two.
_SEGMENT = r"[a-z0-9-]+(?:_[a-z0-9-]+)*"
_NAME = re.compile(rf"@?{_SEGMENT}(?:/{_SEGMENT})+\Z")
_REFERENCE = re.compile(r"(?P<name>@?[^@:]*)(?P<rest>(?:[@:][^@:]*)*)\Z", re.DOTALL)
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class Reference:
    """A tool by name, optionally with a version and one of its scripts."""

    name: str
    version: str | None = None
    script: str | None = None

    def __str__(self) -> str:
        return self.name + (f"@{self.version}" if self.version else "")


def is_name(text: str) -> bool:
    """Whether a text is a tool's full name, of any depth."""
    return len(text) <= LONGEST_NAME and bool(_NAME.match(text))


def is_reserved(name: str) -> bool:
    """Whether a name belongs to this package: its own tools', or a meta-tool's."""
    return is_builtin(name) or name in {f"enact/{each}" for each in META_TOOLS}


def is_builtin(name: str) -> bool:
    """Whether a name is in the namespace of the tools that ship in this package."""
    return name.startswith(f"{BUILTIN_NAMESPACE}/")


def is_version(text: str) -> bool:
    """Whether a text is a semantic version."""
    from fleet_agentpack.kit.semver import Version, VersionError

    try:
        Version.parse(text)
    except VersionError:
        return False
    return True


def check_version(text: str, field: str = "version") -> str:
    """A version as the store writes it, without a leading `v`. Raises `EnactError`."""
    bare = text.removeprefix("v")
    if not is_version(bare):
        raise EnactError.bad_argument(field, f"{text[:80]!r} is not a version such as 1.2.0")
    return bare


def parse(text: str, version: str | None = None) -> Reference:
    """Read `owner/tool`, optionally with `@version` and `:script`. Raises `EnactError`."""
    match = _REFERENCE.match(text)
    name = match["name"] if match else ""
    if not match or not is_name(name):
        raise EnactError.bad_argument(
            "tool",
            f"{text[:80]!r} is not a tool's name: use lower case, owner/tool or owner/area/tool",
            FIND_NAME,
        )
    parts = re.findall(r"([@:])([^@:]*)", match["rest"])
    marks = [mark for mark, _ in parts]
    if len(set(marks)) != len(marks):
        raise EnactError.bad_argument("tool", f"{text[:80]!r} names two versions or two scripts")
    found = dict(parts)
    script = found.get(":")
    if script is not None and not SCRIPT_NAME.match(script):
        raise EnactError.bad_argument("tool", f"{script[:80]!r} is not a script's name")
    suffix = check_version(found["@"], "tool") if "@" in found else None
    given = check_version(version) if version is not None else None
    if suffix and given and suffix != given:
        raise EnactError.bad_argument("version", f"{given} contradicts {text}")
    return Reference(name, suffix or given, script)


@dataclass(frozen=True)
class Entry:
    """One thing that can be called: a tool, or one script of it."""

    name: str
    script: str | None = None

    @property
    def plain(self) -> str:
        """Its MCP name, unless that is taken or not allowed."""
        flat = self.name.replace("/", "__")
        return f"{flat}__{self.script}" if self.script else flat

    @property
    def key(self) -> str:
        """The entry as `enact__run` takes it."""
        return f"{self.name}:{self.script}" if self.script else self.name


@dataclass(frozen=True)
class NameTable:
    """The MCP names of installed tools: looked up, never parsed."""

    entries: Mapping[str, Entry]
    collisions: tuple[str, ...]


def entries_of(name: str, scripts: Iterable[str], *, has_command: bool) -> dict[Entry, str | None]:
    """The callable entries of a tool, each with the script it runs (None: the command itself)."""
    names = list(scripts)
    mains = names if len(names) == 1 else [each for each in MAIN_SCRIPTS if each in names]
    main = mains[0] if mains and not has_command else None
    found: dict[Entry, str | None] = {}
    if has_command or main or not names:
        found[Entry(name)] = main
    found.update({Entry(name, script): script for script in names if script != main})
    return found


def build_table(entries: Iterable[Entry], taken: Iterable[str] = ()) -> NameTable:
    """Give every entry an MCP name of its own.

    Entries that would share a name all get a hash, so that no tool can pass for another; so does
    one whose plain name is another's with its hash.
    """
    wanted = sorted(set(entries), key=lambda entry: entry.key)
    uses = Counter(entry.plain for entry in wanted)
    uses.update(taken)
    hashed = {entry: _hashed(entry, SHORT_HASH) for entry in wanted}
    others = Counter(hashed.values())
    named = {}
    for entry, short in hashed.items():
        is_own = uses[entry.plain] == 1 and entry.plain not in others and _is_legal(entry.plain)
        unique = short if others[short] == 1 else _hashed(entry, LONG_HASH)
        named[entry] = entry.plain if is_own else unique
    collisions = tuple(
        f"{' and '.join(e.key for e in wanted if e.plain == plain)} share the MCP name {plain}: "
        f"each is listed with a hash appended to its name"
        for plain, count in sorted(uses.items())
        if count > 1 and any(entry.plain == plain for entry in wanted)
    )
    return NameTable({mcp_name: entry for entry, mcp_name in named.items()}, collisions)


def _is_legal(name: str) -> bool:
    return len(name) <= LONGEST_MCP_NAME and not _FOREIGN.search(name)


def _hashed(entry: Entry, length: int) -> str:
    digest = hashlib.sha256(entry.key.encode()).hexdigest()[:length]
    readable = _FOREIGN.sub("", entry.plain)[: LONGEST_MCP_NAME - len(digest) - 1]
    return f"{readable}_{digest}"
