"""Deleting an agent whose work is not committed is asked of the person at the client."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastmcp import Client
from mcp_types import ElicitResult

from fleet_agentpack.settings import Ask, Settings
from fleet_agentpack.wire.server import build_server
from tests.fleet.local_fleet import LocalFleet
from tests.person import YES, Person


async def delete(person: Person | None, name: str = "papi", ask: Ask = "risky") -> dict[str, Any]:
    settings = dataclasses.replace(Settings.read(), only=("fleet",), ask=ask)
    async with Client(build_server(settings), elicitation_handler=person) as client:
        result = await client.call_tool("delete_agent", {"agent_name": name}, raise_on_error=False)
    answer: dict[str, Any] = result.structured_content
    return answer


async def test_uncommitted_work_is_shown_and_only_a_yes_deletes(local: LocalFleet) -> None:
    await local.create("papi")
    (local.tree("papi") / "README.md").write_text("changed\n")
    (local.tree("papi") / "new\n.md").write_text("new\n")
    no = await delete(Person(ElicitResult(action="decline")))
    assert no["error"] == "bad_request" and no["message"].startswith("delete_agent was not")
    assert no["details"] == {"status": 400, "reason": "approval_declined"}
    assert (local.tree("papi") / "README.md").exists()
    assert (await delete(None, ask="require"))["details"]["reason"] == "approval_unavailable"

    async def meanwhile() -> ElicitResult:
        (local.tree("papi") / "later.md").write_text("later\n")
        return YES

    person = Person(meanwhile, YES)
    assert "deleted_agent" in await delete(person)
    assert not local.tree("papi").exists()
    first, second = (asked.message.splitlines() for asked in person.seen)
    assert first == [
        "Delete agent papi of project demo and its workspace.",
        "Agent:",
        "  papi",
        "Changes that are not committed:",
        "  README.md",
        "  new\\n.md",
    ]
    assert "  later.md" in second


async def test_a_working_agent_is_asked_about_and_an_idle_clean_one_is_not(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    await local.fleet.start("papi", "sleep 60")
    person = Person(ElicitResult(action="cancel"), YES)
    assert (await delete(person))["details"]["reason"] == "approval_closed"
    assert "It is working on a task: sleep 60." in person.seen[0].message
    assert "deleted_agent" in await delete(person)
    await local.create("mami")
    assert "deleted_agent" in await delete(Person(), "mami")
    await local.create("dodo")
    cautious = Person(YES)
    assert "deleted_agent" in await delete(cautious, "dodo", ask="always")
    assert len(cautious.seen) == 1


async def test_a_name_that_is_nobodys_is_not_asked_about(local: LocalFleet) -> None:
    assert (await delete(Person(), "nobody"))["error"] == "not_found"
