"""Puts the fleet together: the chosen engine, the ledger, the service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_agentpack.fleet.backend import Backend
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.models import Source
from fleet_agentpack.fleet.options import TOKEN_VARIABLE, choose_engine, coder_access, fleet_table
from fleet_agentpack.fleet.records import AgentRecords
from fleet_agentpack.fleet.roles import STANDARD_ROLES, Persona
from fleet_agentpack.fleet.service import FleetService
from fleet_agentpack.kit.paths import expand_home
from fleet_agentpack.kit.project import find_project

if TYPE_CHECKING:
    from fleet_agentpack.config import FleetTable, ProjectTable, RoleTable
    from fleet_agentpack.fleet.local.environments import Environment
    from fleet_agentpack.fleet.local.git import Git
    from fleet_agentpack.settings import Settings

# Agents' programs do not inherit these: they have accounts of their own.
OUR_SECRETS = (TOKEN_VARIABLE, "FLEET_AGENTPACK_TOKEN")


def open_fleet(settings: Settings, source: Source) -> FleetService:
    """The fleet service as configured. Raises 503 for settings that cannot be used."""
    table = fleet_table(settings)
    ledger = Ledger(settings.directories.state / "fleet.db")
    if choose_engine(settings, table) == "coder":
        backend = _coder(settings, table, AgentRecords(ledger))
    else:
        backend = _local(settings, table, ledger)
    return FleetService(backend, ledger, source=source, create_timeout_s=table.create_timeout_s)


def _coder(settings: Settings, table: FleetTable, records: AgentRecords) -> Backend:
    from fleet_agentpack.fleet.coder.backend import CoderBackend
    from fleet_agentpack.fleet.coder.client import CoderClient
    from fleet_agentpack.fleet.coder.orders import CoderNames
    from fleet_agentpack.fleet.coder.transport import Connection

    url, token = coder_access(settings)
    coder = table.coder
    role = coder.role_parameter or CoderNames.role_parameter
    names = CoderNames(
        role,
        coder.spec_parameter,
        coder.app_slug,
        coder.projects,
        coder.templates,
        coder.start_stopped,
    )
    return CoderBackend(CoderClient(Connection(url, token)), names, records=records)


def _local(settings: Settings, table: FleetTable, ledger: Ledger) -> Backend:
    if os.name == "nt":
        raise FleetError.unavailable(
            "Agents cannot run on Windows itself; set CODER_URL and CODER_SESSION_TOKEN to run"
            " them in Coder."
        )
    from fleet_agentpack.fleet.local.agents import AgentFolders
    from fleet_agentpack.fleet.local.backend import LocalBackend
    from fleet_agentpack.fleet.local.copies import WorkingCopies
    from fleet_agentpack.fleet.local.environments import DEPTH_VARIABLE, Limits
    from fleet_agentpack.fleet.local.git import Git
    from fleet_agentpack.fleet.local.kept import KeptFiles
    from fleet_agentpack.fleet.local.launching import Launcher
    from fleet_agentpack.fleet.local.programs import DEFAULT_PROGRAM, load_programs
    from fleet_agentpack.fleet.local.projects import LocalProjects, no_projects
    from fleet_agentpack.fleet.local.sandbox import find_sandbox
    from fleet_agentpack.fleet.local.streams import Streams

    environ = {name: value for name, value in settings.environ.items() if name not in OUR_SECRETS}
    state, data = settings.directories.state, settings.directories.data
    git = Git(environ)
    roles = tuple(_persona(name, row) for name, row in table.roles.items())
    kept, locks = KeptFiles(data / "kept"), state / "locks"
    copies = WorkingCopies(data / "agents", kept, locks, git, table.author)
    sandbox = find_sandbox(settings.home, environ) if table.sandbox == "auto" else None
    folders = AgentFolders(state / "agents", Streams(ledger))
    given = environ.get(DEPTH_VARIABLE, "")
    limits = Limits(table.max_agents, table.max_depth, int(given) if given.isdigit() else 0)
    return LocalBackend(
        LocalProjects(
            _environments(settings, table, git),
            roles or STANDARD_ROLES,
            no_projects(settings.no_project),
        ),
        load_programs(table.programs),
        table.program or DEFAULT_PROGRAM,
        folders,
        copies,
        Launcher(sandbox, settings.home, environ, folders, copies, table.commit, limits.depth),
        limits,
    )


def _environments(settings: Settings, table: FleetTable, git: Git) -> dict[str, Environment]:
    """The configured projects; without any, the repository that the project is in."""
    from fleet_agentpack.fleet.local.environments import Environment

    if table.projects:
        return {name: _environment(settings, name, row) for name, row in table.projects.items()}
    repository = git.repository_of(settings.project) if settings.project else None
    # The project may be in a repository of the whole home, which is no project.
    if repository is None or not find_project(str(repository), str(settings.home)).path:
        return {}
    return {repository.name: Environment(repository)}


def _environment(settings: Settings, name: str, row: ProjectTable) -> Environment:
    from fleet_agentpack.fleet.local.environments import Environment

    first, _, last = (row.ports or "0--1").partition("-")
    return Environment(
        _path(settings, name, row.path),
        row.base,
        row.setup,
        row.setup_minutes,
        row.copy,
        row.submodules,
        row.with_changes,
        range(int(first), int(last) + 1),
        row.max_running,
    )


def _path(settings: Settings, name: str, path: str) -> Path:
    expanded = expand_home(path, settings.home)
    if not expanded.is_absolute():
        raise FleetError.unavailable(
            f"{settings.config_path}: fleet.projects.{name}.path must be absolute."
        )
    return expanded


def _persona(name: str, row: RoleTable) -> Persona:
    title, description = row.display_name or name, row.description or ""
    prompt = row.prompt or f"You are the {title}. {description}"
    return Persona(
        name,
        title,
        description,
        prompt,
        row.allow,
        row.network,
        row.program,
        row.model,
        row.max_minutes,
        row.max_cost_usd,
    )
