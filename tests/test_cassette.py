"""The replay helper itself: what it matches, and that nothing slips through."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx
import pytest

from tests.cassette import Cassette, UnmatchedRequest

TAPE = """
version: 1
interactions:
- request: {method: GET, uri: 'https://a.test/x%2Fy?b=2&a=1', body: null, headers: {}}
  response: {status: {code: 200, message: OK}, headers: {etag: ['1']}, body: {string: first}}
- request: {method: GET, uri: 'https://a.test/x%2Fy?b=2&a=1', body: null, headers: {}}
  response: {status: {code: 503, message: ''}, headers: {}, body: {string: second}}
- request: {method: POST, uri: 'https://a.test/x', body: '{"a": 1, "b": 2}', headers: {}}
  response: {status: {code: 201, message: ''}, headers: {}, body: {string: !!binary AAEC}}
"""


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "tape.yaml"
    path.write_text(TAPE)
    return path


def test_answers_come_in_order_and_stay_on_the_last(tape: Path) -> None:
    with Cassette.load(tape).replay() as cassette:
        answers = [httpx.get("https://b.test/x%2Fy?a=1&b=2") for _ in range(3)]
    assert [(a.status_code, a.text) for a in answers] == [
        (200, "first"),
        (503, "second"),
        (503, "second"),
    ]
    assert answers[0].headers["etag"] == "1"
    assert len(cassette.requests) == 3


def test_bodies_match_as_json_and_binary_answers_are_kept(tape: Path) -> None:
    with Cassette.load(tape).replay():
        answer = httpx.post("https://a.test/x", content=b'{"b":2,"a":1}')
    assert (answer.status_code, answer.content) == (201, b"\x00\x01\x02")


@pytest.mark.parametrize("target", ["/x/y?a=1&b=2", "/x%2Fy?a=1", "/x%2Fy?a=1&b=3", "/z"])
def test_a_request_that_was_not_recorded_fails_even_when_swallowed(tape: Path, target: str) -> None:
    replay = Cassette.load(tape).replay()
    with (
        pytest.raises(UnmatchedRequest, match="not in the cassette:\n"),
        replay,
        contextlib.suppress(AssertionError),
    ):
        httpx.get("https://a.test" + target)


def test_an_answer_can_be_added_by_hand() -> None:
    cassette = Cassette()
    cassette.put("GET", "/api/x", 404, {"message": "no"})
    with cassette.replay():
        assert httpx.get("https://a.test/api/x").json() == {"message": "no"}
    assert cassette.sent("GET") == ["/api/x"]
