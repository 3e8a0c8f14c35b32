"""What Coder's reports mean: when work begins and ends, whose it is, and who has to look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleet_agentpack.fleet.awaiting import wait_for
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.service import FleetService, quiet
from fleet_agentpack.kit.results import UNKNOWN, jsonable
from tests.fleet.fakecoder import FakeCoder, fleet_of
from tests.fleet.stage import service

THEN = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.fixture
def coder() -> FakeCoder:
    made = FakeCoder(fleet_of(2))
    for row in made.workspaces:
        inside(row)["apps"][0]["statuses"], row["latest_app_status"] = None, None
    return made


@pytest.fixture
async def fleet(coder: FakeCoder, tmp_path: Path) -> Any:
    made = service(tmp_path / "fleet.db", transport=coder)
    yield made
    await made.close()


def inside(row: dict[str, Any]) -> dict[str, Any]:
    agent: dict[str, Any] = row["latest_build"]["resources"][0]["agents"][0]
    return agent


def at(second: float) -> str:
    return (THEN + timedelta(seconds=second)).isoformat()


def report(coder: FakeCoder, second: float, state: str, message: str, **more: Any) -> None:
    """Let the first agent report; Coder hears from it all the time."""
    coder.report("agent-0", state, message, at(second))
    row = coder.workspaces[0]
    row["latest_app_status"].update(more)
    inside(row)["apps"][0]["statuses"][0].update(more)
    heard(coder, second)


def heard(coder: FakeCoder, second: float) -> None:
    inside(coder.workspaces[0])["last_connected_at"] = at(second)


def made_just_now(coder: FakeCoder) -> None:
    coder.workspaces[0]["latest_build"]["created_at"] = at(-20)
    heard(coder, 0)


def settling(fleet: FleetService, coder: FakeCoder, after: int, last: Any = None) -> None:
    """Let AgentAPI say `running` that often before it is stable."""
    left = [after]

    async def sleep(_: float) -> None:
        left[0] -= 1
        if left[0] == 0:
            coder.busy = False
            coder.trouble = None
            if last:
                last()

    fleet._sleep = sleep


async def test_a_new_agent_that_says_ready_takes_a_task_at_once(
    fleet: FleetService, coder: FakeCoder
) -> None:
    made_just_now(coder)
    report(coder, 1, "idle", "Ready")
    coder.busy = True  # the program still draws its screen
    settling(fleet, coder, 3)
    assert (await fleet.start("agent-0", "one")).agent_status == "busy"
    (row,) = (await fleet.history("agent-0")).tasks
    assert (row.status, row.source) == ("running", "ai_controller")


async def test_a_program_that_reports_its_own_start_as_work_takes_a_task_at_once(
    fleet: FleetService, coder: FakeCoder
) -> None:
    made_just_now(coder)
    report(coder, 1, "working", "")
    coder.busy = True
    settling(fleet, coder, 2, lambda: report(coder, 3, "idle", ""))
    assert (await fleet.start("agent-0", "one")).agent_status == "busy"


async def test_a_program_that_does_not_listen_yet_is_waited_for(
    fleet: FleetService, coder: FakeCoder
) -> None:
    made_just_now(coder)
    gateway = httpx.Response(502, text="<title>502 - Bad Gateway</title>")
    coder.trouble = lambda request: gateway if request.url.path.endswith("/status") else None
    settling(fleet, coder, 4)
    assert (await fleet.start("agent-0", "one")).agent_status == "busy"


async def test_work_that_somebody_gave_a_new_agent_is_still_409(
    fleet: FleetService, coder: FakeCoder
) -> None:
    made_just_now(coder)
    report(coder, 1, "working", "Their task")
    coder.busy = True
    waited: list[float] = []
    now = fleet._now

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    fleet._sleep = sleep
    fleet._now = lambda: now() + timedelta(seconds=sum(waited))
    with pytest.raises(FleetError, match="Their task") as caught:
        await fleet.start("agent-0", "one")
    assert caught.value.kind == "conflict"
    assert coder.messages == [] and sum(waited) < 31


async def test_work_that_somebody_only_just_gave_an_agent_is_409_at_once(
    fleet: FleetService, coder: FakeCoder
) -> None:
    coder.busy = True  # not reported yet
    said = {"role": "user", "content": "theirs", "time": at(0)}
    answer = httpx.Response(200, json={"messages": [said]})
    coder.trouble = lambda request: answer if request.url.path.endswith("/messages") else None
    settling(fleet, coder, 1)
    with pytest.raises(FleetError) as caught:
        await fleet.start("agent-0", "one")
    assert caught.value.kind == "conflict"


async def test_after_a_stop_without_a_last_report_new_work_is_the_new_tasks(
    fleet: FleetService, coder: FakeCoder
) -> None:
    await fleet.start("agent-0", "first")
    report(coder, 1, "working", "On the first")
    await fleet.stop("agent-0")
    await fleet.start("agent-0", "second")
    report(coder, 10, "working", "On the second")
    assert (await fleet.agents()).agents[0].current_task == "On the second"
    report(coder, 20, "complete", "The second is done")
    coder.busy = False
    second, first = (await fleet.history("agent-0")).tasks
    assert (first.status, first.summary) == ("stopped", "first")
    assert (second.status, second.summary) == ("completed", "second → The second is done")
    assert (await fleet.agents()).agents[0].status == "idle"


async def test_after_a_stop_without_a_last_report_a_persons_work_is_seen(
    fleet: FleetService, coder: FakeCoder
) -> None:
    await fleet.start("agent-0", "first")
    report(coder, 1, "working", "On the first")
    await fleet.stop("agent-0")
    assert (await fleet.agents()).agents[0].status == "idle"
    report(coder, 300, "working", "Somebody else's")
    (row, _) = (await fleet.agents()).agents
    assert (row.status, row.current_task) == ("busy", "Somebody else's")


async def test_a_stale_report_of_work_does_not_outrank_a_program_that_is_still(
    fleet: FleetService, coder: FakeCoder
) -> None:
    await fleet.start("agent-0", "one")
    report(coder, 1, "working", "Thinking")
    coder.busy = False
    heard(coder, 20)
    assert (await fleet.show("agent-0")).agent.status == "busy"  # it may only be thinking
    heard(coder, 40)
    shown = (await fleet.show("agent-0")).agent
    assert (shown.status, shown.current_task) == ("idle", None)
    assert (await fleet.agents()).agents[0].status == "idle"
    assert (await fleet.start("agent-0", "two")).agent_status == "busy"
    report(coder, 50, "working", "On the second")
    report(coder, 60, "failure", "No such file")
    two, one = (await fleet.history("agent-0")).tasks
    assert (one.status, two.status) == ("completed", "failed")
    assert two.summary.endswith("No such file")


async def test_what_is_being_done_is_what_was_reported_last(
    fleet: FleetService, coder: FakeCoder
) -> None:
    report(coder, 1, "idle", "Ready")
    await fleet.start("agent-0", "Implement OAuth2")
    row = (await fleet.agents()).agents[0]
    assert row.current_task == "Implement OAuth2"
    report(coder, 2, "working", "Reading the code")
    report(coder, 3, "working", "Writing integration tests")
    report(coder, 4, "working", "")
    assert (await fleet.agents()).agents[0].current_task == "Writing integration tests"
    assert (await fleet.show("agent-0")).agent.current_task == "Writing integration tests"
    assert (await fleet.history("agent-0")).tasks[0].summary == "Implement OAuth2"


async def test_an_agent_whose_startup_failed_is_offline_and_wants_attention(
    fleet: FleetService, coder: FakeCoder
) -> None:
    inside(coder.workspaces[0])["lifecycle_state"] = "start_error"
    assert [row.status for row in (await fleet.agents()).agents] == ["offline", "idle"]
    agent = (await fleet.show("agent-0")).agent
    assert agent.status == "offline"
    assert agent.metadata["fleet_mcp_attention"].startswith("start_error")
    with pytest.raises(FleetError, match="startup script failed") as caught:
        await fleet.start("agent-0", "x")
    assert caught.value.kind == "bad_request"


@pytest.mark.parametrize(
    ("state", "message", "flag", "waits"),
    [
        ("idle", "Which database?", False, True),
        ("complete", "Done. Shall I push it?", False, True),
        ("complete", "Done.", False, False),
        ("idle", "Stuck", True, True),
        ("failure", "What?", False, False),
    ],
)
async def test_a_question_is_something_that_a_person_sees(
    fleet: FleetService, coder: FakeCoder, state: str, message: str, flag: bool, waits: bool
) -> None:
    report(coder, 1, state, message, needs_user_attention=flag)
    metadata = (await fleet.show("agent-0")).agent.metadata
    assert metadata.get("fleet_mcp_attention") == ("needs_input" if waits else None)


async def test_a_link_in_a_report_is_shown_and_may_be_the_pull_request(
    fleet: FleetService, coder: FakeCoder
) -> None:
    coder.trouble = lambda r: (
        httpx.Response(404, json={}) if r.url.path.endswith("metadata") else None
    )
    report(coder, 1, "working", "x", uri="https://github.com/org/repo/pull/7")
    report(coder, 2, "complete", "x", uri="file:///home/coder/report.md")
    metadata = (await fleet.show("agent-0")).agent.metadata
    assert metadata["fleet_mcp_pull_request_url"].endswith("/pull/7")
    assert metadata["fleet_mcp_uri"].startswith("file:")
    assert metadata["fleet_mcp_last_outcome"] == "completed: x"


async def test_two_controllers_derive_the_same_state_and_one_marks_what_only_it_knows(
    fleet: FleetService, coder: FakeCoder, tmp_path: Path
) -> None:
    other = service(tmp_path / "other.db", transport=coder)
    await fleet.start("agent-0", "Too short to be reported")
    coder.busy = False
    await fleet.show("agent-0")
    await fleet.start("agent-0", "Implement OAuth2")
    report(coder, 2, "working", "Writing tests")
    for each in (fleet, other):
        assert (await each.agents()).agents[0] == ("agent-0", "busy", "Writing tests")
        assert (await each.show("agent-0")).agent.current_task == "Writing tests"
    report(coder, 3, "complete", "All green")
    coder.busy = False
    for each in (fleet, other):
        agent = (await each.show("agent-0")).agent
        assert agent.status == "idle"
        assert agent.metadata["fleet_mcp_last_outcome"] == "completed: All green"
    (theirs,) = (await other.history("agent-0")).tasks
    assert (theirs.status, theirs.source) == ("completed", "agent")
    ours, alone = (await fleet.history("agent-0")).tasks
    assert (ours.source, ours.known_only_here) == ("ai_controller", UNKNOWN)
    assert jsonable(alone)["known_only_here"] is True
    await other.close()


async def test_where_not_all_agents_fit_busy_and_waiting_ones_come_first(
    coder: FakeCoder, tmp_path: Path
) -> None:
    from fleet_agentpack.kit.fit import fitted
    from fleet_agentpack.kit.pages import Pages

    coder.workspaces = fleet_of(400)
    coder.report("agent-398", "idle", "Which one?", at(1))
    coder.report("agent-399", "working", "Busy", at(1))
    fleet = service(tmp_path / "many.db", transport=coder)
    found = await fleet.agents()

    def keep(_pages: Pages, part: Any) -> str:
        address: str = part.collection
        return address

    short = fitted(found, jsonable(found), 4_096, keep)
    assert {row["name"] for row in short["agents"][:2]} == {"agent-398", "agent-399"}
    assert short["total_count"] == 400
    assert short["omitted"]["count"] == 400 - len(short["agents"])
    assert "fleet://agents?page=2" in short["omitted"]["how"]
    await fleet.close()


def deleting(coder: FakeCoder) -> None:
    """Let deletions succeed at once."""

    def delete(request: httpx.Request) -> Any:
        path = request.url.path
        if request.method == "POST" and path.endswith("/builds"):
            gone = next(row for row in coder.workspaces if row["id"] == path.split("/")[4])
            coder.workspaces.remove(gone)
            build = {**gone["latest_build"], "transition": "delete", "status": "deleted"}
            coder.deleted = build
            return httpx.Response(201, json=build)
        if path.startswith("/api/v2/workspacebuilds/") and not path.endswith("/parameters"):
            return httpx.Response(200, json=coder.deleted)
        return None

    coder.trouble = delete


async def test_the_history_of_a_deleted_agent_stays_for_thirty_days(
    fleet: FleetService, coder: FakeCoder
) -> None:
    long = "A result of many lines.\n" * 100
    await fleet.start("agent-0", "one")
    report(coder, 1, "working", "one")
    report(coder, 2, "complete", long)
    coder.busy = False
    history = await fleet.history("agent-0")
    assert len(history.tasks[0].summary) < 600
    assert "has them whole" in str(history.warnings)
    deleting(coder)
    deleted: Any = (await fleet.delete("Agent-0")).deleted_agent
    coder.trouble = None
    with pytest.raises(FleetError) as caught:
        await fleet.history("agent-0")
    error = caught.value.payload()
    assert (error["error"], error["details"]["status"]) == ("not_found", 404)
    address = error["details"]["history"]
    assert address == f"fleet://history/{deleted.workspace_id}"
    past = await fleet.past(deleted.workspace_id)
    assert (past.agent_name, past.total_count) == ("agent-0", 1)
    assert past.tasks[0].result == long and past.deleted_at is not None

    again = {**fleet_of(3)[2], "name": "agent-0"}
    coder.workspaces.append(again)
    assert (await fleet.history("agent-0")).total_count == 0  # another agent of that name
    coder.workspaces.remove(again)

    now = fleet._now
    fleet._now = lambda: now() + timedelta(days=31)
    with pytest.raises(FleetError) as caught:
        await fleet.past(deleted.workspace_id)
    with pytest.raises(FleetError) as caught:
        await fleet.history("agent-0")
    assert "history" not in caught.value.payload()["details"]
    deleting(coder)
    await fleet.delete("agent-1")
    assert fleet._ledger.page(deleted.workspace_id, 0, 10) == ([], 0)  # gone for good


async def test_the_result_on_coder_is_what_the_agent_said_in_full(
    fleet: FleetService, coder: FakeCoder
) -> None:
    long = "All green.\n" * 100
    said = [("agent", "Hello"), ("user", "one"), ("agent", "Looking"), ("agent", long)]
    rows = [{"role": who, "content": text, "time": at(n)} for n, (who, text) in enumerate(said)]
    answer = httpx.Response(200, json={"messages": rows})
    coder.trouble = lambda request: answer if request.url.path.endswith("/messages") else None
    await fleet.start("agent-0", "one")
    assert (await fleet.work("agent-0")).result is None  # it is still at it
    report(coder, 1, "working", "one")
    report(coder, 2, "complete", "All green")
    coder.busy = False
    work = await fleet.work("agent-0")
    assert work.result == long.rstrip() and len(work.messages) == 4
    assert (work.branch, work.diff, work.warnings) == (None, "", UNKNOWN)
    coder.workspaces[0]["latest_build"]["status"] = "stopped"
    work = await fleet.work("agent-0")
    assert work.result == "All green" and "offline" in str(work.warnings)


async def test_a_template_that_reports_nothing_still_answers_every_question(
    fleet: FleetService, coder: FakeCoder
) -> None:
    def silent(request: httpx.Request) -> Any:
        is_report = request.url.path.endswith(("/watch-metadata", "/messages"))
        return httpx.Response(404, json={"message": "Resource not found"}) if is_report else None

    coder.trouble = silent
    shown = await fleet.show("agent-0")
    assert shown.agent.metadata == {"fleet_mcp_agent_spec": "Keep the build green"}
    assert "metadata could not be read" in str(shown.warnings)
    await fleet.start("agent-0", "one")
    waited = await wait_for(fleet, ["agent-0"], quiet, any_one=False, timeout_s=0)
    assert waited.timed_out and waited.still_busy[0].current_task == "one"
    coder.busy = False
    waited = await wait_for(fleet, ["agent-0"], quiet, any_one=False, timeout_s=0)
    assert [(row.status, row.last_outcome) for row in waited.done] == [("idle", "completed")]
    work = await fleet.work("agent-0")
    assert (work.branch, work.diff, work.messages, work.result) == (None, "", [], None)
    assert "Resource not found" in str(work.warnings)
    with pytest.raises(FleetError, match="inside its Coder workspace") as caught:
        await fleet.finished.merge("agent-0")
    assert caught.value.kind == "bad_request"
