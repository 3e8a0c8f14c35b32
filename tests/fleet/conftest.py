"""Fleet tests: a stage that is either Coder's recordings or, with the marker `live`, a Coder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.settings import Settings
from tests.cassette import Cassette
from tests.fleet.here import CONFIG, Here, repository
from tests.fleet.stage import CASSETTES, HOST, TOKEN, Stage, service


@pytest.fixture
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """A fleet on the cassettes that the test's `cassettes` marker names."""
    marker = request.node.get_closest_marker("cassettes")
    cassette = Cassette.load(*(CASSETTES / f"{name}.yaml" for name in marker.args))
    fleet = service(tmp_path / "fleet.db")
    with cassette.replay():
        yield Stage(fleet, tmp_path, cassette, HOST, TOKEN)
        await fleet.close()


@pytest.fixture
async def here(home: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Here]:
    """A machine without Coder, inside a repository called `demo`."""
    project = repository(work / "demo")
    config = home / ".config/fleet-agentpack/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG)
    monkeypatch.chdir(project)
    settings = Settings.read()
    fleet = open_fleet(settings, source="ai_controller")
    machine = Here(project, fleet, settings)
    yield machine
    for row in (await fleet.agents())["agents"]:
        await fleet.delete(row["name"])
    await fleet.close()
