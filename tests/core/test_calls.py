"""Confirmation, errors and validation over a real stdio process, on the example domain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import EXAMPLE, Stdio, text_of


@pytest.fixture
def server(home: Path) -> Iterator[Stdio]:
    with Stdio(EXAMPLE) as server:
        server.hello()
        yield server


def refusal(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"] is True
    assert json.loads(text_of(result)) == result["structuredContent"]
    return result["structuredContent"]


def test_only_yes_exactly_true_confirms(server: Stdio, work: Path) -> None:
    for answer in ({}, *({"yes": yes} for yes in (False, "true", 1, None, [True], 1.0, "yes"))):
        for other in ({}, {"junk": 1}, {"path": 5}):
            error = refusal(server.call("remove", **answer, **other))
            assert error["code"] == "E_CONFIRM_REQUIRED"
    assert list(work.iterdir()) == []
    assert server.call("remove", yes=True)["structuredContent"] == {"removed": "x"}
    assert (work / "removed").exists()


def test_bad_arguments_take_the_domains_shape(server: Stdio) -> None:
    cases = {
        "text: required": {},
        "text: Input should be a valid string": {"text": 5},
        "count: Input should be a valid integer": {"text": "x", "count": "2"},
        "count: Input should be greater than or equal to 1": {"text": "x", "count": 0},
        "kind: Input should be 'a' or 'b'": {"text": "x", "kind": "c"},
        "other: no such argument": {"text": "x", "other": 1},
    }
    for problem, arguments in cases.items():
        error = refusal(server.call("echo", **arguments))
        assert error["code"] == "bad_arguments"
        assert error["details"] == [problem]


def test_an_unknown_tool_is_a_result_that_names_similar_ones(server: Stdio) -> None:
    assert refusal(server.call("ecoh", text="x")) == {
        "error": "unknown_tool",
        "message": "There is no tool 'ecoh'; did you mean echo?",
        "details": {"tool": "ecoh", "similar": ["echo"]},
    }
    assert refusal(server.call("", text="x"))["details"] == {"tool": "", "similar": []}
    assert len(refusal(server.call("x" * 50_000))["details"]["tool"]) < 200


def test_a_foreseen_failure_keeps_its_own_payload(server: Stdio) -> None:
    assert refusal(server.call("refuse"))["message"] == "no; try echo instead"
    assert b"Traceback" not in server.errors


def test_an_unforeseen_failure_tells_the_log_and_not_the_caller(server: Stdio) -> None:
    result = server.call("crash")
    assert refusal(result)["code"] == "unexpected"
    assert "secret detail" not in json.dumps(result)
    server.close()
    assert b"KeyError: 'secret detail'" in server.errors


def test_schemas_are_tidy(server: Stdio) -> None:
    tools = {tool["name"]: tool for tool in server.ask("tools/list")["result"]["tools"]}
    assert tools["remove"] == {
        "name": "remove",
        "description": "Remove a file, if so confirmed.",
        "inputSchema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["yes"],
            "properties": {
                "path": {"type": "string", "default": "x"},
                "yes": {"const": True, "description": "Approve."},
            },
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False},
    }
