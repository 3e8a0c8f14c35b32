"""Projects and roles as Coder has them: templates, and the options of their role parameter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from fleet_agentpack.fleet.coder import models
from fleet_agentpack.fleet.coder.client import CoderClient
from fleet_agentpack.fleet.coder.errors import Invalid, NotFound
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.models import NewAgent
from fleet_agentpack.fleet.results import Project, Role
from fleet_agentpack.fleet.roles import STANDARD_ROLES

SPEC_PARAMETERS = ("agent_spec", "spec", "AI Prompt")
LOOKUPS_AT_ONCE = 8


@dataclass(frozen=True)
class CoderNames:
    """The names that this Coder deployment uses."""

    role_parameter: str = "agent_role"
    spec_parameter: str | None = None  # None: the first usual one that the template has
    app_slug: str | None = None
    projects: Mapping[str, str] = field(default_factory=dict)  # project → template

    @property
    def spec_names(self) -> tuple[str, ...]:
        """The parameters that may hold the spec, best first."""
        return (self.spec_parameter,) if self.spec_parameter else SPEC_PARAMETERS


class CoderProjects:
    """Looks up templates; the parameters of a template version never change, so they are kept."""

    def __init__(self, client: CoderClient, names: CoderNames) -> None:
        self._client = client
        self._names = names
        self._aliases = {template.lower(): name for name, template in names.projects.items()}
        self._parameters: dict[str, dict[str, models.Parameter]] = {}

    @property
    def no_projects_hint(self) -> str:
        """See `Catalogue.no_projects_hint`."""
        return (
            f"None of your Coder templates has the parameter {self._names.role_parameter}. Add it"
            " to one, or name another in the configuration file ([fleet.coder] role_parameter)."
        )

    def project_of(self, template_name: str) -> str:
        """The name of a template's project."""
        return self._aliases.get(template_name.lower(), template_name)

    async def projects(self) -> list[Project]:
        """The templates that have a role parameter: others cannot be used for agents."""
        gate = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def usable(template: models.Template) -> bool:
            async with gate:
                return self._names.role_parameter in await self._parameters_of(template)

        templates = [one for one in await self._client.templates() if not one.deprecated]
        kept = await asyncio.gather(*map(usable, templates))
        return [self._project(one, templates) for one in compress(templates, kept)]

    async def roles(self, project: str) -> list[Role]:
        """The roles that a project offers; none if its template cannot be used for agents."""
        asked = await self._parameters_of(await self._find(project))
        parameter = asked.get(self._names.role_parameter)
        return _roles(parameter) if parameter else []

    async def plan(self, new: NewAgent) -> tuple[models.Template, dict[str, str]]:
        """The template for a new agent and the parameters to give it.

        Raises 404 for an unknown project, 400 for one without such parameters or such a role.
        """
        template = await self._find(new.project)
        asked = await self._parameters_of(template)
        names = self._names
        role = asked.get(names.role_parameter)
        spec = next((name for name in names.spec_names if name in asked), None)
        if role is None or spec is None:
            missing = " or ".join(names.spec_names) if role else names.role_parameter
            raise FleetError.bad_request(
                f"Project '{new.project}' cannot be used for agents: its template"
                f" '{template.name}' has no parameter {missing}.",
                project=new.project,
                template=template.name,
            )
        known = [one.name for one in _roles(role)]
        if new.role not in known:
            raise FleetError.bad_request(
                f"Project '{new.project}' has no role '{new.role[:80]}'; choose from"
                f" {', '.join(known)}.",
                field="role",
                roles=known,
            )
        return template, {role.name: new.role, spec: new.spec}

    async def _find(self, project: str) -> models.Template:
        """The template of a project, by configured name, full name, name, then display name."""
        aliases = {name.lower(): template for name, template in self._names.projects.items()}
        wanted = aliases.get(project.lower(), project).lower()
        templates = await self._client.templates()
        for form in ("full_name", "name", "display_name"):
            found = [one for one in templates if getattr(one, form).lower() == wanted]
            if len(found) == 1:
                return found[0]
            if found:
                choices = ", ".join(one.full_name for one in found)
                raise FleetError.bad_request(
                    f"'{project}' matches several projects: {choices}. Use a full name.",
                    project=project,
                )
        raise FleetError.no_such_project(project, [self.project_of(one.name) for one in templates])

    async def _parameters_of(self, template: models.Template) -> dict[str, models.Parameter]:
        version = template.active_version_id
        if version not in self._parameters:
            try:
                rows = await self._client.rich_parameters(version)
            except (NotFound, Invalid):  # hidden from us, or still being imported
                return {}
            self._parameters[version] = {row.name: row for row in rows}
        return self._parameters[version]

    def _project(self, template: models.Template, all_of: Sequence[models.Template]) -> Project:
        alone = sum(one.name.lower() == template.name.lower() for one in all_of) == 1
        return Project(
            name=self.project_of(template.name) if alone else template.full_name,
            display_name=template.display_name or template.name,
            description=template.description,
            template_id=template.id,
            template_name=template.name,
        )


def _roles(parameter: models.Parameter) -> list[Role]:
    """A role parameter's options; without options, the standard roles."""
    if not parameter.options:
        return [role.public for role in STANDARD_ROLES]
    return [
        Role(option.value, option.name or option.value, option.description)
        for option in parameter.options
    ]
