"""Colour where it is wanted, no control characters from outside, straight tables."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.console.terminal import Paint, printable, table, width_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "coloured"),
    [
        (Terminal(), {}, True),
        (io.StringIO(), {}, False),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "0"}, False),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_where_it_is_wanted(
    stream: io.StringIO, environ: dict[str, str], coloured: bool
) -> None:
    assert Paint.for_stream(stream, environ).enabled is coloured


def test_paint_wraps_or_leaves_alone() -> None:
    assert Paint(True)("x", "bold", "red") == "\x1b[1;31mx\x1b[0m"
    assert Paint(True)("x") == Paint(False)("x", "bold") == "x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\rb\x00\x9b", "a\\rb\\x00\\x9b"),
        ("abc\u202ecba\u2066\u2028", "abc\\u202ecba\\u2066\\u2028"),
        ("tab\tline\nü 表 👩‍🚀", "tab\tline\nü 表 👩‍🚀"),
    ],
)
def test_control_characters_are_made_visible(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_printable_text_has_no_escape(text: str) -> None:
    assert not set(printable(text)) & set("\x1b\x07\x08\r\x9b\u202e")


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("表示", 4), ("e\u0301", 1), ("\x1b[1mab\x1b[0m", 2), ("\uff57", 2), ("", 0)],
)
def test_width_of(text: str, columns: int) -> None:
    assert width_of(text) == columns


def test_columns_line_up_under_their_headers() -> None:
    paint = Paint(True)
    rows = [
        ["表", "x", "last"],
        [paint("long name", "cyan"), "", ""],
        ["e\u0301", "two\nlines", "z"],
    ]
    lines = table(["name", "b", "c"], rows, paint).split("\n")
    assert len(lines) == 4
    assert lines[0] == paint("name", "bold") + " " * 7 + paint("b", "bold") + " " * 10 + paint(
        "c", "bold"
    )
    assert lines[1] == "表" + " " * 9 + "x" + " " * 10 + "last"
    assert lines[2] == paint("long name", "cyan")
    assert lines[3] == "e\u0301" + " " * 10 + "two lines  z"


def test_a_table_without_rows_has_its_headers() -> None:
    assert table(["a", "b"], [], Paint(False)) == "a  b"
