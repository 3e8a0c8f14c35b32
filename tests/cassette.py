"""Replays recorded HTTP (vcrpy's file format) through respx.

A request is matched on method, path, sorted query and body; the host is not compared. Answers to
one request come in the order in which they were recorded and stay on the last. A request that was
never recorded fails the test, even when the code under test swallows the error.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx
import respx
import yaml

Key = tuple[str, tuple[str, ...], tuple[tuple[str, str], ...], str]

# These describe the bytes on the wire, which a replay does not reproduce.
TRANSFER_HEADERS = ("content-encoding", "content-length", "transfer-encoding")


class UnmatchedRequest(AssertionError):
    """The code under test asked for something that no cassette holds."""


@dataclass
class Cassette:
    """Recorded answers, and what was asked of them."""

    answers: dict[Key, list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    taken: Counter[Key] = field(default_factory=Counter)

    @classmethod
    def load(cls, *paths: Path) -> Cassette:
        """The answers of several files as one; for the same request, in the order of the files."""
        cassette = cls()
        for path in paths:
            for interaction in _interactions(path):
                key = _recorded_key(interaction["request"])
                cassette.answers.setdefault(key, []).append(interaction["response"])
        return cassette

    @contextmanager
    def replay(self) -> Iterator[Cassette]:
        """Answer every httpx request from the recordings, and none from the network."""

        def answer(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            key = _sent_key(request)
            found = self.answers.get(key)
            if not found:
                self.unmatched.append(f"{request.method} {request.url} {key[3]}")
                raise UnmatchedRequest(f"not in the cassette: {self.unmatched[-1]}")
            self.taken[key] += 1
            return _response(found[min(self.taken[key], len(found)) - 1])

        with respx.mock(assert_all_called=False) as router:
            router.route().mock(side_effect=answer)
            yield self
        if self.unmatched:
            raise UnmatchedRequest("not in the cassette:\n" + "\n".join(self.unmatched))

    def put(self, method: str, path: str, status: int, body: Any) -> None:
        """Add an answer that was not recorded; the test says why it has to."""
        key = (method, _segments(path), (), "")
        text = body if isinstance(body, str) else json.dumps(body)
        kind = "text/html" if isinstance(body, str) else "application/json"
        self.answers.setdefault(key, []).append(
            {"status": {"code": status}, "headers": {"content-type": [kind]}, "body": text}
        )

    def hold(self, method: str, path: str) -> None:
        """Let the answer given last to a request be given once more before the next one."""
        for key in self.taken:
            if (key[0], key[1]) == (method, _segments(path)):
                self.taken[key] -= 1

    def sent(self, method: str | None = None) -> list[str]:
        """The paths asked for so far, in order, of one method or of all."""
        return [r.url.path for r in self.requests if method in (None, r.method)]


@cache
def _interactions(path: Path) -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    found: list[dict[str, Any]] = data["interactions"]
    return found


def _recorded_key(request: dict[str, Any]) -> Key:
    url = urlsplit(request["uri"])
    return request["method"], _segments(url.path), _query(url.query), _body(request.get("body"))


def _sent_key(request: httpx.Request) -> Key:
    path, _, query = request.url.raw_path.decode("ascii").partition("?")
    return request.method, _segments(path), _query(query), _body(request.content)


def _segments(path: str) -> tuple[str, ...]:
    """A path by its parts, so that `%2F` inside a part differs from a separator."""
    return tuple(unquote(part) for part in path.split("/"))


def _query(query: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(parse_qsl(query, keep_blank_values=True)))


def _body(body: Any) -> str:
    """JSON in one spelling; anything else as it is."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body or ""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return str(text)


def _response(recorded: dict[str, Any]) -> httpx.Response:
    body = recorded.get("body") or ""
    content = body.get("string", "") if isinstance(body, dict) else body
    headers = [
        (name, value)
        for name, values in recorded.get("headers", {}).items()
        if name.lower() not in TRANSFER_HEADERS
        for value in ([values] if isinstance(values, str) else values)
    ]
    raw = content if isinstance(content, bytes) else str(content).encode()
    return httpx.Response(recorded["status"]["code"], headers=headers, content=raw)
