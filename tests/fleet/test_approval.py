"""Deleting an agent with uncommitted work, and merging one's work, is asked of the person."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastmcp import Client
from mcp_types import ElicitResult

from fleet_agentpack.settings import Ask, Settings
from fleet_agentpack.wire.server import build_server
from tests.fleet.local_fleet import LocalFleet, git
from tests.person import YES, Person


async def call(person: Person | None, ask: Ask, tool: str, **given: object) -> dict[str, Any]:
    settings = dataclasses.replace(Settings.read(), only=("fleet",), ask=ask)
    async with Client(build_server(settings), elicitation_handler=person) as client:
        result = await client.call_tool(tool, given, raise_on_error=False)
    answer: dict[str, Any] = result.structured_content
    return answer


async def delete(person: Person | None, name: str = "papi", ask: Ask = "risky") -> dict[str, Any]:
    return await call(person, ask, "delete_agent", agent_name=name)


async def merge(person: Person | None, ask: Ask = "risky", **more: object) -> dict[str, Any]:
    return await call(person, ask, "merge_agent_work", agent_name="papi", yes=True, **more)


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


async def test_a_merge_shows_its_files_and_only_a_yes_merges(local: LocalFleet) -> None:
    await local.create("papi")
    await local.work("papi", "write notes.txt text")
    before = git(local.project, "rev-parse", "main")
    no = await merge(Person(ElicitResult(action="decline")))
    assert no["error"] == "bad_request" and no["details"]["reason"] == "approval_declined"
    assert (await merge(None, ask="require"))["details"]["reason"] == "approval_unavailable"
    closed = await merge(Person(ElicitResult(action="cancel")), ask="require")
    assert closed["details"]["reason"] == "approval_closed"
    assert git(local.project, "rev-parse", "main") == before
    person = Person(YES)
    done = await merge(person, squash=True)
    assert person.seen[0].message.splitlines() == [
        "Merge 1 commit of agent papi (agent/papi) into main as one commit.",
        "Files:",
        "  notes.txt",
    ]
    assert done["commit"] == git(local.project, "rev-parse", "main") != before


async def test_what_is_merged_is_what_was_shown(local: LocalFleet) -> None:
    await local.create("papi")
    await local.work("papi", "write notes.txt text")

    async def meanwhile() -> ElicitResult:
        await local.work("papi", "write later.txt text")
        return YES

    person = Person(meanwhile, YES)
    assert (await merge(person))["files"] == ["later.txt", "notes.txt"]
    first, second = (asked.message for asked in person.seen)
    assert "later.txt" not in first and "later.txt" in second


async def test_a_merge_of_nothing_is_not_asked_about(local: LocalFleet) -> None:
    await local.create("papi")
    assert "nothing to merge" in (await merge(Person()))["message"]
    assert (await merge(Person(), into="nowhere"))["details"]["field"] == "into"
