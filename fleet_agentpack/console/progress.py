"""How far long work has come, on standard error: a moving line on a terminal, else a line each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fleet_agentpack.console.text import printable

Report = Callable[[float, float | None, str], None]  # done, of how much, what happens now


@contextmanager
def progress() -> Iterator[Report]:
    """A report for one piece of work; the moving line is gone when the work has ended."""
    if not sys.stderr.isatty():
        yield _print_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    what = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), BarColumn(bar_width=20), what)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(done: float, total: float | None, text: str) -> None:
            bar.update(task, completed=done, total=total, description=printable(text))

        yield report


def _print_line(_done: float, _total: float | None, text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
