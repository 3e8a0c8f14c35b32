"""Fleet tests: a stage that is either Coder's recordings or, with the marker `live`, a Coder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.settings import Settings
from tests.cassette import Cassette
from tests.fleet.lab.lab import Lab, Missing, find_programs
from tests.fleet.local_fleet import CONFIG, LocalFleet, repository
from tests.fleet.stage import CASSETTES, HOST, TOKEN, Stage, service

# Taken before any test cleans its environment.
ENVIRON = dict(os.environ)


@pytest.fixture(scope="session")
def live_coder() -> Iterator[Lab | None]:
    """A Coder of our own; None when CODER_URL and CODER_SESSION_TOKEN name another."""
    if ENVIRON.get("CODER_URL") and ENVIRON.get("CODER_SESSION_TOKEN"):
        yield None
        return
    try:
        lab = Lab(find_programs(ENVIRON))
    except Missing as reason:
        pytest.skip(str(reason))
    lab.up()
    yield lab
    lab.down()


@pytest.fixture(params=["recorded", pytest.param("live", marks=pytest.mark.live)])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """A fleet on the cassettes that the test's `cassettes` marker names, or on a live Coder."""
    if request.param == "live":
        request.getfixturevalue("socket_enabled")
        lab: Lab | None = request.getfixturevalue("live_coder")
        url = lab.url if lab else ENVIRON["CODER_URL"]
        token = lab.token if lab else ENVIRON["CODER_SESSION_TOKEN"]
        fleet = service(tmp_path / "fleet.db", url, token, sleep=asyncio.sleep)
        live = Stage(fleet, tmp_path, None, url, token)
        await live.check()
        yield live
        await live.clear()
        await live.close()
        return
    marker = request.node.get_closest_marker("cassettes")
    cassette = Cassette.load(*(CASSETTES / f"{name}.yaml" for name in marker.args))
    fleet = service(tmp_path / "fleet.db")
    with cassette.replay():
        recorded = Stage(fleet, tmp_path, cassette, HOST, TOKEN)
        yield recorded
        await recorded.close()


@pytest.fixture
async def local(
    home: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalFleet]:
    """A machine without Coder, inside a repository called `demo`."""
    project = repository(work / "demo")
    config = home / ".config/fleet-agentpack/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG)
    monkeypatch.chdir(project)
    settings = Settings.read()
    fleet = open_fleet(settings, source="ai_controller")
    machine = LocalFleet(project, fleet, settings)
    yield machine
    for row in (await fleet.agents()).agents:
        if row.status != "idle":  # files may stay, nothing may run
            await fleet.delete(row.name)
    await fleet.close()
