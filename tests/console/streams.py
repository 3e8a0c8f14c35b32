"""Streams that say they are a terminal."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """Text that goes to a terminal."""

    def isatty(self) -> bool:
        return True
