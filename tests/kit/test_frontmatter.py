"""A header counts only at the very start, between its fences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.kit.frontmatter import Split, split


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("---\na: 1\n---\nbody\n", Split("a: 1\n", "body\n", 4)),
        ("---\n---\nbody", Split("", "body", 3)),
        ("---  \r\na: 1\r\n---\t\r\nbody", Split("a: 1\r\n", "body", 4)),
        ("---\na: 1\n---", Split("a: 1\n", "", 3)),
        ("\ufeff---\na: 1\n---\nbody", Split("a: 1\n", "body", 4)),
        ("---\na: 1\n---\nx\n---\ny\n", Split("a: 1\n", "x\n---\ny\n", 4)),
        ("---\na: '---x'\nb: ----\n---\nbody", Split("a: '---x'\nb: ----\n", "body", 5)),
        ("body\n---\na: 1\n---\n", Split(None, "body\n---\na: 1\n---\n", 1)),
        ("\n---\na: 1\n---\n", Split(None, "\n---\na: 1\n---\n", 1)),
        ("---\nnever closed\n", Split(None, "---\nnever closed\n", 1)),
        ("----\na\n---\n", Split(None, "----\na\n---\n", 1)),
        ("--- a\n---\n", Split(None, "--- a\n---\n", 1)),
        ("", Split(None, "", 1)),
    ],
)
def test_split(text: str, document: Split) -> None:
    assert split(text) == document


lines = st.lists(st.sampled_from(["---", "--- ", "a: 1", "", " ---", "----", "text"]), max_size=8)


@given(lines.map("\n".join))
def test_the_body_is_the_rest_of_the_text_from_its_line_on(text: str) -> None:
    document = split(text)
    assert text.endswith(document.body)
    if document.header is not None and document.body:
        assert "\n".join(text.split("\n")[document.body_line - 1 :]) == document.body
    if document.header is None:
        assert document.body == text
