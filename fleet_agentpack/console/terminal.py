"""The names that the rooms import until they use `command.py`, `table.py` and `ask.py`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fleet_agentpack.console.ask import ask, is_attended
from fleet_agentpack.console.table import Table, render, width_for
from fleet_agentpack.console.text import Paint, printable

__all__ = ["Paint", "ask", "is_attended", "printable", "table"]


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], paint: Paint) -> str:
    """A table for standard output."""
    return render(Table(headers, rows), paint, width_for(sys.stdout))
