"""A header counts only at the very start, between its fences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.kit.frontmatter import Document, split


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("---\na: 1\n---\nbody\n", Document("a: 1\n", "body\n", 4)),
        ("---\n---\nbody", Document("", "body", 3)),
        ("---  \r\na: 1\r\n---\t\r\nbody", Document("a: 1\r\n", "body", 4)),
        ("---\na: 1\n---", Document("a: 1\n", "", 3)),
        ("\ufeff---\na: 1\n---\nbody", Document("a: 1\n", "body", 4)),
        ("---\na: 1\n---\nx\n---\ny\n", Document("a: 1\n", "x\n---\ny\n", 4)),
        ("---\na: '---x'\nb: ----\n---\nbody", Document("a: '---x'\nb: ----\n", "body", 5)),
        ("body\n---\na: 1\n---\n", Document(None, "body\n---\na: 1\n---\n", 1)),
        ("\n---\na: 1\n---\n", Document(None, "\n---\na: 1\n---\n", 1)),
        ("---\nnever closed\n", Document(None, "---\nnever closed\n", 1)),
        ("----\na\n---\n", Document(None, "----\na\n---\n", 1)),
        ("--- a\n---\n", Document(None, "--- a\n---\n", 1)),
        ("", Document(None, "", 1)),
    ],
)
def test_split(text: str, document: Document) -> None:
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
