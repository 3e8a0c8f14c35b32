"""How far long work has come, on standard error: a moving line on a terminal, else a line each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleet_agentpack.console.text import printable

if TYPE_CHECKING:
    from rich.progress import Progress


class Report:
    """Called with how much is done, of how much, and what happens now."""

    def __init__(self, *, moving: bool, lines: bool) -> None:
        self._moving = moving
        self._lines = lines
        self._bar: Progress | None = None

    def __call__(self, done: float, total: float | None, text: str) -> None:
        if self._moving:
            bar = self._shown()
            (task,) = bar.task_ids
            bar.update(task, completed=done, total=total, description=printable(text))
        elif self._lines:
            print(printable(text), file=sys.stderr, flush=True)

    def hide(self) -> None:
        """Take the moving line away, until the next report."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _shown(self) -> Progress:
        if self._bar is None:
            self._bar = _moving_line()
            self._bar.start()
        return self._bar


@contextmanager
def progress(*, lines: bool = True) -> Iterator[Report]:
    """A report for one piece of work; the moving line is gone when the work has ended.

    Without a terminal each report is a line, where a log is to tell what took so long.
    """
    report = Report(moving=sys.stderr.isatty(), lines=lines)
    try:
        yield report
    finally:
        report.hide()


def _moving_line() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    what = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), BarColumn(bar_width=20), what)
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task("", total=None)
    return bar
