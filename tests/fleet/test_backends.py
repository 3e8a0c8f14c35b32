"""What holds on every engine: the same story on a Coder in memory and on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.service import FleetService
from fleet_agentpack.kit.results import jsonable
from tests.fleet.fakecoder import FakeCoder, fleet_of
from tests.fleet.local_fleet import LocalFleet
from tests.fleet.stage import service

# The contract's fields in the contract's order.
AGENT = [
    "name",
    "workspace_id",
    "status",
    "role",
    "project",
    "spec",
    "current_task",
    "created_at",
    "updated_at",
    "metadata",
]
TASK = [
    "id",
    "agent_name",
    "summary",
    "status",
    "source",
    "created_at",
    "started_at",
    "completed_at",
]
HISTORY = ["tasks", "total_count", "page", "page_size", "total_pages"]


@dataclass
class Engine:
    """A fleet with one idle agent."""

    fleet: FleetService
    agent: str


@pytest.fixture(params=["coder", "local"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, local: LocalFleet
) -> AsyncIterator[Engine]:
    if request.param == "coder":
        fleet = service(tmp_path / "fleet.db", transport=FakeCoder(fleet_of(1)))
        yield Engine(fleet, "agent-0")
        await fleet.close()
        return
    await local.create("agent-0")
    yield Engine(local.fleet, "agent-0")


async def status_of(work: Any) -> int:
    with pytest.raises(FleetError) as caught:
        await work
    payload = caught.value.payload()
    assert set(payload) == {"error", "message", "details"}
    return int(payload["details"]["status"])


async def test_a_task_from_start_to_stop(engine: Engine) -> None:
    fleet, name = engine.fleet, engine.agent
    idle = jsonable(await fleet.show(name))["agent"]
    assert list(idle) == AGENT and (idle["status"], idle["current_task"]) == ("idle", None)
    started = jsonable(await fleet.start(name, "sleep 60"))
    assert list(started) == ["task", "agent_status", "message"]
    asked = [name for name in TASK if name not in ("source", "completed_at")]
    assert list(started["task"]) == asked
    busy = jsonable(await fleet.show(name))["agent"]
    assert (busy["status"], busy["current_task"]) == ("busy", "sleep 60")
    assert await status_of(fleet.start(name, "more")) == 409
    (row,) = jsonable(await fleet.agents())["agents"]
    assert row == {"name": name, "status": "busy", "current_task": "sleep 60"}
    (running,) = jsonable(await fleet.history(name))["tasks"]
    assert list(running) == TASK
    assert (running["status"], running["completed_at"]) == ("running", None)
    stopped = jsonable(await fleet.stop(name.upper()))
    assert list(stopped) == ["task", "agent_status", "message"]
    assert list(stopped["task"]) == TASK and stopped["agent_status"] == "idle"
    assert stopped["task"]["id"] == started["task"]["id"]
    assert stopped["task"]["status"] == "stopped" and stopped["task"]["completed_at"]
    assert await status_of(fleet.stop(name)) == 400
    assert jsonable(await fleet.show(name))["agent"]["status"] == "idle"
    again = jsonable(await fleet.start(name, "sleep 60"))
    assert again["task"]["id"] != started["task"]["id"]
    history = jsonable(await fleet.history(name, page_size=1))
    assert list(history) == HISTORY
    assert (history["total_count"], history["total_pages"]) == (2, 2)
    await fleet.stop(name)


async def test_a_busy_agent_names_the_task_that_keeps_it_busy(engine: Engine) -> None:
    started = await engine.fleet.start(engine.agent, "sleep 60")
    with pytest.raises(FleetError) as caught:
        await engine.fleet.start(engine.agent, "more")
    assert caught.value.details["task_id"] == started.task.id
    assert "sleep 60" in str(caught.value)
    await engine.fleet.stop(engine.agent)


@pytest.mark.parametrize(("asked", "size"), [(1000, 100), (101, 100), (100, 100), (0, 1), (-5, 1)])
async def test_a_page_has_one_to_a_hundred_tasks(engine: Engine, asked: int, size: int) -> None:
    assert (await engine.fleet.history(engine.agent, page_size=asked)).page_size == size


async def test_what_is_refused_is_refused_alike(engine: Engine) -> None:
    fleet, name = engine.fleet, engine.agent
    assert await status_of(fleet.show("nobody")) == 404
    assert await status_of(fleet.start("nobody", "x")) == 404
    assert await status_of(fleet.delete("../..")) == 404
    assert await status_of(fleet.start(name, "  ")) == 400
    assert await status_of(fleet.start(name, "x" * 100_001)) == 400
    assert await status_of(fleet.history(name, page=0)) == 400
    assert await status_of(fleet.create("bad_name", "demo", "coder", "x")) == 400
    assert (await fleet.history(name, page=7)).tasks == []
