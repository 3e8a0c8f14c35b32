"""Text for a terminal: colour where it is wanted, control characters from outside made visible."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
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
# Control characters, and those that change the direction of text or break its lines.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


Text = str | tuple[str, ...]  # the parts of a tuple stand side by side, a space between them


class Verbatim(str):
    """Text that is printed as it is: in our own colours, or what the person asked for unchanged."""

    __slots__ = ()


class Paint:
    """Puts text in colour, or leaves it plain."""

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
        shown = printable(text)
        if not self.enabled or not styles:
            return shown
        return Verbatim(f"\x1b[{';'.join(_CODES[style] for style in styles)}m{shown}\x1b[0m")


def printable(text: Text) -> str:
    """Text from outside with its control characters made visible."""
    if isinstance(text, tuple):
        return " ".join(map(printable, text))
    if isinstance(text, Verbatim):
        return text
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
