"""A kill at every step of a start, a stop and a delete, of the server and of the runner.

A step is what Python's audit events show: a file is opened, renamed or removed, a process started,
a signal sent. The process that counts them kills itself at a given one. Every walk has an end: a
process that hangs is killed and fails the test, and so does a walk that never gets through.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local import tasks as local_tasks
from fleet_agentpack.fleet.service import FleetService
from fleet_agentpack.settings import Settings
from tests.fleet.local_fleet import LocalFleet, ended, git
from tests.fleet.test_environments import configured
from tests.fleet.test_local import processes_of
from tests.fleet.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

STEPS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.kill", "os.killpg", "os.fork"}
COUNTER = """
import os, sys
STEPS = {steps!r}
def count(limit):
    seen = alike = 0
    def hook(event, given):
        nonlocal seen, alike
        removes = event in ("os.remove", "os.rmdir") and given[-1] != -1  # within a directory
        if removes or (event == "os.mkdir" and "/objects/" in str(given[0])):
            alike += 1  # one for each object of a repository, which has more after every task
            if alike > 6:
                return
        is_file = event == "open" and isinstance(given[0], str) and given[0] != os.devnull
        writes = is_file and isinstance(given[2], int) and given[2] & 3
        if event in STEPS or event == "subprocess.Popen" or writes:
            seen += 1
            if seen == limit:
                os.kill(os.getpid(), 9)
    sys.addaudithook(hook)
"""
MOST_STEPS = 500  # of one act
HANGS_S = 150.0
Act = Callable[[FleetService], Coroutine[Any, Any, object]]


def in_a_process(act: Act, step: int | None = None) -> int:
    """Do something in a process of its own, which dies at a step if one is given."""
    child = os.fork()
    if child == 0:
        names: dict[str, Any] = {}
        exec(COUNTER.format(steps=STEPS), names)
        try:
            fleet = open_fleet(Settings.read(), source="ai_controller")
            if step is not None:
                names["count"](step)
            asyncio.run(act(fleet))
        finally:
            os._exit(0)
    return child


def ended_by_signal(child: int) -> bool:
    """Whether a process was killed, once it has ended; one that hangs fails the test."""
    deadline = time.monotonic() + HANGS_S
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.WIFSIGNALED(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("it hung")
        time.sleep(0.01)


def killed_at(step: int, act: Act) -> bool:
    """Do something in a process that dies at a step; whether it died."""
    assert step < MOST_STEPS, "it never gets through"
    return ended_by_signal(in_a_process(act, step))


def programs(local: LocalFleet) -> list[str]:
    """The tasks that have a process of a program alive."""
    folders = (local.settings.directories.state / "agents").glob("*/tasks/*")
    return [folder.name for folder in folders if processes_of(folder.name)]


def queued(task: str) -> Act:
    return lambda fleet: fleet.start("papi", task, queue=True)


async def settled(
    local: LocalFleet, *, may_be_queued: bool = False, proof: str = "proof.txt"
) -> None:
    """Whatever happened: at most one program runs, and the agent can be used to the end."""
    fleet = local.restarted()
    if may_be_queued and programs(local):
        await ended(fleet, "papi")
    assert len(programs(local)) <= 1
    shown = (await fleet.show("papi")).agent
    if programs(local):
        assert shown.status == "busy"
    rows = (await fleet.history("papi")).tasks
    assert sum(row.status in ("pending", "running") for row in rows) <= 1
    if any(row.status in ("pending", "running") for row in rows):
        await fleet.stop("papi")
    await until(lambda: programs(local) == [])
    await fleet.start("papi", f"write {proof} it works")
    assert (await ended(fleet, "papi")).status == "completed"
    assert git(local.project, "show", f"agent/papi:{proof}") == "it works"
    rows = (await fleet.history("papi", page_size=100)).tasks
    assert len({row.id for row in rows}) == len(rows)
    assert all(row.status in ("completed", "failed", "stopped") for row in rows)
    await fleet.close()


async def tells_the_truth(local: LocalFleet, asked: str, made: str) -> None:
    """What the history says of a task, and whether its work is on the branch, agree."""
    rows = (await local.fleet.history("papi", page_size=100)).tasks
    mine = [row for row in rows if row.summary.startswith(asked)]
    files = git(local.project, "ls-tree", "-r", "--name-only", "agent/papi").split()
    assert len(mine) <= 1, mine
    if not mine:
        assert made not in files
    elif mine[0].status == "completed":
        assert made in files, mine


WHOLE = pytest.param(None, marks=pytest.mark.slow)


@pytest.mark.parametrize("sample", [3, WHOLE])
async def test_a_server_killed_at_any_step_of_a_start_leaves_one_program_at_most(
    local: LocalFleet, sample: int | None
) -> None:
    await local.create("papi")
    step, survived = 1, False
    while not survived:
        survived = not killed_at(step, lambda fleet: fleet.start("papi", "sleep 60"))
        await settled(local)
        step += 1 if sample is None else 9
        if sample and step > 9 * sample:
            break


@pytest.mark.parametrize("sample", [2, WHOLE])
async def test_a_server_killed_at_any_step_of_a_stop_can_stop_again(
    local: LocalFleet, sample: int | None
) -> None:
    await local.create("papi")
    step, survived = 1, False
    while not survived:
        await local.fleet.start("papi", "sleep 60")
        survived = not killed_at(step, lambda fleet: fleet.stop("papi"))
        await settled(local)
        step += 1 if sample is None else 3
        if sample and step > 3 * sample:
            break


@pytest.mark.parametrize("sample", [3, WHOLE])
async def test_a_server_killed_at_any_step_of_a_delete_can_delete_again(
    local: LocalFleet, sample: int | None
) -> None:
    step, survived = 1, False
    while not survived:
        await local.create("papi")
        (local.tree("papi") / "work.txt").write_text("work")
        await local.fleet.start("papi", "sleep 60")
        survived = not killed_at(step, lambda fleet: fleet.delete("papi"))
        fleet = local.restarted()
        if (await fleet.agents()).agents:
            await fleet.delete("papi")
        await fleet.close()
        assert programs(local) == [] and not local.tree("papi").exists()
        branches = git(local.project, "branch", "--format=%(refname:short)", "--list", "agent/*")
        kept = [git(local.project, "ls-tree", "--name-only", name) for name in branches.split()]
        assert any("work.txt" in names for names in kept), branches
        for name in branches.split():
            git(local.project, "branch", "--quiet", "-D", name)
        step += 1 if sample is None else 25
        if sample and step > 25 * sample:
            break


@pytest.mark.parametrize("sample", [2, WHOLE])
async def test_a_server_killed_at_any_step_of_a_create_can_create_again(
    local: LocalFleet, sample: int | None
) -> None:
    configured(local, 'setup = "echo ready > ready"\nports = "4000-4009"')
    step, survived = 1, False
    while not survived:
        survived = not killed_at(
            step, lambda fleet: fleet.create("papi", "demo", "coder", "Keep it green")
        )
        fleet = local.restarted()
        rows = (await fleet.agents()).agents
        if rows and rows[0].status == "offline":  # it was not set up to its end
            await fleet.delete("papi")
            rows = []
        if not rows:
            await fleet.create("papi", "demo", "coder", "Keep it green")
        assert (local.tree("papi") / "ready").exists()
        await fleet.start("papi", "write proof.txt it works")
        assert (await ended(fleet, "papi")).status == "completed"
        await fleet.delete("papi")
        for name in git(local.project, "branch", "--format=%(refname:short)").split():
            if name.startswith("agent"):
                git(local.project, "branch", "--quiet", "-D", name)
        await fleet.close()
        step += 1 if sample is None else 20
        if sample and step > 20 * sample:
            break


@pytest.mark.parametrize("sample", [1, WHOLE])
async def test_a_server_killed_at_any_step_of_queueing_leaves_no_task_for_ever_pending(
    local: LocalFleet, sample: int | None
) -> None:
    configured(local, "max_running = 1")
    await local.create("papi")
    await local.create("mami")
    step, survived = 1, False
    while not survived:
        await local.fleet.start("mami", "sleep 60")
        survived = not killed_at(step, queued(f"write file-{step}.txt text"))
        fleet = local.restarted()
        claimed = (await fleet.history("papi")).total_count
        await local.fleet.stop("mami")
        await fleet.close()
        await settled(local, may_be_queued=True)
        if survived:
            assert git(local.project, "show", f"agent/papi:file-{step}.txt") == "text"
            assert claimed
        step += 1 if sample is None else 9
        if sample and step > 9 * sample:
            break


@pytest.mark.parametrize("sample", [3, WHOLE])
async def test_a_runner_killed_at_any_step_leaves_no_program_and_no_wrong_end(
    local: LocalFleet, sample: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await local.create("papi")
    boot, step, alive = local_tasks._BOOT, 1, True
    while alive:
        assert step < MOST_STEPS, "it never gets through"
        limit = f"{COUNTER.format(steps=STEPS)}\ncount({step})\n"
        monkeypatch.setattr(local_tasks, "_BOOT", limit + boot)
        name = f"file-{step}.txt"
        try:
            await local.fleet.start("papi", f"write {name} text")
            row = await local.ended("papi")
            alive = row.status == "failed"
        except FleetError as error:
            assert "could not be started" in str(error)
        monkeypatch.setattr(local_tasks, "_BOOT", boot)
        await settled(local)
        if (local.tree("papi") / name).exists():  # what it had written is not lost
            assert git(local.project, "show", f"agent/papi:{name}") == "text"
        step += 1 if sample is None else 4
        if sample and step > 4 * sample:
            break


@pytest.mark.slow
async def test_kills_at_random_moments_of_fifty_runs(local: LocalFleet) -> None:
    await local.create("papi")
    chance = random.Random(15)
    for number in range(50):
        made = f"file-{number}.txt"
        asked = f"write {made} text"
        child = in_a_process(lambda fleet, asked=asked: fleet.start("papi", asked))  # type: ignore[misc]
        await asyncio.sleep(chance.uniform(0, 0.8))
        if chance.random() < 0.5:
            kill_a_program(local, chance)
        os.kill(child, signal.SIGKILL)
        ended_by_signal(child)
        await settled(local)
        await tells_the_truth(local, asked, made)


def kill_a_program(local: LocalFleet, chance: random.Random) -> None:
    """Kill one process of the newest task, if it has any: its runner, sandbox or program."""
    folders = (local.settings.directories.state / "agents").glob("papi/tasks/*")
    newest = max(folders, key=lambda one: one.stat().st_ctime_ns, default=Path("none"))
    if found := processes_of(newest.name):
        with suppress(ProcessLookupError):
            os.kill(chance.choice(found), signal.SIGKILL)
