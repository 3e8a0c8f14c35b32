"""Text for a terminal: colour where it is wanted, control characters from outside made visible."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

from fleet_agentpack.kit.visible import visible

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}

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
    return visible(text)
