"""Confirmation, errors and validation over a real stdio process, on the example domain."""

from __future__ import annotations

import json
from typing import Any

from tests.rig import Stdio, eventually, text_of


def refusal(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"] is True
    assert json.loads(text_of(result)) == result["structuredContent"]
    return result["structuredContent"]


def test_only_yes_exactly_true_confirms(example: Stdio) -> None:
    before = sorted(example.folder.iterdir())
    for answer in ({}, *({"yes": yes} for yes in (False, "true", 1, None, [True], 1.0, "yes"))):
        for other in ({}, {"junk": 1}, {"path": 5}):
            error = refusal(example.call("remove", **answer, **other))
            assert error["code"] == "E_CONFIRM_REQUIRED"
    assert sorted(example.folder.iterdir()) == before
    assert example.call("remove", yes=True)["structuredContent"] == {"removed": "x"}
    assert (example.folder / "removed").exists()


def test_bad_arguments_take_the_domains_shape(example: Stdio) -> None:
    cases = {
        "text: required": {},
        "text: Input should be a valid string": {"text": 5},
        "count: Input should be a valid integer": {"text": "x", "count": "2"},
        "count: Input should be greater than or equal to 1": {"text": "x", "count": 0},
        "kind: Input should be 'a' or 'b'": {"text": "x", "kind": "c"},
        "other: no such argument": {"text": "x", "other": 1},
    }
    for problem, arguments in cases.items():
        error = refusal(example.call("echo", **arguments))
        assert error["code"] == "bad_arguments"
        assert error["details"] == [problem]


def test_an_unknown_tool_is_a_result_that_names_similar_ones(example: Stdio) -> None:
    assert refusal(example.call("ecoh", text="x")) == {
        "error": "unknown_tool",
        "message": "There is no tool 'ecoh'; did you mean echo?",
        "details": {"tool": "ecoh", "similar": ["echo"]},
    }
    assert refusal(example.call("", text="x"))["details"] == {"tool": "", "similar": []}
    assert len(refusal(example.call("x" * 50_000))["details"]["tool"]) < 200


def test_a_foreseen_failure_keeps_its_own_payload(example: Stdio) -> None:
    assert refusal(example.call("refuse"))["message"] == "no; try echo instead"
    assert b"ExampleError" not in example.errors


def test_an_unforeseen_failure_tells_the_log_and_not_the_caller(example: Stdio) -> None:
    result = example.call("crash")
    assert refusal(result)["code"] == "unexpected"
    assert "secret detail" not in json.dumps(result)
    eventually(lambda: b"KeyError: 'secret detail'" in example.errors)


def test_schemas_are_tidy(example: Stdio) -> None:
    tools = {tool["name"]: tool for tool in example.ask("tools/list")["result"]["tools"]}
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
