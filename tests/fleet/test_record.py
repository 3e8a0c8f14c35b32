"""`pytest -m live --record tests/fleet/test_record.py`: the cassettes made anew, scrubbed."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.fleet.lab.lab import Lab
from tests.fleet.lab.scenarios import SCENARIOS, Scenario, rate_limited
from tests.fleet.lab.tape import Tape
from tests.fleet.stage import CASSETTES

pytestmark = pytest.mark.live


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Path:
    """Where cassettes go: only on request, since other tests replay them."""
    if not request.config.getoption("--record"):
        pytest.skip("cassettes are made anew with --record")
    return CASSETTES


async def record(lab: Lab, scenario: Scenario, folder: Path) -> None:
    tape = Tape(lab, inspect.getdoc(scenario) or "")
    await scenario(tape)
    await tape.save(folder / f"{scenario.__name__}.yaml")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_record(scenario: Scenario, folder: Path, live_coder: Lab | None) -> None:
    if live_coder is None:
        pytest.skip("recordings are made of the lab's own Coder; unset CODER_URL")
    await record(live_coder, scenario, folder)


async def test_record_the_rate_limit(folder: Path, live_coder: Lab | None) -> None:
    if live_coder is None:
        pytest.skip("recordings are made of the lab's own Coder; unset CODER_URL")
    lab = Lab(live_coder.programs, rate_limits=True)
    lab.up()
    try:
        await record(lab, rate_limited, folder)
    finally:
        lab.down()
