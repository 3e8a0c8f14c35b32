"""Lines of two parts; where the terminal is too narrow, the second goes on under itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleet_agentpack.console.text import Text, printable

NARROWEST = 20  # columns that are worth an indent


@dataclass(frozen=True)
class Row:
    """What a line is about, and a path or a sentence that may be long."""

    head: Text
    rest: str


def lay_out(row: Row, width: int | None) -> str:
    """The line, or the lines that it takes where there are only so many columns."""
    head, rest = printable(row.head), printable(row.rest)
    if width is None:
        return f"{head} {rest}"
    from rich.text import Text as Cell  # here, since a pipe needs none of it

    taken = Cell.from_ansi(head).cell_len + 1
    indent = taken if width - taken >= NARROWEST else 0
    first, *more = _pieces(rest, width - indent)
    begun = f"{head} {first}" if indent == taken else f"{head}\n{first}"
    return "\n".join([begun, *(" " * indent + each for each in more)])


def _pieces(text: str, room: int) -> Iterator[str]:
    """The text in parts that fit, cut after a space or a slash where there is one late enough."""
    from rich.cells import cell_len, chop_cells

    while cell_len(text) > room:
        end = len(chop_cells(text, room)[0])
        nice = max(text.rfind(" ", 0, end), text.rfind("/", 0, end)) + 1
        end = nice if nice > end // 2 else end
        yield text[:end].rstrip(" ")
        text = text[end:].lstrip(" ")
    yield text
