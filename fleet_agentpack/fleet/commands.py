"""`fleet-agentpack fleet …`: the fleet for the person at the terminal."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from fleet_agentpack.console.ask import confirm
from fleet_agentpack.console.command import Commands, Console, Line
from fleet_agentpack.console.progress import progress
from fleet_agentpack.console.table import Table
from fleet_agentpack.console.text import Paint, printable
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.files import UnreadableError, read_text

if TYPE_CHECKING:
    from fleet_agentpack.fleet import results
    from fleet_agentpack.fleet.service import FleetService

R = TypeVar("R")
Work = Callable[["FleetService", argparse.Namespace], Awaitable[R]]
Show = Callable[[R, Paint], Iterable[Line]]

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


class Told(Protocol):
    """A result whose message says what was done."""

    @property
    def message(self) -> str:
        """One sentence."""


def add(parser: argparse.ArgumentParser, name: str) -> None:  # noqa: ARG001
    """Add the fleet's subcommands."""
    actions = Commands(parser)
    listing = _action(actions, "list", "all agents: status and task", _list, _agents_table)
    listing.add_argument(
        "--watch", action="store_true", help="keep the table up to date until interrupted"
    )
    listing.add_argument("--interval", type=_seconds, default=WATCH_S, metavar="SECONDS")
    _agent(_action(actions, "show", "one agent in detail", _show, _agent_text))
    creating = _action(actions, "create", "make an agent and wait for it", _create, _message)
    creating.add_argument("name")
    creating.add_argument("--project", required=True)
    creating.add_argument("--role", default="coder")
    spec = creating.add_mutually_exclusive_group(required=True)
    spec.add_argument("--spec", help="what the agent is for")
    spec.add_argument("--spec-file", type=Path, metavar="FILE", help="the same from a file")
    starting = _agent(_action(actions, "start", "give an idle agent a task", _start, _message))
    starting.add_argument("task", nargs="+", help="what to do")
    _agent(_action(actions, "stop", "interrupt an agent's task", _stop, _message))
    deleting = _agent(_action(actions, "delete", "remove an agent", _delete, _message))
    deleting.add_argument("--yes", action="store_true", help="do not ask")
    history = _agent(_action(actions, "history", "an agent's tasks", _history, _history_table))
    history.add_argument("--page", type=int, default=1)
    history.add_argument("--page-size", type=int, default=20)
    roles = _action(actions, "roles", "the roles of a project", _roles, _roles_table)
    roles.add_argument("project")
    _action(actions, "projects", "what agents can work on", _projects, _projects_table)
    _agent(_action(actions, "logs", "what an agent said", _logs, _lines))


def _action(
    commands: Commands, name: str, help_line: str, work: Work[R], show: Show[R]
) -> argparse.ArgumentParser:
    def run(console: Console) -> None:
        asyncio.run(_run(console, work, show))

    return commands.add(name, help_line, run)


def _agent(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("agent")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise ValueError
    return value


async def _run(console: Console, work: Work[R], show: Show[R]) -> None:
    from fleet_agentpack.fleet.engine import open_fleet

    given = console.arguments
    watch = getattr(given, "watch", False)
    fleet = open_fleet(console.settings, source="human")
    try:
        while True:
            result = await work(fleet, given)
            if watch and not console.as_json and sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            console.answer(result, show(result, console.paint))
            if not watch:
                return
            await asyncio.sleep(given.interval)
    finally:
        await fleet.close()


async def _list(fleet: FleetService, _: argparse.Namespace) -> results.AgentList:
    return await fleet.agents()


async def _show(fleet: FleetService, arguments: argparse.Namespace) -> results.AgentShown:
    return await fleet.show(arguments.agent)


async def _create(fleet: FleetService, arguments: argparse.Namespace) -> results.AgentCreated:
    spec = arguments.spec
    if arguments.spec_file:
        try:
            spec = read_text(arguments.spec_file)
        except (OSError, UnreadableError) as error:
            raise FleetError.bad_request(f"The spec file cannot be read: {error}") from error
    with progress() as report:
        return await fleet.create(arguments.name, arguments.project, arguments.role, spec, report)


async def _start(fleet: FleetService, arguments: argparse.Namespace) -> results.TaskStarted:
    return await fleet.start(arguments.agent, " ".join(arguments.task))


async def _stop(fleet: FleetService, arguments: argparse.Namespace) -> results.TaskStopped:
    return await fleet.stop(arguments.agent)


async def _delete(
    fleet: FleetService, arguments: argparse.Namespace
) -> results.AgentDeleted | results.DeletionDeclined:
    if not arguments.yes and not await _confirmed(arguments.agent):
        from fleet_agentpack.fleet.results import DeletionDeclined

        return DeletionDeclined()
    with progress() as report:
        return await fleet.delete(arguments.agent, report)


async def _confirmed(agent: str) -> bool:
    question = f"Delete agent '{printable(agent)}' and its workspace?"
    return await asyncio.to_thread(confirm, question, FleetError.bad_request, sys.stderr)


async def _history(fleet: FleetService, arguments: argparse.Namespace) -> results.TaskHistory:
    return await fleet.history(arguments.agent, arguments.page, arguments.page_size)


async def _roles(fleet: FleetService, arguments: argparse.Namespace) -> results.RoleList:
    return await fleet.roles(arguments.project)


async def _projects(fleet: FleetService, _: argparse.Namespace) -> results.ProjectList:
    return await fleet.projects()


async def _logs(fleet: FleetService, arguments: argparse.Namespace) -> results.Transcript:
    return await fleet.transcript(arguments.agent)


def _agents_table(result: results.AgentList, paint: Paint) -> Iterator[Line]:
    rows = [
        [row.name, _coloured(row.status, paint), row.current_task or ""] for row in result.agents
    ]
    yield Table(["agent", "status", "task"], rows) if rows else "No agents."


def _agent_text(result: results.AgentShown, paint: Paint) -> Iterator[Line]:
    agent = result.agent
    yield paint(agent.name, "bold")
    facts = {
        "status": _coloured(agent.status, paint),
        "current task": agent.current_task or "-",
        "role": agent.role or "-",
        "project": agent.project or "-",
        "workspace id": agent.workspace_id,
        "created at": agent.created_at,
        "updated at": agent.updated_at,
    }
    for key, value in agent.metadata.items():
        facts[key.removeprefix("fleet_mcp_").replace("_", " ")] = value
    for key, value in facts.items():
        yield f"  {key:<25}", value


def _history_table(result: results.TaskHistory, paint: Paint) -> Iterator[Line]:
    if not result.tasks:
        yield f"No tasks on page {result.page} of {result.total_pages}."
        return
    rows = [
        [
            row.created_at,
            _coloured(row.status, paint),
            row.source,
            row.completed_at or "",
            row.summary,
        ]
        for row in result.tasks
    ]
    yield Table(["created", "status", "source", "completed", "summary"], rows)
    yield f"page {result.page} of {result.total_pages}, {result.total_count} tasks"


def _roles_table(result: results.RoleList, _paint: Paint) -> Iterator[Line]:
    rows = [[row.name, row.display_name, row.description] for row in result.roles]
    yield Table(["role", "name", "description"], rows) if rows else "No roles."


def _projects_table(result: results.ProjectList, _paint: Paint) -> Iterator[Line]:
    rows = [[row.name, row.template_name, row.description] for row in result.projects]
    yield Table(["project", "template", "description"], rows) if rows else "No projects."


def _lines(result: results.Transcript, paint: Paint) -> Iterator[Line]:
    for line in result.lines:
        yield paint(line.at or line.who, "dim"), line.text


def _message(result: Told, paint: Paint) -> Iterator[Line]:
    yield paint(result.message, "green")


def _coloured(status: str, paint: Paint) -> str:
    return paint(status, COLOURS.get(status, "bold"))
