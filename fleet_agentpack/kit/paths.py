"""Paths from outside: `~` expanded, names checked, results confined to their roots."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath


class EscapeError(ValueError):
    """A path from outside that would leave its root."""


def expand_home(text: str, home: Path) -> Path:
    """A path in which `~` or a leading `~/` stands for the given home; `~user` stays as it is."""
    if text == "~" or text.startswith(("~/", f"~{os.sep}")):
        return home / text[1:].lstrip(f"/{os.sep}")
    return Path(text)


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
