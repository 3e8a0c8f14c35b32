"""Tables: straight columns, fitted to a terminal, whole in a pipe, data never read as markup."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.console.table import Table, render, width_for
from fleet_agentpack.console.text import Paint
from tests.console.streams import Terminal

PLAIN = Paint(False)
LONG = "many words " * 20


def test_columns_line_up_under_their_headers() -> None:
    paint = Paint(True)
    rows = [
        ["表", "x", "last"],
        [paint("long name", "cyan"), "", ""],
        ["e\u0301", "two\nlines", "z"],
    ]
    lines = render(Table(["name", "b", "c"], rows), paint).split("\n")
    assert lines == [
        f"{paint('NAME', 'bold')}       {paint('B', 'bold')}          {paint('C', 'bold')}",
        "表" + " " * 9 + "x" + " " * 10 + "last",
        paint("long name", "cyan"),
        "e\u0301" + " " * 10 + "two lines  z",
    ]


def test_a_table_without_rows_has_its_headers() -> None:
    assert render(Table(["a", "b"], []), PLAIN) == "A  B"


def test_in_a_pipe_nothing_is_cut() -> None:
    assert width_for(io.StringIO()) is None
    assert render(Table(["a", "b"], [["x", LONG]]), PLAIN).endswith(f"x  {LONG.strip()}")


def test_a_terminal_has_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert width_for(Terminal()) == 40


def test_what_is_too_wide_wraps_without_loss_and_the_first_column_stays() -> None:
    name = "a-name-of-twenty-two-c"
    lines = render(Table(["name", "text"], [[name, LONG]]), PLAIN, 40).split("\n")
    assert len(lines) > 5
    assert lines[1].startswith(f"{name}  many words")
    assert " ".join(" ".join(lines[1:]).split()) == f"{name} {LONG.strip()}"


@pytest.mark.parametrize("cell", ["[red]x[/red]", "[bold", ":smile:", "[link=http://x.y]z[/link]"])
def test_data_is_not_read_as_markup(cell: str) -> None:
    assert cell in render(Table(["a", "b"], [["1", cell]]), Paint(True), 80)


def test_control_characters_in_a_cell_are_made_visible() -> None:
    shown = render(Table(["a"], [["\x1b[31mred\x9b"]]), Paint(True), 80)
    assert shown.split("\n")[1] == "\\x1b[31mred\\x9b"


@given(st.lists(st.lists(st.text(max_size=60), min_size=3, max_size=3), max_size=5))
def test_every_line_fits(rows: list[list[str]]) -> None:
    from rich.cells import cell_len

    shown = render(Table(["one", "two", "three"], rows), PLAIN, 50)
    assert all(cell_len(line) <= 50 for line in shown.split("\n"))


def test_rich_is_imported_only_when_a_table_is_printed() -> None:
    code = (
        "import sys\n"
        "from fleet_agentpack.console import ask, command, progress, table, text\n"
        "assert 'rich' not in sys.modules\n"
        "table.render(table.Table(['a'], []), text.Paint(False))\n"
        "assert 'rich' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
