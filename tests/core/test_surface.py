"""What holds for every tool of every domain, over a real stdio process."""

from __future__ import annotations

import re
from typing import Any

from fleet_agentpack import inventory
from tests.rig import SERVE, Stdio

WRITERS = {
    "deploy_apply",
    "rollback",
    "create_agent",
    "delete_agent",
    "start_agent_task",
    "stop_agent_task",
    "enact__install",
    "enact__uninstall",
    "enact__run",
    "fractary_forge_cache_clear",
}
CONFIRMED = {"deploy_apply", "rollback"}


def test_every_tool_is_listed_once_and_plainly(tools: list[dict[str, Any]]) -> None:
    expected = [spec.name for domain in inventory.select() for spec in domain.tools]
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
    specs = {spec.name: spec for domain in inventory.select() for spec in domain.tools}
    assert {name for name, spec in specs.items() if spec.confirm} == CONFIRMED & set(specs)


def test_descriptions_are_at_most_two_sentences(tools: list[dict[str, Any]]) -> None:
    for tool in tools:
        assert 1 <= len(re.findall(r"[.!?](?:\s|$)", tool["description"])) <= 2, tool["name"]


def test_a_part_can_be_served_alone_and_read_only() -> None:
    with Stdio([*SERVE, "--only", "climpt", "--read-only"]) as server:
        assert server.hello()["serverInfo"]["name"] == "climpt"
        names = [tool["name"] for tool in server.ask("tools/list")["result"]["tools"]]
        assert names == ["search", "describe", "execute", "reload"]


def test_read_only_leaves_every_writer_out() -> None:
    with Stdio([*SERVE, "--read-only"]) as server:
        server.hello()
        tools = server.ask("tools/list")["result"]["tools"]
        assert all(tool["annotations"]["readOnlyHint"] for tool in tools)
        assert not WRITERS & {tool["name"] for tool in tools}
        assert server.call("rollback", to="x")["structuredContent"]["error"] == "unknown_tool"
