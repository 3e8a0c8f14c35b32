"""The commands that watch agents: the list, histories, logs, waiting."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from fleet_agentpack.console.command import Console, Line
from fleet_agentpack.console.progress import progress
from fleet_agentpack.console.table import Table
from fleet_agentpack.fleet.arguments import MAX_EXISTING_NAME
from fleet_agentpack.fleet.errors import FleetError

if TYPE_CHECKING:
    from fleet_agentpack.fleet import results
    from fleet_agentpack.fleet.models import Message
    from fleet_agentpack.fleet.readable import OutputReader
    from fleet_agentpack.fleet.service import FleetService
    from fleet_agentpack.kit.results import Maybe

FOLLOW_S = 1.0
CLEAR = "\x1b[H\x1b[J"
COLOURS = {
    "busy": "yellow",
    "idle": "green",
    "offline": "dim",
    "running": "yellow",
    "pending": "yellow",
    "completed": "green",
    "failed": "red",
    "stopped": "dim",
    "said": "green",
    "ran": "yellow",
    "edited": "yellow",
    "user": "bold",
    "agent": "green",
}


async def show_list(fleet: FleetService, console: Console) -> None:
    """List all agents, once or again and again."""
    given = console.arguments
    while True:
        if console.as_json:
            console.answer(await fleet.agents(), [])
        else:
            found = await fleet.overview()
            if given.watch and sys.stdout.isatty():
                print(CLEAR, end="")
            console.answer(found, [_overview(found, console) if found.agents else "No agents."])
        if not given.watch:
            return
        await asyncio.sleep(given.interval)


def _overview(found: results.Overview, console: Console) -> Table:
    rows = [
        (
            row.name,
            coloured(row.status, console),
            row.activity or row.attention,
            "" if row.elapsed_s is None else _duration(row.elapsed_s),
            "" if row.cost_usd is None else f"${row.cost_usd:.2f}",
            row.last_outcome,
        )
        for row in found.agents
    ]
    return Table(["agent", "status", "task", "elapsed", "cost", "last outcome"], rows)


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


async def show_history(fleet: FleetService, console: Console) -> None:
    """List an agent's tasks; those of a deleted agent with their whole results."""
    given = console.arguments
    try:
        found = await fleet.history(given.agent, given.page, given.page_size)
    except FleetError as error:
        gone = str(error.details.get("history") or f"/{given.agent}").rpartition("/")[2]
        if error.kind != "not_found" or (gone == given.agent and not _is_id(gone)):
            raise
        await _past(fleet, console, gone)
        return
    rows = [
        (
            t.created_at,
            coloured(t.status, console),
            t.source,
            _took(t),
            f"${t.cost_usd:.2f}" if isinstance(t.cost_usd, float) else "",
            t.summary,
        )
        for t in found.tasks
    ]
    pages = f"page {found.page} of {found.total_pages}"
    table = Table(["created", "status", "source", "took", "cost", "summary"], rows)
    footer = f"{pages}, {found.total_count} tasks"
    console.answer(found, [table, footer] if rows else [f"No tasks on {pages}."])


def _took(task: results.TaskSummary) -> str:
    """How long a task that is over has worked."""
    if task.started_at is None or task.completed_at is None:
        return ""
    times = (datetime.fromisoformat(at) for at in (task.started_at, task.completed_at))
    began, ended = times
    return _duration(int((ended - began).total_seconds()))


async def _past(fleet: FleetService, console: Console, workspace_id: str) -> None:
    """The tasks of an agent that is gone, with their whole results."""
    past = await fleet.past(workspace_id)
    when = f", deleted {past.deleted_at}" if past.deleted_at else ""
    lines: list[Line] = [console.paint(f"{past.agent_name} ({past.workspace_id}){when}", "bold")]
    for task in past.tasks:
        lines += [
            "",
            f"{task.created_at}  {coloured(task.status, console)}  {task.description}",
            *(task.result or "").splitlines(),
        ]
    console.answer(past, lines)


def _is_id(text: str) -> bool:
    return len(text) > MAX_EXISTING_NAME


async def show_logs(fleet: FleetService, console: Console) -> None:
    """Show what an agent said and did, and go on showing it if so asked."""
    from fleet_agentpack.fleet.readable import OutputReader
    from fleet_agentpack.fleet.results import transcript_of

    given, reader = console.arguments, OutputReader()
    shown: set[str] = set()
    while True:
        is_busy = given.follow and (await fleet.show(given.agent)).agent.status == "busy"
        said = await fleet.said(given.agent)
        news = [one for one in said if one.key not in shown and not (is_busy and one.unfinished)]
        shown |= {one.key for one in news}
        if console.as_json:
            console.answer(transcript_of(news), [])
        else:
            console.stream(line for said in news for line in _log_lines(said, reader, console))
        if not is_busy:
            return
        await asyncio.sleep(FOLLOW_S)


def _log_lines(said: Message, reader: OutputReader, console: Console) -> Iterator[Line]:
    if console.arguments.raw:
        yield said.text
        return
    is_output = said.who in ("output", "errors")
    for kind, text in reader.events(said.text) if is_output else [(said.who, said.text)]:
        label = console.paint(f"{kind:<7}", COLOURS.get(kind, "dim"))
        for number, line in enumerate(text.splitlines() or [""]):
            yield (label if number == 0 else " " * 7, line)


async def wait(fleet: FleetService, console: Console) -> int:
    """Wait for agents; status 1 if the time is up."""
    from fleet_agentpack.fleet.awaiting import wait_for

    given = console.arguments
    with progress() as report:
        found = await wait_for(
            fleet, given.agents, report, any_one=given.any, timeout_s=given.timeout
        )
    done = [
        (
            row.name,
            coloured(row.status, console),
            _known(row.last_outcome) or _known(row.attention),
        )
        for row in found.done
    ]
    busy = [
        (row.name, coloured("busy", console), row.current_task or "") for row in found.still_busy
    ]
    rows = [*done, *busy]
    console.answer(found, [Table(["agent", "status", "task"], rows) if rows else "No busy agents."])
    return 1 if found.timed_out else 0


def _known(text: Maybe[str]) -> str:
    return text if isinstance(text, str) else ""


def coloured(status: str, console: Console) -> str:
    """A status in its colour."""
    return console.paint(status, COLOURS.get(status, "bold"))
