"""Long text through the person's pager, where there is a terminal to page on."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

# Ends at once if the text fits the screen, passes colours on, leaves the text there at the end.
LESS = "FRX"


@contextmanager
def paged(environ: Mapping[str, str]) -> Iterator[IO[str]]:
    """Where to print long text: `$PAGER`, or less, on a terminal; else standard output."""
    pager = _start(environ) if sys.stdout.isatty() else None
    if pager is None or pager.stdin is None:
        yield sys.stdout
        return
    try:
        # Whoever quits the pager, or interrupts it, has seen enough.
        with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            yield pager.stdin
    finally:
        _wait(pager)


def _start(environ: Mapping[str, str]) -> subprocess.Popen[str] | None:
    """The pager, reading what is written to it; None where there is none."""
    try:
        words = shlex.split(environ.get("PAGER", "less"))
    except ValueError:  # a quotation mark that is never closed
        return None
    if not words:
        return None
    sys.stdout.flush()
    settings = {"LESS": LESS, **environ}
    try:
        return subprocess.Popen(
            words, stdin=subprocess.PIPE, env=settings, text=True, encoding="utf-8"
        )
    except OSError:
        return None


def _wait(pager: subprocess.Popen[str]) -> None:
    """Wait until the pager has ended; while it has the terminal, Ctrl-C is for it alone."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with contextlib.suppress(BrokenPipeError):
            pager.communicate()
    finally:
        signal.signal(signal.SIGINT, before)
