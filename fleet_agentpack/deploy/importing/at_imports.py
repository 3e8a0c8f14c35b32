"""The files that a CLAUDE.md or GEMINI.md takes in with `@path`, and what these take in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fleet_agentpack.kit.files import UnreadableError, read_text

_DEEPEST = 5  # as Claude Code reads them
_LARGEST = 1 << 20
_CODE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)|(`+)[^\n]*?\2", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:\\ |[^\s\\])+)", re.MULTILINE)


def taken_in(top: str, user: Path) -> dict[str, str]:
    """The files that a file takes in, directly or not; each with the first file that names it."""
    found: dict[str, str] = {}
    pending = [(top, 0)]
    while pending:
        path, depth = pending.pop(0)
        for each in _named_in(path, user):
            if each not in found and each != top:
                found[each] = path
                if depth + 1 < _DEEPEST:
                    pending.append((each, depth + 1))
    return found


def _named_in(path: str, user: Path) -> Iterator[str]:
    try:
        text = read_text(Path(path), _LARGEST)
    except (OSError, UnreadableError):
        return
    for match in _IMPORT.finditer(_CODE.sub(" ", text)):
        named = match[1].replace("\\ ", " ")
        for name in (named, named.rstrip(".,;:!?)\"'")):
            whole = str(user / name[2:]) if name.startswith("~/") else name
            place = os.path.normpath(os.path.join(os.path.dirname(path), whole))
            if os.path.isfile(place):
                yield place
                break
