"""Fleet tests: a stage that is either Coder's recordings or, with the marker `live`, a Coder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cassette import Cassette
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
