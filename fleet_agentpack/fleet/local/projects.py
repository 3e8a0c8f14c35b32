"""Projects and roles on this machine: from the configuration file or the current repository."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.environments import Environment
from fleet_agentpack.fleet.results import Project, ProjectList, Role
from fleet_agentpack.fleet.roles import Persona

P = ParamSpec("P")
T = TypeVar("T")


def no_projects(reason: str = "") -> str:
    """What to say where there are no projects; the reason is a clause."""
    what = f"There are no projects: {reason}." if reason else "There are no projects."
    return (
        f"{what} Start the server inside a git repository, name one with --project DIR, or add"
        " projects to the configuration file ([fleet.projects.NAME] path)."
    )


def in_thread(method: Callable[P, T]) -> Callable[P, Coroutine[None, None, T]]:
    """A method that works with files and processes, run where it does not hold up the others."""

    @wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, *args, **kwargs)

    return run


@dataclass(frozen=True)
class LocalProjects:
    """The projects and roles that agents can be created for."""

    environments: Mapping[str, Environment]
    personas: Sequence[Persona]
    no_projects_hint: str

    @in_thread
    def projects(self) -> ProjectList:
        """Every project whose directory exists."""
        known = ((name, each.path) for name, each in self.environments.items())
        return ProjectList([_project(name, path) for name, path in known if path.is_dir()])

    @in_thread
    def roles(self, project: str) -> list[Role]:
        """The roles, the same for every project. Raises 404 for an unknown one."""
        self.find(project)
        return [persona.public for persona in self.personas]

    def find(self, project: str) -> tuple[str, Environment]:
        """A project's name and what it is, by name, ignoring case. Raises 404."""
        for name, found in self.environments.items():
            if name.lower() == project.lower():
                if not found.path.is_dir():
                    raise FleetError.not_found(
                        f"Project '{name}' is configured as {found.path}, which is not a"
                        " directory.",
                        project=name,
                    )
                return name, found
        if not self.environments:
            raise FleetError.not_found(self.no_projects_hint, project=project[:80])
        raise FleetError.no_such_project(project, list(self.environments))

    def max_running(self, project: str) -> int | None:
        """How many tasks of a project may run at once; None: any number."""
        found = self.environments.get(project)
        return found.max_running if found else None

    def known(self, role: str) -> Persona | None:
        """A role by its name; None if it is no longer configured."""
        return next((persona for persona in self.personas if persona.name == role), None)

    def persona(self, role: str) -> Persona:
        """A role by its name. Raises 400."""
        known = {persona.name: persona for persona in self.personas}
        if role not in known:
            raise FleetError.bad_request(
                f"There is no role '{role[:80]}'; choose from {', '.join(known)}.",
                field="role",
                roles=list(known),
            )
        return known[role]


def _project(name: str, path: Path) -> Project:
    return Project(
        name=name,
        display_name=name,
        description=f"Directory {path}",
        template_id=str(uuid.uuid5(uuid.NAMESPACE_URL, path.resolve().as_uri())),
        template_name=path.resolve().name,
    )
