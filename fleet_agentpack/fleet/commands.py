"""`fleet-agentpack fleet …`: the fleet for the person at the terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_agentpack.console.ask import confirm
from fleet_agentpack.console.command import Commands, Console, Handler
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.progress import progress
from fleet_agentpack.console.table import Table
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.files import UnreadableError, read_text

if TYPE_CHECKING:
    from fleet_agentpack.fleet import results
    from fleet_agentpack.fleet.service import FleetService

Command = Callable[["FleetService", Console], Awaitable[None]]

WATCH_S = 2.0
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
}


def add(parser: Parser, name: str) -> None:  # noqa: ARG001
    """Add the fleet's subcommands."""
    commands = Commands(parser)

    def command(name: str, help_line: str, run: Command, example: str, *given: str) -> Parser:
        handler: Handler = lambda console: asyncio.run(_with_fleet(run, console))  # noqa: E731
        added = commands.add(name, help_line, handler, example)
        for argument in given:
            added.add_argument(argument)
        return added

    listing = command("list", "list all agents with status and task", _list, "--watch")
    listing.add_argument("--watch", action="store_true", help="refresh the list until interrupted")
    listing.add_argument("--interval", type=_seconds, default=WATCH_S, metavar="SECONDS")
    command("show", "show one agent in detail", _show, "papi", "agent")
    creating = command(
        "create",
        "create an agent and wait until it is ready",
        _create,
        "papi --project shop --spec 'Keep the build green'",
        "name",
    )
    creating.add_argument("--project", required=True)
    creating.add_argument("--role", default="coder")
    spec = creating.add_mutually_exclusive_group(required=True)
    spec.add_argument("--spec", help="what the agent is for")
    spec.add_argument("--spec-file", type=Path, metavar="FILE", help="read the spec from a file")
    example = "papi 'Fix the login bug'"
    starting = command("start", "give an idle agent a task", _start, example, "agent")
    starting.add_argument("task", nargs="+", help="what to do")
    command("stop", "interrupt an agent's task", _stop, "papi", "agent")
    deleting = command("delete", "delete an agent and its workspace", _delete, "papi", "agent")
    deleting.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    line = "list an agent's tasks, newest first"
    history = command("history", line, _history, "papi --page 2", "agent")
    history.add_argument("--page", type=int, default=1)
    history.add_argument("--page-size", type=int, default=20)
    command("roles", "list the roles of a project", _roles, "shop", "project")
    command("projects", "list the projects that agents can work on", _projects, "")
    command("logs", "show what an agent said", _logs, "papi", "agent")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise ValueError
    return value


async def _with_fleet(command: Command, console: Console) -> None:
    from fleet_agentpack.fleet.engine import open_fleet

    fleet = open_fleet(console.settings, source="human")
    try:
        await command(fleet, console)
    finally:
        await fleet.close()


async def _list(fleet: FleetService, console: Console) -> None:
    given = console.arguments
    while True:
        found = await fleet.agents()
        if given.watch and not console.as_json and sys.stdout.isatty():
            print(CLEAR, end="")
        rows = [(a.name, _coloured(a.status, console), a.current_task or "") for a in found.agents]
        console.answer(found, [Table(["agent", "status", "task"], rows) if rows else "No agents."])
        if not given.watch:
            return
        await asyncio.sleep(given.interval)


async def _show(fleet: FleetService, console: Console) -> None:
    shown = await fleet.show(console.arguments.agent)
    agent = shown.agent
    facts = {
        "status": _coloured(agent.status, console),
        "current task": agent.current_task or "-",
        "role": agent.role or "-",
        "project": agent.project or "-",
        "workspace id": agent.workspace_id,
        "created at": agent.created_at,
        "updated at": agent.updated_at,
    }
    for key, value in agent.metadata.items():
        facts[key.removeprefix("fleet_mcp_").replace("_", " ")] = value
    lines = [(f"  {key:<25}", value) for key, value in facts.items()]
    console.answer(shown, [console.paint(agent.name, "bold"), *lines])


async def _create(fleet: FleetService, console: Console) -> None:
    given = console.arguments
    try:
        spec = read_text(given.spec_file) if given.spec_file else given.spec
    except (OSError, UnreadableError) as error:
        raise FleetError.bad_request(f"The spec file cannot be read: {error}") from error
    with progress() as report:
        created = await fleet.create(given.name, given.project, given.role, spec, report)
    _answer_message(created, console)


async def _start(fleet: FleetService, console: Console) -> None:
    given = console.arguments
    _answer_message(await fleet.start(given.agent, " ".join(given.task)), console)


async def _stop(fleet: FleetService, console: Console) -> None:
    _answer_message(await fleet.stop(console.arguments.agent), console)


async def _delete(fleet: FleetService, console: Console) -> None:
    from fleet_agentpack.fleet.results import AgentDeleted

    agent = console.arguments.agent
    question = f"Delete agent '{agent}' and its workspace?"
    if not console.arguments.yes and not await asyncio.to_thread(
        confirm, question, FleetError.bad_request, sys.stderr
    ):
        _answer_message(AgentDeleted("Nothing was deleted"), console)
        return
    with progress() as report:
        deleted = await fleet.delete(agent, report)
    _answer_message(deleted, console)


async def _history(fleet: FleetService, console: Console) -> None:
    given = console.arguments
    found = await fleet.history(given.agent, given.page, given.page_size)
    rows = [
        (t.created_at, _coloured(t.status, console), t.source, t.completed_at or "", t.summary)
        for t in found.tasks
    ]
    pages = f"page {found.page} of {found.total_pages}"
    table = Table(["created", "status", "source", "completed", "summary"], rows)
    footer = f"{pages}, {found.total_count} tasks"
    console.answer(found, [table, footer] if rows else [f"No tasks on {pages}."])


async def _roles(fleet: FleetService, console: Console) -> None:
    found = await fleet.roles(console.arguments.project)
    rows = [(role.name, role.display_name, role.description) for role in found.roles]
    console.answer(found, [Table(["role", "name", "description"], rows) if rows else "No roles."])


async def _projects(fleet: FleetService, console: Console) -> None:
    found = await fleet.projects()
    rows = [(one.name, one.template_name, one.description) for one in found.projects]
    table = Table(["project", "template", "description"], rows)
    console.answer(found, [table if rows else "No projects."])


async def _logs(fleet: FleetService, console: Console) -> None:
    found = await fleet.transcript(console.arguments.agent)
    lines = [(console.paint(line.at or line.who, "dim"), line.text) for line in found.lines]
    console.answer(found, lines)


def _answer_message(result: results.WithMessage, console: Console) -> None:
    console.answer(result, [console.paint(result.message, "green")])


def _coloured(status: str, console: Console) -> str:
    return console.paint(status, COLOURS.get(status, "bold"))
