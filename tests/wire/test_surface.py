"""What holds for every tool of every domain, over a real stdio process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack import domains
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.schema import without_nulls
from fleet_agentpack.wire.server import assemble
from tests.rig import SERVE, Stdio

WRITERS = {
    "deploy_apply",
    "rollback",
    "create_agent",
    "delete_agent",
    "start_agent_task",
    "stop_agent_task",
    "merge_agent_work",
    "enact__install",
    "enact__uninstall",
    "enact__run",
    "fractary_forge_cache_clear",
    "import_config",
    "keep_edits",
}
RECORDED = Path(__file__).parent / "surface.json"
CONFIRMED = {"deploy_apply", "rollback", "merge_agent_work"}


def test_the_tools_are_those_that_were_recorded(tools: list[dict[str, Any]]) -> None:
    """Names, schemas and annotations never change; a new description is a change of this file."""
    assert json.dumps(tools) == json.dumps(json.loads(RECORDED.read_text(encoding="utf-8")))


def test_null_for_an_optional_argument_counts_as_left_out(example: Stdio) -> None:
    assert example.call("echo", text="x", count=None, kind=None)["structuredContent"] == {
        "text": "x",
        "kind": "a",
    }
    assert example.call("echo", text=None)["structuredContent"]["details"] == [
        "text: Input should be a valid string"
    ]
    assert example.call("echo", text="x", other=None)["isError"] is True
    for domain in domains.select():
        for tool in domain.tools.values():
            nulls = dict.fromkeys(tool.parameters["properties"])
            assert set(without_nulls(nulls, tool.parameters)) == set(
                tool.parameters.get("required", ())
            )


def test_null_stays_where_a_schema_takes_it() -> None:
    schema = {"properties": {"a": {"type": ["string", "null"]}, "b": {"anyOf": []}, "c": True}}
    assert without_nulls({"a": None, "b": None, "c": None}, schema) == dict.fromkeys("abc")


def test_a_call_of_a_fixed_tool_never_looks_into_the_tool_store(home: Path) -> None:
    (home / ".enact").mkdir()
    (home / ".enact" / "config.yaml").write_text("trust: [broken\n")
    (home / ".enact" / "tools.json").write_text("{broken")
    with Stdio() as server:
        server.hello()
        plan = server.call("plan")
        assert plan["structuredContent"]["errors"][0]["code"] == "E_CONFIG_MISSING"
        assert server.call("enact__list")["structuredContent"]["warnings"]
        assert server.close() == 0
        assert b"enact" not in server.errors


def test_two_domains_cannot_have_one_tool() -> None:
    one, *_ = domains.select()
    with pytest.raises(ValueError, match="more than one domain has a tool plan"):
        assemble(Settings.read(), [one, one])


def test_every_tool_is_listed_once_and_plainly(tools: list[dict[str, Any]]) -> None:
    expected = [name for domain in domains.select() for name in domain.tools]
    assert [tool["name"] for tool in tools] == expected
    assert len(set(expected)) == len(expected)
    for tool in tools:
        assert set(tool) == {"name", "description", "inputSchema", "annotations"}
        assert tool["inputSchema"]["type"] == "object"
        assert tool["inputSchema"]["additionalProperties"] is False
        assert "anyOf" not in tool["inputSchema"]


def test_hints_are_right(tools: list[dict[str, Any]]) -> None:
    for tool in tools:
        assert tool["annotations"]["readOnlyHint"] is (tool["name"] not in WRITERS)
    ours = [tool for domain in domains.select() for tool in domain.tools.values()]
    assert {tool.name for tool in ours if tool.needs_yes} == CONFIRMED


def test_descriptions_are_at_most_two_sentences(tools: list[dict[str, Any]]) -> None:
    for tool in tools:
        assert 1 <= len(re.findall(r"[.!?](?:\s|$)", tool["description"])) <= 2, tool["name"]


def test_read_only_leaves_every_writer_out() -> None:
    with Stdio([*SERVE, "--read-only"]) as server:
        server.hello()
        tools = server.ask("tools/list")["result"]["tools"]
        assert all(tool["annotations"]["readOnlyHint"] for tool in tools)
        assert not WRITERS & {tool["name"] for tool in tools}
        assert server.call("rollback", to="x")["structuredContent"]["error"] == "unknown_tool"
