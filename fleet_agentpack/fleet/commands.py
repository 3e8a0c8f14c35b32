"""`fleet-agentpack fleet …`: the fleet for the person at the terminal."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_agentpack.console.terminal import Paint, ask, is_attended, printable, table
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.results import UNKNOWN, jsonable, to_text
from fleet_agentpack.settings import Settings

if TYPE_CHECKING:
    from fleet_agentpack.fleet import results
    from fleet_agentpack.fleet.service import FleetService

Action = Callable[["FleetService", argparse.Namespace], Awaitable[Any]]
Show = Callable[[Any, Paint], str]

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


def add(parser: argparse.ArgumentParser, name: str) -> None:  # noqa: ARG001
    """Add the fleet's subcommands."""
    actions = parser.add_subparsers(required=True, metavar="COMMAND")
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
    actions: Any, name: str, help_line: str, action: Action, show: Show
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=help_line, description=help_line
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=_handle, action=action, show=show, watch=False)
    return parser


def _agent(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("agent")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise ValueError
    return value


def _handle(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run one command; with `--json` an error is JSON as well."""
    try:
        return asyncio.run(_run(arguments, settings))
    except FleetError as error:
        if not arguments.json:
            raise
        print(to_text(jsonable(error.payload())))
        return 1


async def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    from fleet_agentpack.fleet.engine import open_fleet

    fleet = open_fleet(settings, source="human")
    try:
        _print(await arguments.action(fleet, arguments), arguments)
        while arguments.watch:
            await asyncio.sleep(arguments.interval)
            _print(await arguments.action(fleet, arguments), arguments)
    finally:
        await fleet.close()
    return 0


def _print(result: object, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(to_text(jsonable(result)), flush=True)
        return
    start = CLEAR if arguments.watch and sys.stdout.isatty() else ""
    print(start + arguments.show(result, Paint.for_stream(sys.stdout)), flush=True)
    warnings = getattr(result, "warnings", UNKNOWN)
    for warning in () if warnings is UNKNOWN else warnings:
        print(f"warning: {printable(warning)}", file=sys.stderr)


def _progress(_done: float, _total: float | None, text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


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
    return await fleet.create(arguments.name, arguments.project, arguments.role, spec, _progress)


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
    return await fleet.delete(arguments.agent, _progress)


async def _confirmed(agent: str) -> bool:
    if not is_attended():
        raise FleetError.bad_request("Not a terminal: pass --yes to confirm.")
    question = f"Delete agent '{printable(agent)}' and its workspace?"
    return await asyncio.to_thread(ask, question, sys.stderr)


async def _history(fleet: FleetService, arguments: argparse.Namespace) -> results.TaskHistory:
    return await fleet.history(arguments.agent, arguments.page, arguments.page_size)


async def _roles(fleet: FleetService, arguments: argparse.Namespace) -> results.RoleList:
    return await fleet.roles(arguments.project)


async def _projects(fleet: FleetService, _: argparse.Namespace) -> results.ProjectList:
    return await fleet.projects()


async def _logs(fleet: FleetService, arguments: argparse.Namespace) -> results.Transcript:
    return await fleet.transcript(arguments.agent)


def _agents_table(result: results.AgentList, paint: Paint) -> str:
    rows = [
        [printable(row.name), _coloured(row.status, paint), printable(row.current_task or "")]
        for row in result.agents
    ]
    return table(["AGENT", "STATUS", "TASK"], rows, paint) if rows else "No agents."


def _agent_text(result: results.AgentShown, paint: Paint) -> str:
    agent = result.agent
    rows = [
        ("status", _coloured(agent.status, paint)),
        ("current task", printable(agent.current_task or "-")),
        ("role", printable(agent.role or "-")),
        ("project", printable(agent.project or "-")),
        ("workspace id", agent.workspace_id),
        ("created at", agent.created_at),
        ("updated at", agent.updated_at),
        *(
            (key.removeprefix("fleet_mcp_").replace("_", " "), printable(value))
            for key, value in agent.metadata.items()
        ),
    ]
    head = paint(printable(agent.name), "bold")
    return head + "\n" + "\n".join(f"  {key:<26}{value}" for key, value in rows)


def _history_table(result: results.TaskHistory, paint: Paint) -> str:
    if not result.tasks:
        return f"No tasks on page {result.page} of {result.total_pages}."
    rows = [
        [
            row.created_at,
            _coloured(row.status, paint),
            row.source,
            row.completed_at or "",
            printable(row.summary),
        ]
        for row in result.tasks
    ]
    shown = table(["CREATED", "STATUS", "SOURCE", "COMPLETED", "SUMMARY"], rows, paint)
    return f"{shown}\npage {result.page} of {result.total_pages}, {result.total_count} tasks"


def _roles_table(result: results.RoleList, paint: Paint) -> str:
    rows = [
        [printable(cell) for cell in (row.name, row.display_name, row.description)]
        for row in result.roles
    ]
    return table(["ROLE", "NAME", "DESCRIPTION"], rows, paint) if rows else "No roles."


def _projects_table(result: results.ProjectList, paint: Paint) -> str:
    rows = [
        [printable(cell) for cell in (row.name, row.template_name, row.description)]
        for row in result.projects
    ]
    return table(["PROJECT", "TEMPLATE", "DESCRIPTION"], rows, paint) if rows else "No projects."


def _lines(result: results.Transcript, paint: Paint) -> str:
    return "\n".join(
        f"{paint(line.at or line.who, 'dim')} {printable(line.text)}" for line in result.lines
    )


def _message(result: results.AgentCreated, paint: Paint) -> str:
    return paint(printable(result.message), "green")


def _coloured(status: str, paint: Paint) -> str:
    return paint(status, COLOURS.get(status, "bold"))
