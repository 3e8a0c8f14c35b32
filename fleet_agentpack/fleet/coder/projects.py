"""Projects and roles as Coder has them: templates, and the options of their role parameter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import compress

from fleet_agentpack.fleet.coder import models
from fleet_agentpack.fleet.coder.client import CoderClient
from fleet_agentpack.fleet.coder.errors import Forbidden, Invalid, NotFound
from fleet_agentpack.fleet.coder.orders import (
    CoderNames,
    TemplateOffer,
    WorkspaceOrder,
    order_for,
)
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.models import NewAgent
from fleet_agentpack.fleet.results import Project, ProjectList, Role
from fleet_agentpack.kit.results import UNKNOWN

LOOKUPS_AT_ONCE = 8


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
            " to one, name another in the configuration file ([fleet.coder] role_parameter), or say"
            " there how to use a template as it is ([fleet.coder.templates.NAME])."
        )

    def project_of(self, template_name: str) -> str:
        """The name of a template's project."""
        return self._aliases.get(template_name.lower(), template_name)

    async def projects(self) -> ProjectList:
        """The templates that agents can be made from; a warning for each that we may not see."""
        gate = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        templates = [one for one in await self._client.templates() if not one.deprecated]
        closed: list[str] = []

        async def usable(template: models.Template) -> bool:
            async with gate:
                try:
                    return (await self._offer(template)).is_usable
                except Forbidden as error:
                    closed.append(f"Template '{template.name}' is left out: {error.report}")
                    return False

        kept = await asyncio.gather(*map(usable, templates))
        projects = [self._project(one, templates) for one in compress(templates, kept)]
        return ProjectList(projects, tuple(sorted(closed)) or UNKNOWN)

    async def roles(self, project: str) -> list[Role]:
        """The roles that a project offers; none if its template cannot be used for agents."""
        return (await self._offer(await self._find(project), with_presets=True)).roles()

    async def plan(self, new: NewAgent) -> WorkspaceOrder:
        """What to ask of Coder for a new agent.

        Raises 404 for an unknown project, 400 for one without such parameters or such a role.
        """
        return order_for(new, await self._offer(await self._find(new.project), with_presets=True))

    async def _offer(
        self, template: models.Template, *, with_presets: bool = False
    ) -> TemplateOffer:
        asked = await self._parameters_of(template)
        has_presets = with_presets and self._names.table_of(template.name) is not None
        version = template.active_version_id
        presets = await self._client.presets(version) if has_presets else []
        return TemplateOffer(template, self._names, asked, presets)

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
