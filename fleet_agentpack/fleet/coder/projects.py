"""Projects and roles as Coder has them: templates, and the options of their role parameter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet_agentpack.fleet.coder import models
from fleet_agentpack.fleet.coder.client import CoderClient
from fleet_agentpack.fleet.coder.errors import Invalid, NotFound
from fleet_agentpack.fleet.errors import FleetError
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


@dataclass(frozen=True)
class AgentTemplate:
    """A template that agents can be made from."""

    template: models.Template
    roles: list[Role]
    role_parameter: str
    spec_parameter: str


class CoderProjects:
    """Looks up templates; the parameters of a template version never change, so they are kept."""

    def __init__(self, client: CoderClient, names: CoderNames) -> None:
        self._client = client
        self._names = names
        self._aliases = {template.lower(): name for name, template in names.projects.items()}
        self._parameters: dict[str, dict[str, models.Parameter]] = {}

    def project_of(self, template_name: str) -> str:
        """The name of a template's project."""
        return self._aliases.get(template_name.lower(), template_name)

    async def projects(self) -> list[Project]:
        """The templates that have a role parameter: others cannot be used for agents."""
        templates = [one for one in await self._client.templates() if not one.deprecated]
        gate = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def usable(template: models.Template) -> bool:
            async with gate:
                return self._names.role_parameter in await self._parameters_of(template)

        kept = await asyncio.gather(*map(usable, templates))
        return [
            self._project(one, templates)
            for one, is_kept in zip(templates, kept, strict=True)
            if is_kept
        ]

    async def roles(self, project: str) -> list[Role]:
        """The roles that a project offers; none if its template cannot be used for agents."""
        template = await self._find(project)
        parameter = (await self._parameters_of(template)).get(self._names.role_parameter)
        return _roles(parameter) if parameter else []

    async def agent_template(self, project: str) -> AgentTemplate:
        """The template of a project. Raises 404, or 400 if it cannot be used for agents."""
        template = await self._find(project)
        asked = await self._parameters_of(template)
        role = asked.get(self._names.role_parameter)
        spec = next((name for name in self._names.spec_names if name in asked), None)
        if role is None or spec is None:
            missing = (
                self._names.role_parameter if role is None else " or ".join(self._names.spec_names)
            )
            raise FleetError.bad_request(
                f"Project '{project}' cannot be used for agents: its template '{template.name}'"
                f" has no parameter {missing}.",
                project=project,
                template=template.name,
            )
        return AgentTemplate(template, _roles(role), role.name, spec)

    async def _find(self, project: str) -> models.Template:
        """The template of a project, by configured name, full name, name, then display name."""
        aliases = {name.lower(): template for name, template in self._names.projects.items()}
        wanted = aliases.get(project.lower(), project).lower()
        templates = await self._client.templates()
        for form in (_full_name, _name, _display_name):
            found = [one for one in templates if form(one) == wanted]
            if len(found) == 1:
                return found[0]
            if found:
                choices = ", ".join(_full_name(one) for one in found)
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
        alone = sum(_name(one) == _name(template) for one in all_of) == 1
        return Project(
            name=self.project_of(template.name) if alone else _full_name(template),
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


def _full_name(template: models.Template) -> str:
    return f"{template.organization_name}/{template.name}".lower()


def _name(template: models.Template) -> str:
    return template.name.lower()


def _display_name(template: models.Template) -> str:
    return template.display_name.lower()
