"""Agents on this machine: a list beside large logs, and ten agents at once.

    python benchmarks/fleet.py --local

Ten agents are created and given a task all at once, and ten more one after the other. Then there
are fifty: all have done a task, and a few are at work. Their list is measured in turns with empty
logs and with logs of 60 MB each (sparse files), always by a service that has just been opened.
Ends with status 1 if a bound was missed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fleet_agentpack.fleet.awaiting import wait_for
from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.local.streams import Streams
from fleet_agentpack.fleet.service import FleetService, quiet
from fleet_agentpack.settings import Settings
from tests.fleet.local_fleet import CONFIG, repository

AGENTS = 50
AT_ONCE = 10
AT_WORK = 5
LARGE = 60_000_000
ROUNDS = 15
LIST_BOUND = 1.2  # of the same list with empty logs
AT_ONCE_BOUND = 1.0  # of the same agents one after the other
DIRECTORIES = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """How long it takes, in seconds."""
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def made(
    fleet: FleetService, names: list[str], *, at_once: bool = True
) -> tuple[float, float, float]:
    """Create, start and finish these agents; how long each took."""

    async def each(work: Callable[[str], Awaitable[object]]) -> None:
        if at_once:
            await asyncio.gather(*map(work, names))
            return
        for name in names:
            await work(name)

    create = await timed(lambda: each(lambda name: fleet.create(name, "demo", "coder", "x")))
    start = await timed(lambda: each(lambda name: fleet.start(name, "write a.txt hello")))
    finish = await timed(lambda: wait_for(fleet, names, quiet, any_one=False, timeout_s=240))
    return create, start, finish


async def listed(settings: Settings) -> float:
    """One list by a service that has just been opened."""
    fleet = open_fleet(settings, source="human")
    try:
        return await timed(fleet.agents)
    finally:
        await fleet.close()


async def measure_at_once(fleet: FleetService, names: list[str]) -> bool:
    """Agents at once, and as many one after the other; whether the bound holds."""
    create, start, finish = await made(fleet, names[:AT_ONCE])
    alone = await made(fleet, names[AT_ONCE : 2 * AT_ONCE], at_once=False)
    ratio = (create + start) / (alone[0] + alone[1])
    print(f"{AT_ONCE} agents at once on {os.cpu_count()} processors:")
    print(f"  created in {create:.2f} s, started in {start:.2f} s, all done {finish:.2f} s later")
    print(f"  one after the other: created in {alone[0]:.2f} s, started in {alone[1]:.2f} s")
    return held("created and started at once", ratio, AT_ONCE_BOUND)


async def measure_list(settings: Settings) -> bool:
    """The list beside small and large logs, in turns; whether the bound holds."""
    streams = Streams(Ledger(settings.directories.state / "fleet.db"))
    logs = sorted((settings.directories.state / "agents").rglob("output"))
    empty: list[float] = []
    large: list[float] = []
    for number in range(ROUNDS + 2):
        for size, kept in ((0, empty), (LARGE, large)):
            for path in logs:
                resize(streams, path, size)
            taken = await listed(settings)
            if number >= 2:
                kept.append(taken)
    with_empty, with_large = statistics.median(empty), statistics.median(large)
    print(f"list of {AGENTS} agents, {AT_WORK} of them at work, {len(logs)} logs:")
    print(f"  empty {with_empty * 1000:.1f} ms, 60 MB each {with_large * 1000:.1f} ms")
    return held("list beside large logs", with_large / with_empty, LIST_BOUND)


def resize(streams: Streams, log: Path, size: int) -> None:
    """Give a log another size, read to its end as it is when its task has ended."""
    os.truncate(log, size)
    facts = json.dumps(asdict(replace(streams.load(log.parent.name), offset=size)))
    with streams.ledger.writing() as db:
        told = "UPDATE streams SET position = ?, facts = ? WHERE task_id = ?"
        db.execute(told, [size, facts, log.parent.name])


def held(what: str, ratio: float, bound: float) -> bool:
    """Print a ratio with its bound, and whether it holds."""
    print(f"  {what}: {ratio:.2f} (≤ {bound:g}) {'yes' if ratio <= bound else 'NO'}")
    return ratio <= bound


async def measure(settings: Settings) -> bool:
    """Everything; whether all bounds hold."""
    fleet = open_fleet(settings, source="human")
    names = [f"agent-{number}" for number in range(AGENTS)]
    results = [await measure_at_once(fleet, names)]
    for first in range(2 * AT_ONCE, AGENTS, AT_ONCE):
        await made(fleet, names[first : first + AT_ONCE])
    at_work = names[:AT_WORK]
    await asyncio.gather(*(fleet.start(name, "sleep 600") for name in at_work))
    await fleet.agents()
    try:
        results.append(await measure_list(settings))
    finally:
        await asyncio.gather(*(fleet.stop(name) for name in at_work))
        await fleet.close()
    return all(results)


def main() -> int:
    """Measure in a home of its own; the exit status."""
    folder = Path(tempfile.mkdtemp(prefix="fleet-benchmark-"))
    try:
        for name in DIRECTORIES:
            os.environ[name] = str(folder / name.lower())
            Path(os.environ[name]).mkdir()
        os.environ |= {
            f"GIT_{who}_{what}": "a@example.test"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        config = folder / "config.toml"
        config.write_text(CONFIG)
        os.environ["FLEET_AGENTPACK_CONFIG"] = str(config)
        os.environ["FLEET_AGENTPACK_FLEET"] = "local"
        os.chdir(repository(folder / "demo"))
        return 0 if asyncio.run(measure(Settings.read())) else 1
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
