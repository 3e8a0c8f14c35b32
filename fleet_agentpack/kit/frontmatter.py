"""Splits a Markdown document into its YAML header and its body."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPENING = re.compile(r"\A\ufeff?---[ \t]*\r?\n")
_CLOSING = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)


@dataclass(frozen=True)
class Split:
    """A header (None when there is none) and the text after it."""

    header: str | None
    body: str
    body_line: int  # the 1-based line on which the body starts


def is_open(text: str) -> bool:
    """Whether a document starts with a fence."""
    return _OPENING.match(text) is not None


def split(text: str) -> Split:
    """Cut a document at the header's fences, which count only at its very start."""
    opening = _OPENING.match(text)
    closing = _CLOSING.search(text, opening.end()) if opening else None
    if not opening or not closing:
        return Split(None, text, 1)
    header = text[opening.end() : closing.start()]
    return Split(header, text[closing.end() :], text.count("\n", 0, closing.end()) + 1)
