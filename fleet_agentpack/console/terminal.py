"""Text for people: colour only on a terminal that wants it, and tables that fit."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TextIO

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
# Control characters, and those that turn the direction or break the line of the text around them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Paint:
    """Wraps text in colours, or leaves it alone."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled

    @classmethod
    def for_stream(cls, stream: TextIO, environ: Mapping[str, str] = os.environ) -> Paint:
        """Colour on a terminal, unless NO_COLOR is set; FORCE_COLOR asks for it anywhere."""
        if environ.get("NO_COLOR"):
            return cls(False)
        forced = environ.get("FORCE_COLOR", "") not in ("", "0")
        return cls(forced or (stream.isatty() and environ.get("TERM") != "dumb"))

    def __call__(self, text: str, *styles: str) -> str:
        if not self.enabled or not styles:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


def is_attended() -> bool:
    """Whether somebody can be asked on standard input."""
    return sys.stdin is not None and sys.stdin.isatty()


def ask(question: str, stream: TextIO | None = None) -> bool:
    """A question on standard output or another stream; anything but yes, and silence, is no."""
    print(f"{question} [y/N] ", end="", file=stream, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def printable(text: str) -> str:
    """Text from outside with its control characters made visible."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def plain(text: str) -> str:
    """Text without colours."""
    return _ESCAPE.sub("", text)


def width_of(text: str) -> int:
    """How many columns a text takes on a terminal."""
    bare = plain(text)
    return len(bare) if bare.isascii() else sum(map(_columns, bare))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], paint: Paint) -> str:
    """Aligned columns under bold headers, each row on one line; the last column is not padded."""
    rows = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(width_of(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    lines = [[paint(header, "bold") for header in headers], *rows]
    return "\n".join(
        "  ".join(cell + " " * (widths[i] - width_of(cell)) for i, cell in enumerate(line)).rstrip()
        for line in lines
    )


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
