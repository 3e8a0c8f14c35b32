"""Differences as text, as git shows them: git compares many files in one run."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from fleet_agentpack.deploy.compare import Change
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.home import Home, git
from fleet_agentpack.deploy.model import read_file

LONGEST = 102_400  # bytes of one difference that are still shown
_AT_ONCE = 200
LONGEST_TEXT = 256_000  # bytes of all differences; what an answer cannot show is read in pages
_OPTIONS = (
    "--no-index",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--text",
    "--unified=3",
)


# The bytes before and after, None where there is no file; no sides at all if one is not text.
Sides = tuple[bytes | None, bytes | None] | None


def unified(home: Home, changes: Sequence[Change], longest: int) -> str:
    """All differences as one text, cut at the end of a line once it is too long."""
    room, parts = longest, []
    for number, (change, text) in enumerate(text_diffs(home, changes, at_once=20)):
        whole = text if text.startswith("--- ") else f"{change.path}: {text}"
        if len(whole.encode()) > room:
            start = whole.encode()[:room].decode("utf-8", "ignore")
            note = f"… cut: {number} of {len(changes)} file(s) are shown whole\n"
            parts += [start[: start.rfind("\n") + 1], note]
            break
        room -= len(whole.encode())
        parts.append(whole)
    return "".join(parts)


def text_diffs(
    home: Home, changes: Sequence[Change], at_once: int = _AT_ONCE
) -> Iterator[tuple[Change, str]]:
    """Each change with its diff, or a note why none is shown; `at_once` at first, then more."""
    rest = iter(changes)
    while some := list(islice(rest, at_once)):
        sides = [_sides(change, home.contents) for change in some]
        hunks = _hunks(home, sides)
        for number, change in enumerate(some):
            yield change, _text(change, sides[number], hunks.get(number, ""))
        at_once = min(at_once * 2, _AT_ONCE)


def _given_back(change: Change, contents: str) -> bytes | None:
    """What comes back to a path that the pack leaves."""
    origin = change.given_back
    if origin is None:
        return None
    if origin.link is not None:
        return f"{origin.link}\n".encode()  # as git shows a link
    return read_file(f"{contents}/{origin.sha256}")


def _sides(change: Change, contents: str) -> Sides:
    before = read_file(change.path) if change.before else None
    after = change.output.blob.read() if change.output else _given_back(change, contents)
    return (before, after) if _is_text(before) and _is_text(after) else None


def _text(change: Change, sides: Sides, hunks: str) -> str:
    if sides is None:
        return "binary or not UTF-8: no diff shown\n"
    if len(hunks.encode()) > LONGEST:
        return f"longer than {LONGEST} bytes: no diff shown\n"
    if not hunks:
        return f"{change.reason}\n"
    name = change.path.lstrip("/")
    before = "/dev/null" if sides[0] is None else f"a/{name}"
    after = "/dev/null" if sides[1] is None else f"b/{name}"
    return f"--- {before}\n+++ {after}\n{hunks}"


def _is_text(data: bytes | None) -> bool:
    try:
        return data is None or (b"\0" not in data and data.decode("utf-8") is not None)
    except UnicodeDecodeError:
        return False


def _hunks(home: Home, sides: Sequence[Sides]) -> dict[int, str]:
    """The hunks of each pair by its number."""
    try:
        return _ask_git(home, sides)
    except DeployError as error:
        if error.code != "E_GIT_NOT_FOUND":
            raise
        return {number: _compare(*pair) for number, pair in enumerate(sides) if pair}


def _ask_git(home: Home, sides: Sequence[Sides]) -> dict[int, str]:
    with tempfile.TemporaryDirectory(prefix="fleet-agentpack-diff-") as scratch:
        for side in (0, 1):
            directory = Path(scratch, "ab"[side])
            directory.mkdir()
            for number, pair in enumerate(sides):
                data = pair[side] if pair else None
                if data is not None:
                    (directory / str(number)).write_bytes(data)
        done = git(home, scratch, "diff", *_OPTIONS, "--", "a", "b", ceiling=scratch)
    found: dict[int, list[str]] = {}
    lines: list[str] = []
    for line in done.stdout.decode("utf-8", "replace").split("\n"):
        if line.startswith("diff --git "):
            lines = found.setdefault(int(line.rpartition("/")[2]), [])
        elif lines or line.startswith("@@"):
            lines.append(line)
    return {number: "\n".join(text).rstrip("\n") + "\n" for number, text in found.items() if text}


def _compare(before: bytes | None, after: bytes | None) -> str:
    """Without git: the same format, though hunks may be split differently."""
    one, other = ((side or b"").decode().splitlines(keepends=True) for side in (before, after))
    lines = list(difflib.unified_diff(one, other))[2:]
    ended = (
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
    return "".join(ended)
