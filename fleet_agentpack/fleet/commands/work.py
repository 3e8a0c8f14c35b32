"""The commands around an agent's work: see it, merge it, bring it up to date, propose it."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet_agentpack.console.ask import confirm
from fleet_agentpack.console.table import Table
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.process import run

if TYPE_CHECKING:
    from fleet_agentpack.console.command import Console
    from fleet_agentpack.fleet.models import ChangedFile
    from fleet_agentpack.fleet.service import FleetService

OPENERS = ("code", "cursor", "xdg-open", "open")
OPEN_S = 30.0


async def diff(fleet: FleetService, console: Console) -> None:
    """What an agent has changed since it started."""
    work = await fleet.work(console.arguments.agent)
    if console.arguments.stat:
        console.answer(work, [_table(work.files) if work.files else "No changes."])
        return
    console.answer(work, work.diff.splitlines() or ["No changes."])


async def merge(fleet: FleetService, console: Console) -> None:
    """Merge an agent's work, after a question."""
    from fleet_agentpack.fleet.results import WorkMerged

    given = console.arguments
    question = await fleet.finished.merging(given.agent, given.into, given.squash)
    approved = question.digest
    if question.risky and not given.yes:
        files = [name for group in question.groups for name in group.names]
        for line in (question.summary, *(f"  {name}" for name in files[:20])):
            print(line, file=sys.stderr)
        asked = f"{question.agree}?"
        if not await asyncio.to_thread(confirm, asked, FleetError.bad_request, sys.stderr):
            console.answer(WorkMerged("Nothing was merged"), ["Nothing was merged"])
            return
    merged = await fleet.finished.merge(given.agent, given.into, given.squash, approved)
    console.answer(merged, [console.paint(merged.message, "green")])


async def sync(fleet: FleetService, console: Console) -> None:
    """Bring an agent's work on top of its base's newest commit."""
    synced = await fleet.finished.sync(console.arguments.agent)
    console.answer(synced, [console.paint(synced.message, "green")])


async def pull_request(fleet: FleetService, console: Console) -> None:
    """Open a pull request of an agent's work, or say how."""
    proposed = await fleet.finished.propose(console.arguments.agent)
    console.answer(proposed, proposed.message.splitlines())


async def open_directory(fleet: FleetService, console: Console) -> None:
    """Open an agent's directory in the person's editor; without one, print it."""
    work = await fleet.work(console.arguments.agent)
    if work.directory is None:
        raise FleetError.bad_request("This agent's directory is inside its Coder workspace.")
    environ = console.settings.environ
    chosen = shlex.split(environ.get("VISUAL") or "")
    found = next((name for name in OPENERS if shutil.which(name, path=environ.get("PATH"))), None)
    command = chosen or ([found] if found else [])
    if command and not console.arguments.print and not console.as_json and sys.stdout.isatty():
        await asyncio.to_thread(run, [*command, work.directory], timeout_s=OPEN_S)
    console.answer(work, [work.directory])


def _table(files: Sequence[ChangedFile]) -> Table:
    rows = [(one.path, _count(one.added, "+"), _count(one.removed, "-")) for one in files]
    return Table(["file", "added", "removed"], rows)


def _count(number: int | None, sign: str) -> str:
    return "binary" if number is None else f"{sign}{number}"
