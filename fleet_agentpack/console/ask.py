"""Questions to the person at the terminal."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from typing import TextIO

from fleet_agentpack.console.text import printable

Refusal = Callable[[str], Exception]


def is_attended() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def ask(question: str, stream: TextIO | None = None) -> bool:
    """Ask on standard output, or another stream; only yes is yes, and an empty answer is no."""
    print(f"{printable(question)} [y/N] ", end="", file=stream, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def confirm(question: str, refuse: Refusal, stream: TextIO | None = None) -> bool:
    """Ask where there is a terminal; elsewhere raise what `refuse` makes of the reason."""
    if not is_attended():
        raise refuse("Not a terminal: pass --yes to confirm.")
    return ask(question, stream)


def ask_secret(prompt: str, refuse: Refusal) -> str:
    """Read a line that the terminal does not show; without one, raise as `confirm` does."""
    if not is_attended():
        raise refuse("Not a terminal: the token cannot be typed here.")
    return getpass.getpass(prompt)
