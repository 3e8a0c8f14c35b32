"""Merges three versions of a text line by line, where the changes keep clear of each other."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

MOST_LINES = 2_000  # of one text; a longer one is taken as a whole


@dataclass(frozen=True)
class _Change:
    """Lines of the base, from `start` to before `end`, and what one side has in their place."""

    start: int
    end: int
    lines: tuple[str, ...]

    def is_near(self, other: _Change) -> bool:
        """Whether two changes overlap or touch."""
        return self.start <= other.end and other.start <= self.end


def merged_text(base: str, local: str, upstream: str) -> str | None:
    """The base with both sides' changes; None where both changed the same or adjoining lines."""
    before, ours, theirs = (text.splitlines(keepends=True) for text in (base, local, upstream))
    if max(len(before), len(ours), len(theirs)) > MOST_LINES:
        return None
    mine, yours = _changes(before, ours), _changes(before, theirs)
    if any(one.is_near(other) and one != other for one in mine for other in yours):
        return None
    merged = list(before)
    for change in sorted({*mine, *yours}, key=lambda each: each.start, reverse=True):
        merged[change.start : change.end] = change.lines
    return "".join(merged)


def _changes(before: list[str], after: list[str]) -> list[_Change]:
    matcher = difflib.SequenceMatcher(None, before, after)
    return [
        _Change(start, end, tuple(after[first:last]))
        for tag, start, end, first, last in matcher.get_opcodes()
        if tag != "equal"
    ]
