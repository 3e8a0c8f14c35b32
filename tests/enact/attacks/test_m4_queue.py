"""M4: slow calls that stop everything else."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from fastmcp import Client

from fleet_agentpack.server import build_server
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.queues import AT_ONCE, Queues
from tests.enact.attacks.publisher import NAME, publish
from tests.enact.kit import use_directory

SLEEPS = 45


async def test_slow_runs_stop_nothing_else(home: Path) -> None:
    service = publish(home, scripts={"run": "sleep 60"})
    use_directory(home, home / "registry", execution={"default": "local"})
    service.install(NAME)
    async with Client(build_server(Settings.read())) as client:
        await client.call_tool("enact__list")
        calls = [("eve__tool", {}), ("enact__run", {"tool": NAME})]
        runs = [asyncio.create_task(client.call_tool(*calls[n % 2])) for n in range(SLEEPS)]
        await asyncio.sleep(0.5)
        started = time.monotonic()
        await client.call_tool("enact__list")
        await client.call_tool("fractary_forge_config_get", {"key": "x"}, raise_on_error=False)
        assert time.monotonic() - started < 40  # before the first of them has ended
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


async def test_each_client_and_kind_has_its_own_places() -> None:
    queues = Queues()
    for _ in range(AT_ONCE):
        queues.place("one", "slow").acquire_nowait()
    assert queues.place("one", "slow").value == 0
    assert queues.place("two", "slow").value == queues.place("one", "enact").value == AT_ONCE
    queues.tidy("one", "slow")
    assert queues.place("one", "slow").value == 0  # it is in use
    for client, kind in (("two", "slow"), ("one", "enact")):
        queues.tidy(client, kind)
    assert list(queues._places) == [("one", "slow")]
