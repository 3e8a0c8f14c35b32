"""As many tasks of a project at once as it says; one more is refused, or waits for its turn."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.service import FleetService
from fleet_agentpack.settings import Settings
from tests.fleet.local_fleet import LocalFleet, ended, git
from tests.fleet.test_environments import configured
from tests.fleet.test_local import processes_of
from tests.fleet.test_surfaces import command
from tests.fleet.waiting import until

WAIT = "sh while ! test -e go; do sleep 0.05; done; rm go"


def let_go(local: LocalFleet, name: str) -> None:
    """Let a task that waits in its own directory come to its end."""
    (local.tree(name) / "go").write_text("")


def kill_all_of(task: str) -> None:
    for pid in processes_of(task):
        with contextlib.suppress(ProcessLookupError):  # it died with another one
            os.kill(pid, signal.SIGKILL)


async def status(fleet: FleetService, name: str) -> str:
    return (await fleet.history(name)).tasks[0].status


async def made(local: LocalFleet, *names: str, limit: int = 1) -> None:
    configured(local, f"max_running = {limit}")
    for name in names:
        await local.create(name)


async def test_one_task_more_than_the_limit_is_refused_and_says_who_runs(
    local: LocalFleet,
) -> None:
    await made(local, "papi", "mami", "dodo", limit=2)
    await local.fleet.start("papi", WAIT)
    await local.fleet.start("mami", WAIT)
    with pytest.raises(FleetError) as refused:
        await local.restarted().start("dodo", "three")
    assert refused.value.kind == "unavailable"
    assert refused.value.details["limit"] == 2
    assert refused.value.details["running"] == ["mami", "papi"]
    assert "max_running" in str(refused.value) and "mami, papi" in str(refused.value)
    assert (await local.fleet.history("dodo")).total_count == 0
    let_go(local, "papi")
    await local.ended("papi")
    assert (await local.work("dodo", "three")).status == "completed"  # at once, no time between
    let_go(local, "mami")


async def test_a_queued_task_is_pending_until_it_is_its_turn(local: LocalFleet) -> None:
    await made(local, "papi", "mami", "dodo")
    await local.fleet.start("papi", WAIT)
    first = await local.fleet.start("mami", f"{WAIT}; echo x > out", queue=True)
    assert (first.task.status, first.agent_status) == ("pending", "busy")
    assert first.task.started_at is None and "papi" in first.message
    await local.fleet.start("dodo", WAIT, queue=True)
    with pytest.raises(FleetError, match="waits for its turn"):
        await local.fleet.start("mami", "another")
    with pytest.raises(FleetError, match="max_running"):  # nobody overtakes
        await local.create("late")
        await local.fleet.start("late", "now")
    other = local.restarted()
    rows = {row.name: row.status for row in (await other.agents()).agents}
    assert rows == {"papi": "busy", "mami": "busy", "dodo": "busy", "late": "idle"}
    shown = (await other.show("mami")).agent
    assert shown.status == "busy" and shown.current_task
    let_go(local, "papi")
    assert (await local.ended("papi")).status == "completed"

    async def is_its_turn() -> bool:
        return await status(other, "mami") == "running"

    await until(is_its_turn)
    assert await status(other, "dodo") == "pending"
    let_go(local, "mami")
    row = await local.ended("mami")
    assert row.status == "completed" and row.started_at and row.started_at >= row.created_at
    assert git(local.project, "show", "agent/mami:out") == "x"
    let_go(local, "dodo")
    assert (await local.ended("dodo")).status == "completed"
    await other.close()


async def test_a_queued_task_with_room_starts_at_once(local: LocalFleet) -> None:
    await made(local, "papi")
    begun = await local.fleet.start("papi", "write notes.txt text", queue=True)
    assert begun.task.status == "running"
    assert (await local.ended("papi")).status == "completed"


async def test_a_claim_that_is_old_is_still_pending_while_it_waits(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet_agentpack.fleet.reconcile.CLAIM_S", 0.0)
    await made(local, "papi", "mami")
    await local.fleet.start("papi", WAIT)
    await local.fleet.start("mami", "two", queue=True)
    await local.fleet.show("mami")
    assert await status(local.fleet, "mami") == "pending"
    let_go(local, "papi")
    assert (await local.ended("mami")).status == "completed"


async def test_a_waiting_task_can_be_stopped_and_its_agent_deleted(local: LocalFleet) -> None:
    await made(local, "papi", "mami", "dodo")
    await local.fleet.start("papi", WAIT)
    waiting = await local.fleet.start("mami", "write notes.txt two", queue=True)
    await local.fleet.start("dodo", "write notes.txt three", queue=True)
    stopped = await local.fleet.stop("mami")
    assert stopped.task.status == "stopped" and processes_of(waiting.task.id) == []
    await local.fleet.delete("dodo")
    let_go(local, "papi")
    await local.ended("papi")
    assert await status(local.fleet, "mami") == "stopped"
    assert not (local.tree("mami") / "notes.txt").exists()
    assert (await local.work("mami", "write notes.txt four")).status == "completed"


async def test_a_waiting_task_that_is_killed_has_failed_and_holds_nobody_up(
    local: LocalFleet,
) -> None:
    await made(local, "papi", "mami", "dodo")
    await local.fleet.start("papi", WAIT)
    waiting = await local.fleet.start("mami", "two", queue=True)
    await local.fleet.start("dodo", "three", queue=True)
    kill_all_of(waiting.task.id)
    row = await ended(local.restarted(), "mami")
    assert row.status == "failed" and "waited for its turn" in row.summary
    let_go(local, "papi")
    assert (await local.ended("dodo")).status == "completed"


async def test_a_runner_that_is_killed_makes_room(local: LocalFleet) -> None:
    await made(local, "papi", "mami")
    begun = await local.fleet.start("papi", "sleep 60")
    await local.fleet.start("mami", "two", queue=True)
    kill_all_of(begun.task.id)
    assert (await local.ended("mami")).status == "completed"
    assert (await local.ended("papi")).status == "failed"


async def test_other_projects_have_room_of_their_own(local: LocalFleet) -> None:
    path = local.settings.config_path
    assert path
    await made(local, "papi")
    path.write_text(f'{path.read_text()}\n[fleet.projects.other]\npath = "{local.project}"\n')
    fleet = open_fleet(Settings.read(), source="human")
    await fleet.start("papi", WAIT)
    await fleet.create("mami", "other", "coder", "x")
    await fleet.start("mami", "two")
    assert (await ended(fleet, "mami")).status == "completed"
    let_go(local, "papi")
    await fleet.close()


async def test_the_command_line_queues(local: LocalFleet) -> None:
    await made(local, "papi", "mami")
    await local.fleet.start("papi", WAIT)
    assert "fleet start --queue" in command(local, "start", "mami", "two", status=1)
    assert "it waits for papi" in command(local, "start", "--queue", "mami", "two")
    assert "pending" in command(local, "history", "mami")
    assert "pending: two" in command(local, "list")
    let_go(local, "papi")
    assert "completed" in command(local, "wait", "mami")
