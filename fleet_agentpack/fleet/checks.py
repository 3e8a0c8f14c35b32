"""The fleet's part of `doctor --all`."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.options import choose_engine, coder_access, fleet_table
from fleet_agentpack.fleet.results import AgentList, ProjectList
from fleet_agentpack.kit.checks import Check, failure

if TYPE_CHECKING:
    from fleet_agentpack.config import FleetTable
    from fleet_agentpack.settings import Settings


def checks(settings: Settings) -> Iterable[Check]:
    """The engine, whether it answers, its projects, and the program that agents run."""
    try:
        table = fleet_table(settings)
        engine = choose_engine(settings, table)
        where = coder_access(settings)[0] if engine == "coder" else "this machine"
        found, offered = asyncio.run(_ask(settings))
    except FleetError as error:
        advice = 'correct that setting; [fleet] engine = "local" runs agents on this machine'
        yield failure("fleet", "engine", error, advice)
        return
    yield Check("fleet", "engine", "ok", f"{engine}, on {where}; {found.total_count} agents")
    if offered.projects:
        names = ", ".join(project.name for project in offered.projects)
        yield Check("fleet", "projects", "ok", names)
    else:
        advice = "start the server in a git repository, or add [fleet.projects.NAME] path"
        yield Check("fleet", "projects", "note", "none", advice)
    if engine == "local":
        yield _agent_program(settings, table)
        yield _sandbox(settings, table)


async def _ask(settings: Settings) -> tuple[AgentList, ProjectList]:
    fleet = open_fleet(settings, "human")
    try:
        return await fleet.agents(), await fleet.projects()
    finally:
        await fleet.close()


def _sandbox(settings: Settings, table: FleetTable) -> Check:
    """Which sandbox holds agents' programs here."""
    from fleet_agentpack.fleet.local.sandbox import why_not

    own = "the programs' own means hold"
    program = shutil.which("bwrap", path=settings.environ.get("PATH"))
    if table.sandbox == "off":
        advice = 'remove [fleet] sandbox = "off" to use bubblewrap'
        return Check("fleet", "agent sandbox", "note", f"switched off; {own}", advice)
    if program is None:
        advice = "on Linux, install bubblewrap (bwrap)"
        return Check("fleet", "agent sandbox", "note", f"no bubblewrap; {own}", advice)
    reason = why_not(program)
    if reason is None:
        return Check("fleet", "agent sandbox", "ok", f"bubblewrap: {program}")
    advice = "allow unprivileged user namespaces, where a container or AppArmor forbids them"
    return Check("fleet", "agent sandbox", "note", f"{reason}; {own}", advice)


def _agent_program(settings: Settings, table: FleetTable) -> Check:
    from fleet_agentpack.fleet.local.programs import DEFAULT_PROGRAM, load_programs

    name, programs = table.program or DEFAULT_PROGRAM, load_programs(table.programs)
    if name not in programs:
        detail = f"{name} is not a known program"
        advice = f"set [fleet] program to one of {', '.join(programs)}"
        return Check("fleet", "agent program", "problem", detail, advice)
    command = programs[name].command[0]
    path = shutil.which(command, path=settings.environ.get("PATH"))
    if path:
        return Check("fleet", "agent program", "ok", f"{name}: {path}")
    advice = f"install {command}, or choose another program with [fleet] program"
    return Check("fleet", "agent program", "note", f"{name}: {command} is not installed", advice)
