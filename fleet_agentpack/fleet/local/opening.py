"""Puts the local engine together from the settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_agentpack.fleet.backend import Backend
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.options import TOKEN_VARIABLE
from fleet_agentpack.fleet.roles import STANDARD_ROLES, Persona
from fleet_agentpack.kit.paths import expand_home

if TYPE_CHECKING:
    from fleet_agentpack.config import FleetTable, RoleTable
    from fleet_agentpack.settings import Settings

# Not for the programs that agents are: they have accounts of their own.
OUR_SECRETS = (TOKEN_VARIABLE, "FLEET_AGENTPACK_TOKEN")


def open_local(settings: Settings, table: FleetTable) -> Backend:
    """The engine for this machine. Raises 503 for settings that cannot be used."""
    if os.name == "nt":
        raise FleetError.unavailable(
            "Agents cannot run on Windows itself; set CODER_URL and CODER_SESSION_TOKEN to run"
            " them in Coder."
        )
    from fleet_agentpack.fleet.local.agents import AgentFolders
    from fleet_agentpack.fleet.local.backend import LocalBackend
    from fleet_agentpack.fleet.local.programs import DEFAULT_PROGRAM, load_programs
    from fleet_agentpack.fleet.local.projects import LocalProjects
    from fleet_agentpack.fleet.local.worktree import Copies

    environ = {name: value for name, value in settings.environ.items() if name not in OUR_SECRETS}
    state, data = settings.directories.state, settings.directories.data
    return LocalBackend(
        LocalProjects(_paths(settings, table, environ), _personas(table)),
        load_programs(table.programs),
        table.program or DEFAULT_PROGRAM,
        AgentFolders(state / "agents"),
        Copies(data / "agents", data / "kept", state / "locks", environ),
        environ,
    )


def _paths(settings: Settings, table: FleetTable, environ: dict[str, str]) -> dict[str, Path]:
    """The configured projects; without any, the repository that we were started in."""
    if table.projects:
        return {name: _path(settings, name, row.path) for name, row in table.projects.items()}
    from fleet_agentpack.fleet.local.worktree import repository_of

    repository = repository_of(settings.cwd, environ)
    return {repository.name: repository} if repository else {}


def _path(settings: Settings, name: str, path: str) -> Path:
    expanded = expand_home(path, settings.home)
    if not expanded.is_absolute():
        raise FleetError.unavailable(
            f"{settings.config_path}: fleet.projects.{name}.path must be absolute."
        )
    return expanded


def _personas(table: FleetTable) -> tuple[Persona, ...]:
    """The configured roles; without any, the usual three."""
    return tuple(_persona(name, row) for name, row in table.roles.items()) or STANDARD_ROLES


def _persona(name: str, row: RoleTable) -> Persona:
    shown, description = row.display_name or name, row.description or ""
    prompt = row.prompt or f"You are the {shown}. {description}"
    return Persona(name, shown, description, prompt)
