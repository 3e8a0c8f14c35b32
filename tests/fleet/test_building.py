"""A build that takes longer than a client waits: answered in time, and finished all the same."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.server import build_server
from tests.fleet.local_fleet import LocalFleet
from tests.fleet.waiting import until

GATED = """#!/bin/sh
case "$*" in *" reset "*) while [ ! -e {gate} ]; do sleep 0.05; done ;; esac
[ -e {broken} ] && exit 1
exec {git} "$@"
"""


class Gate:
    """A git that copies a repository only once it may."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.open, self.broken = folder, folder / "open", folder / "broken"
        folder.mkdir()
        words = {"gate": self.open, "broken": self.broken, "git": shutil.which("git")}
        program = folder / "git"
        program.write_text(GATED.format(**words))
        program.chmod(0o755)


@pytest.fixture
def gate(home: Path) -> Gate:
    return Gate(home / "bin")


def impatient(local: LocalFleet, gate: Gate) -> Settings:
    environ = {**local.settings.environ}
    environ["PATH"] = f"{gate.folder}:{environ['PATH']}"
    fleet = {**local.settings.config["fleet"], "create_timeout_s": 0.2}
    return replace(local.settings, environ=environ, config={"fleet": fleet})


async def call(client: Client[Any], tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments, raise_on_error=False)
    return result.structured_content


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_slow_build_is_answered_in_time_and_goes_on(
    local: LocalFleet, gate: Gate, mode: Any
) -> None:
    new = {"name": "papi", "project": "demo", "spec": "x"}
    async with Client(build_server(impatient(local, gate)), mode=mode) as client:
        error = await call(client, "create_agent", **new)
        assert error["error"] == "unavailable"
        assert error["details"] == {"status": 503, "agent": "papi"}
        assert "Agent 'papi' is still being built, and the build goes on." in error["message"]
        assert 'Call show_agent with agent_name: "papi" in a minute.' in error["message"]
        shown = await call(client, "show_agent", agent_name="papi")
        assert shown["details"] == {"status": 503, "agent": "papi"}
        listed = await call(client, "list_agents")
        assert listed["agents"] == [{"name": "papi", "status": "offline", "current_task": None}]
        again = await call(client, "create_agent", **new)
        assert again["error"] == "bad_request" and "is being built" in again["message"]
        gate.open.touch()

        async def is_idle() -> bool:
            shown = await call(client, "show_agent", agent_name="papi")
            return "agent" in shown and shown["agent"]["status"] == "idle"

        await until(is_idle)
        assert (await call(client, "list_agents"))["total_count"] == 1


async def test_a_build_that_fails_later_is_told_when_the_agent_is_asked_for(
    local: LocalFleet, gate: Gate
) -> None:
    async with Client(build_server(impatient(local, gate))) as client:
        await call(client, "create_agent", name="papi", project="demo", spec="x")
        gate.broken.touch()
        gate.open.touch()

        async def has_failed() -> bool:
            shown = await call(client, "show_agent", agent_name="PAPI")
            return "could not be built" in shown["message"]

        await until(has_failed)
        gate.broken.unlink()
        await call(client, "create_agent", name="papi", project="demo", spec="x")

        async def is_there() -> bool:
            return "agent" in await call(client, "show_agent", agent_name="papi")

        await until(is_there)


def test_clients_that_end_a_call_at_300_s_get_an_answer_before() -> None:
    from fleet_agentpack.config import FleetTable
    from fleet_agentpack.fleet.building import CREATE_TIMEOUT_S

    assert FleetTable().create_timeout_s == CREATE_TIMEOUT_S == 240
