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
from fleet_agentpack.fleet.commands import watching, work
from fleet_agentpack.fleet.commands.watching import coloured
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.files import UnreadableError, read_text

if TYPE_CHECKING:
    from fleet_agentpack.fleet import results
    from fleet_agentpack.fleet.service import FleetService

Command = Callable[["FleetService", Console], Awaitable[int | None]]

WATCH_S = 2.0


def add(parser: Parser, name: str) -> None:  # noqa: ARG001
    """Add the fleet's subcommands."""
    commands = Commands(parser)

    def command(name: str, help_line: str, run: Command, example: str, *given: str) -> Parser:
        handler: Handler = lambda console: asyncio.run(_with_fleet(run, console))  # noqa: E731
        added = commands.add(name, help_line, handler, example)
        for argument in given:
            added.add_argument(argument)
        return added

    listing = command("list", "list all agents with status and task", watching.show_list, "--watch")
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
    creating.add_argument("--from", dest="start", metavar="BRANCH", help="start from this branch")
    creating.add_argument("--program", help="the program that it runs, on this machine")
    creating.add_argument("--model", help="the model that the program uses")
    line = "take the project's uncommitted changes along, as a first commit"
    creating.add_argument("--with-changes", action="store_true", help=line)
    spec = creating.add_mutually_exclusive_group(required=True)
    spec.add_argument("--spec", help="what the agent is for")
    spec.add_argument("--spec-file", type=Path, metavar="FILE", help="read the spec from a file")
    example = "papi 'Fix the login bug'"
    starting = command("start", "give an idle agent a task", _start, example, "agent")
    starting.add_argument("task", nargs="+", help="what to do")
    line = "let the task wait while its project runs as many as it may"
    starting.add_argument("--queue", action="store_true", help=line)
    command("stop", "interrupt an agent's task", _stop, "papi", "agent")
    deleting = command("delete", "delete an agent and its workspace", _delete, "papi", "agent")
    deleting.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    line = "list an agent's tasks, newest first"
    history = command("history", line, watching.show_history, "papi --page 2", "agent")
    history.add_argument("--page", type=int, default=1)
    history.add_argument("--page-size", type=int, default=20)
    command("roles", "list the roles of a project", _roles, "shop", "project")
    command("projects", "list the projects that agents can work on", _projects, "")
    logs = command(
        "logs", "show what an agent said, ran and edited", watching.show_logs, "papi -f", "agent"
    )
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the task ends")
    logs.add_argument("--raw", action="store_true", help="print the program's output as it is")
    line = "wait until agents are no longer busy; status 1 if the time is up"
    waiting = command("wait", line, watching.wait, "papi sony --any")
    waiting.add_argument("agents", nargs="*", help="default: all that are busy")
    waiting.add_argument("--any", action="store_true", help="wait for one of them only")
    waiting.add_argument("--timeout", type=_seconds, default=3600.0, metavar="SECONDS")
    _add_work(command)


def _add_work(command: Callable[..., Parser]) -> None:
    """Add the commands around an agent's work."""
    diff = command("diff", "show what an agent has changed", work.diff, "papi --stat", "agent")
    diff.add_argument("--stat", action="store_true", help="only the files, with counts")
    line = "merge an agent's work; all of it, or nothing"
    merging = command("merge", line, work.merge, "papi --squash", "agent")
    merging.add_argument("--squash", action="store_true", help="as one commit")
    merging.add_argument("--into", metavar="BRANCH", help="default: the branch that it came from")
    merging.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    command("sync", "rebase an agent's work on its base", work.sync, "papi", "agent")
    command("pr", "open a pull request of an agent's work", work.pull_request, "papi", "agent")
    opening = command("open", "open an agent's directory", work.open_directory, "papi", "agent")
    opening.add_argument("--print", action="store_true", help="only print where it is")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise ValueError
    return value


async def _with_fleet(command: Command, console: Console) -> int | None:
    from fleet_agentpack.fleet.engine import open_fleet

    fleet = open_fleet(console.settings, source="human")
    try:
        return await command(fleet, console)
    finally:
        await fleet.close()


async def _show(fleet: FleetService, console: Console) -> None:
    shown = await fleet.show(console.arguments.agent)
    agent = shown.agent
    facts = {
        "status": coloured(agent.status, console),
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
    from fleet_agentpack.fleet.models import Choices

    given = console.arguments
    try:
        spec = read_text(given.spec_file) if given.spec_file else given.spec
    except (OSError, UnreadableError) as error:
        raise FleetError.bad_request(f"The spec file cannot be read: {error}") from error
    with progress() as report:
        created = await fleet.create(
            given.name,
            given.project,
            given.role,
            spec,
            report,
            Choices(given.start, given.program, given.model, given.with_changes),
        )
    _answer_message(created, console)


async def _start(fleet: FleetService, console: Console) -> None:
    given = console.arguments
    started = await fleet.start(given.agent, " ".join(given.task), queue=given.queue)
    _answer_message(started, console)


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


async def _roles(fleet: FleetService, console: Console) -> None:
    found = await fleet.roles(console.arguments.project)
    rows = [(role.name, role.display_name, role.description) for role in found.roles]
    console.answer(found, [Table(["role", "name", "description"], rows) if rows else "No roles."])


async def _projects(fleet: FleetService, console: Console) -> None:
    found = await fleet.projects()
    rows = [(one.name, one.template_name, one.description) for one in found.projects]
    table = Table(["project", "template", "description"], rows)
    console.answer(found, [table if rows else "No projects."])


def _answer_message(result: results.WithMessage, console: Console) -> None:
    console.answer(result, [console.paint(result.message, "green")])
