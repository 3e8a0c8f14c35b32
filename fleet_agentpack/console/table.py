"""Tables fitted to the terminal; in a pipe, each row is one line."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from fleet_agentpack.console.text import Paint, Text, printable

UNLIMITED = 1_000_000_000


@dataclass(frozen=True)
class Table:
    """Rows under headers. On a terminal that is too narrow, cells wrap; nothing is lost.

    The first column names the row, so the others give way first.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[Text]]


def width_for(stream: TextIO) -> int | None:
    """The columns that a table may take: those of the terminal, or as many as it needs."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def render(table: Table, paint: Paint, width: int | None = None) -> str:
    """The lines of a table that is at most so wide; control characters in cells are visible."""
    # Imported here: the server, and commands that print no table, do without it.
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text as Cell

    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for position in range(len(table.headers)):
        grid.add_column(no_wrap=position == 0)
    headers = [paint(header.upper(), "bold") for header in table.headers]
    for row in [headers, *table.rows]:
        cells = [" ".join(printable(cell).split()) for cell in row]
        grid.add_row(*(Cell.from_ansi(cell, overflow="fold") for cell in cells))
    page = Console(
        width=width or UNLIMITED,
        color_system="standard" if paint.enabled else None,
        no_color=not paint.enabled,
        force_terminal=paint.enabled,
        legacy_windows=False,
    )
    with page.capture() as captured:
        page.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
