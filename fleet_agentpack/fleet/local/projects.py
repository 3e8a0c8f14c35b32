"""Projects and roles on this machine: from the configuration file or the current repository."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.results import Project, Role
from fleet_agentpack.fleet.roles import Persona

NO_PROJECTS = (
    "There are no projects. Start the server inside a git repository, or add projects to the"
    " configuration file ([fleet.projects.NAME] path)."
)


class LocalProjects:
    """The projects and roles that agents can be created for."""

    def __init__(self, paths: Mapping[str, Path], personas: Sequence[Persona]) -> None:
        self._paths = paths
        self._personas = personas

    def projects(self) -> list[Project]:
        """Every project whose directory exists."""
        return [_project(name, path) for name, path in self._paths.items() if path.is_dir()]

    def roles(self, project: str) -> list[Role]:
        """The roles, the same for every project. Raises 404 for an unknown one."""
        self.find(project)
        return [persona.public for persona in self._personas]

    def find(self, project: str) -> tuple[str, Path]:
        """A project's name and directory, by name, ignoring case. Raises 404."""
        for name, path in self._paths.items():
            if name.lower() == project.lower():
                if not path.is_dir():
                    raise FleetError.not_found(
                        f"Project '{name}' is configured as {path}, which is not a directory.",
                        project=name,
                    )
                return name, path
        if not self._paths:
            raise FleetError.not_found(NO_PROJECTS, project=project[:80])
        raise FleetError.no_such_project(project, list(self._paths))

    def persona(self, role: str) -> Persona:
        """A role by its name. Raises 400."""
        for persona in self._personas:
            if persona.name == role:
                return persona
        known = [persona.name for persona in self._personas]
        raise FleetError.bad_request(
            f"There is no role '{role[:80]}'; choose from {', '.join(known)}.",
            field="role",
            roles=known,
        )


def _project(name: str, path: Path) -> Project:
    return Project(
        name=name,
        display_name=name,
        description=f"Directory {path}",
        template_id=str(uuid.uuid5(uuid.NAMESPACE_URL, path.resolve().as_uri())),
        template_name=path.resolve().name,
    )
