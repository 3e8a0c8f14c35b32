"""Paths from outside: `~` expanded, names checked, results confined to their roots."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# The variables that a path argument may begin with, and where they point if they are not set.
PATH_VARIABLES = {
    "HOME": "",
    "AGENTPACK_HOME": ".agentpack",
    "CODEX_HOME": ".codex",
    "CLAUDE_CONFIG_DIR": ".claude",
    "FRACTARY_CACHE_DIR": ".fractary/cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
    "XDG_DATA_HOME": ".local/share",
}

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})(?=/|$)")


class EscapeError(ValueError):
    """A path from outside that would leave its root."""


def directory_of(path: str) -> str:
    """`os.path.dirname` of a plain absolute path; there may be very many."""
    return path[: path.rfind("/")] or "/" if os.sep == "/" else str(Path(path).parent)


def expand_home(text: str, home: Path) -> Path:
    """A path in which `~` or a leading `~/` stands for the given home; `~user` stays as it is."""
    if text == "~" or text.startswith(("~/", f"~{os.sep}")):
        return home / text[1:].lstrip(f"/{os.sep}")
    return Path(text)


class NoBaseError(ValueError):
    """A relative path where nothing says what it is relative to; the message says what to do."""


@dataclass(frozen=True)
class PathArguments:
    """What the paths mean that a caller gives."""

    base: Path | None  # where relative ones start
    home: Path
    environ: Mapping[str, str]
    no_base: str = ""  # why they have nowhere to start, as a sentence

    def resolve(self, text: str) -> Path:
        """An absolute path; links and `..` are left as they are. Raises `NoBaseError`."""
        path = self.expand(text)
        if path.is_absolute():
            return path
        if self.base is None:
            what = f"{text[:200]!r} is a relative path{self.hint(text)}."
            raise NoBaseError(f"{what} {self.no_base} Or give an absolute path.")
        return self.base / path

    def expand(self, text: str) -> Path:
        """A path with `~` or one of the known variables at its start replaced, and no others."""
        found = _VARIABLE.match(text)
        name = (found[1] or found[2]) if found else ""
        if found is None or name not in PATH_VARIABLES:
            return expand_home(text, self.home)
        given = "" if name == "HOME" else self.environ.get(name, "").strip()
        start = expand_home(given, self.home) if given else self.home / PATH_VARIABLES[name]
        return start / text[found.end() :].lstrip("/")

    def hint(self, text: str) -> str:
        """What to say of a path with some other variable in it, as the end of a sentence."""
        if "$" not in text or str(self.expand(text)) != text:
            return ""
        known = ", ".join(f"${name}" for name in PATH_VARIABLES)
        return f"; only ~ and {known} are replaced, and only at the start"


def is_plain(name: str) -> bool:
    """Whether a path is relative and made only of ordinary names with `/` between them."""
    padded = f"/{name}/"
    return not ("//" in padded or "/./" in padded or "/../" in padded or "\x00" in padded)


def check_relative(name: str) -> PurePosixPath:
    """A relative path made only of ordinary names.

    Raises `EscapeError` for absolute paths, `..`, empty parts, backslashes and NUL.
    """
    if not is_plain(name) or "\\" in name or (os.name == "nt" and ":" in name):
        raise EscapeError(f"not a usable relative path: {name!r}")
    return PurePosixPath(name)


def confined(root: Path, name: str) -> Path:
    """`root/name`, refused when the name or a symbolic link on the way leads out of the root."""
    path = root / check_relative(name)
    try:
        inside = is_inside(path.resolve(), root)
    except (OSError, RuntimeError) as error:  # Python 3.11 and 3.12 raise for links in a circle
        raise EscapeError(f"{name!r} cannot be followed below {root}") from error
    if not inside:
        raise EscapeError(f"{name!r} leads out of {root}")
    return path


def is_inside(path: str | Path, *roots: str | Path) -> bool:
    """Whether a path, with every link followed, is one of the roots or lies below one."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(root)) for root in roots)
