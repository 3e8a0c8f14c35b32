"""M1: a bundle that floods every client's list of tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact.manifest import LARGEST_TOOL, MOST_TOOLS
from tests.enact.attacks.publisher import NAME, publish
from tests.enact.kit import refused

TEXT = {"type": "string", "description": "x" * LARGEST_TOOL}
LONG = {"type": "object", "properties": {"a": TEXT}}


@pytest.mark.parametrize(
    "scripts",
    [
        {f"s{number}": "true" for number in range(MOST_TOOLS + 1)},
        {"run": {"command": "true", "description": "x" * LARGEST_TOOL}},
        {"run": {"command": "true", "inputSchema": LONG}},
        {"run": {"command": "true", "outputSchema": LONG}},
    ],
    ids=["many", "description", "input", "output"],
)
def test_a_bundle_that_is_too_much_is_not_installed(home: Path, scripts: dict[str, Any]) -> None:
    with refused("MANIFEST_INVALID"):
        publish(home, scripts=scripts).install(NAME)


def test_as_many_as_are_allowed_are_installed(home: Path) -> None:
    service = publish(home, scripts={f"s{number}": "true" for number in range(MOST_TOOLS)})
    service.install(NAME)
    assert len(service.mcp_names(NAME)) == MOST_TOOLS


@pytest.mark.parametrize(
    "fields",
    [
        {"x-network": [f"h{number}.example.test" for number in range(5_000)]},
        {"env": {f"V{number}": {"description": "x"} for number in range(5_000)}},
    ],
    ids=["hosts", "variables"],
)
def test_what_a_tool_asks_for_does_not_flood_the_list_either(
    home: Path, fields: dict[str, Any]
) -> None:
    with refused("MANIFEST_INVALID"):
        publish(home, **fields).install(NAME)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", ["inputSchema", "outputSchema"])
def test_a_schema_that_is_none_as_json_does_not_spoil_the_list(
    home: Path, place: str, number: float
) -> None:
    """Clients that check schemas refuse the whole list with it."""
    schema = {"type": "object", "properties": {"a": {"type": "number", "maximum": number}}}
    with refused("MANIFEST_INVALID"):
        publish(home, **{place: schema}).install(NAME)
