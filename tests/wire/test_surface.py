"""What holds for every tool of every domain, over a real stdio process."""

from __future__ import annotations

import re
from typing import Any

from fleet_agentpack import domains
from fleet_agentpack.wire.params import READS, WRITES, Hints
from fleet_agentpack.wire.register import wire_hints
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
    expected = [spec.name for domain in domains.select() for spec in domain.tools]
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
    specs = {spec.name: spec for domain in domains.select() for spec in domain.tools}
    assert {name for name, spec in specs.items() if spec.confirm} == CONFIRMED & set(specs)


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


def test_hints_on_the_wire_say_no_more_than_they_must() -> None:
    def wire(hints: Hints) -> dict[str, Any]:
        return wire_hints(hints).model_dump(by_alias=True, exclude_none=True)

    assert wire(READS) == {"readOnlyHint": True, "openWorldHint": False}
    again = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
    assert wire(WRITES) == again
    assert wire(Hints(read_only=False, idempotent=True)) == {**again, "idempotentHint": True}
