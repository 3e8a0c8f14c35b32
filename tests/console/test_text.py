"""Colour where it is wanted, and no control characters from outside."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.console.text import Paint, printable
from fleet_agentpack.kit.process import without_colours
from tests.console.streams import Terminal


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


@pytest.mark.parametrize("enabled", [True, False])
def test_what_is_painted_keeps_no_control_characters_but_the_colours(enabled: bool) -> None:
    painted = Paint(enabled)("a\x1b[2Jb", "red")
    assert "a\\x1b[2Jb" in painted
    assert printable(painted) == painted
    assert without_colours(painted) == "a\\x1b[2Jb"


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
