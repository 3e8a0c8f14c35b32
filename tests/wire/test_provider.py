"""A domain's own tools."""

from __future__ import annotations

import pytest

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.wire.provider import EXTRA, READS, WRITES, DomainTool, DomainTools
from fleet_agentpack.wire.selection import Facts


def test_a_domain_cannot_have_two_tools_of_one_name() -> None:
    mcp = DomainTools(
        "toy", server_name="toy", instructions="", error=ClimptError, open_service=lambda _: None
    )

    def echo() -> dict[str, str]:
        """Answer."""
        return {}

    mcp.tool(echo)
    with pytest.raises(ValueError, match="echo"):
        mcp.tool(echo)


def test_a_domain_cannot_have_two_prompts_or_resources_of_one_name() -> None:
    mcp = DomainTools(
        "toy", server_name="toy", instructions="", error=ClimptError, open_service=lambda _: None
    )

    def echo() -> str:
        """Answer."""
        return ""

    mcp.prompt(echo)
    with pytest.raises(ValueError, match="echo"):
        mcp.prompt(echo)
    mcp.resource("toy://echo")(echo)
    with pytest.raises(ValueError, match="toy://echo"):
        mcp.resource("toy://echo")(echo)


async def test_a_tool_is_made_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    make = DomainTool.of
    monkeypatch.setattr(
        DomainTool, "of", lambda function, domain: made.append(function) or make(function, domain)
    )
    mcp = DomainTools(
        "toy", server_name="toy", instructions="", error=ClimptError, open_service=lambda _: None
    )

    @mcp.tool(annotations=READS)
    def look() -> dict[str, str]:
        """Answer."""
        return {}

    @mcp.tool(annotations=WRITES, tags={EXTRA})
    def write() -> dict[str, str]:
        """Write."""
        return {}

    assert mcp.facts() == {"look": Facts("toy"), "write": Facts("toy", writes=True, extra=True)}
    assert "write" in mcp.tools and len(mcp.tools) == 2 and made == []
    assert (await mcp.get_tool("write")).name == "write"
    assert await mcp.get_tool("nothing") is None
    assert made == [write]
    assert [tool.name for tool in await mcp.list_tools()] == ["look", "write"]
    assert made == [write, look]
