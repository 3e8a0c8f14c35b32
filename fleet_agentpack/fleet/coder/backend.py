"""Coder's words into the fleet's: workspaces are agents, AgentAPI is where they take tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from fleet_agentpack.fleet.backend import Progress
from fleet_agentpack.fleet.coder import errors, models
from fleet_agentpack.fleet.coder.builds import BuildWatch
from fleet_agentpack.fleet.coder.client import CoderClient, app_path, at_once
from fleet_agentpack.fleet.coder.listing import ListPage
from fleet_agentpack.fleet.coder.projects import Blueprint, CoderProjects, Names
from fleet_agentpack.fleet.coder.sighting import agent_app, glance, sighting
from fleet_agentpack.fleet.coder.translate import as_fleet_errors, described, unavailable
from fleet_agentpack.fleet.errors import FleetError, UnconfirmedError
from fleet_agentpack.fleet.models import Glance, Line, Order, Project, Role, Sighting, Task

ESCAPE = "\x1b"  # the one key that interrupts a program behind AgentAPI
METADATA_PREFIX = "fleet_mcp_"
KEPT_BUILDS = 5000


@dataclass(frozen=True)
class Patience:
    """How long the slow things may take."""

    create_s: float = 600.0
    delete_s: float = 300.0
    stop_s: float = 30.0
    poll_s: float = 1.0
    stop_poll_s: float = 0.3


class CoderBackend:
    """Agents in Coder workspaces of the token's user."""

    def __init__(
        self,
        client: CoderClient,
        names: Names,
        *,
        patience: Patience | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._names = names
        self._patience = patience or Patience()
        self._sleep = sleep
        self._now = now
        self._projects = CoderProjects(client, names)
        self._builds = BuildWatch(client, self._patience.poll_s, sleep)
        self._parameters: dict[str, dict[str, str]] = {}  # by build, where they never change
        self._agents: set[str] = set()  # workspaces listed as agents

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    @property
    def without_projects(self) -> str:
        """See `Catalogue.without_projects`."""
        return (
            f"No Coder template of yours has the parameter {self._names.role_parameter}. Add it to"
            " one, or name another in the configuration file ([fleet.coder] role_parameter)."
        )

    async def projects(self) -> list[Project]:
        """See `Catalogue.projects`."""
        with as_fleet_errors():
            return await self._projects.projects()

    async def roles(self, project: str) -> list[Role]:
        """See `Catalogue.roles`."""
        with as_fleet_errors():
            return await self._projects.roles(project)

    async def all(self) -> list[Glance]:
        """See `Workspaces.all`: one request per 100 agents."""
        looked_at = self._now()
        query = f"owner:me param:{self._names.role_parameter}"
        with as_fleet_errors():
            pages = await self._client.workspaces(query)
        # By id: what moved from one page to the next meanwhile is there twice.
        fleet = {
            row.id: glance(row, partial(self._listed, page, row.id, looked_at))
            for page in pages
            for row in page.rows
        }
        self._agents = set(fleet)
        return list(fleet.values())

    async def look(self, name: str, *, closely: bool) -> Sighting:
        """See `Workspaces.look`: two requests, closely at most four."""
        looked_at = self._now()
        with as_fleet_errors():
            try:
                workspace = await self._client.workspace(name)
            except errors.NotFound as error:
                raise FleetError.no_such_agent(name) from error
            seen = self._sighting(workspace, looked_at)
            if not (closely and seen.online):
                return _with_parameters(seen, await self._agent_parameters(seen), self._names)
            if workspace.id not in self._agents:
                # Nothing is asked inside a workspace that may be somebody's own.
                await self._agent_parameters(seen)
            inside = at_once(self._metadata(seen), self._activity(seen))
            try:
                # A stranger is 404, whatever came of the other two questions.
                parameters = await self._agent_parameters(seen)
                (values, metadata_warnings), activity = await inside
            finally:
                inside.cancel()
        seen = replace(
            seen, metadata=values, activity=activity[0], warnings=metadata_warnings + activity[1]
        )
        return _with_parameters(seen, parameters, self._names)

    async def create(self, order: Order, report: Progress) -> Sighting:
        """See `Workspaces.create`."""
        with as_fleet_errors():
            blueprint = await self._blueprint(order)
            values = {
                blueprint.role_parameter: order.role,
                blueprint.spec_parameter: order.spec,
            }
            report(0, None, f"Creating workspace '{order.name}' from {blueprint.template.name}")
            workspace = await self._post(order, blueprint, values)
            if _nobody_builds(workspace):
                report(0, None, "Coder has no provisioner for this template; waiting for one")
            self._remember(workspace.latest_build.id, values)
            try:
                async with asyncio.timeout(self._patience.create_s):
                    workspace = await self._builds.until_ready(workspace, report)
            except TimeoutError as error:
                raise FleetError.unavailable(
                    f"Workspace '{order.name}' was not ready within {self._patience.create_s:g} s."
                    " Its build goes on; show_agent tells how it is.",
                    workspace_id=workspace.id,
                ) from error
        seen = self._sighting(workspace, self._now())
        return _with_parameters(seen, values, self._names)

    async def delete(self, seen: Sighting, report: Progress) -> str | None:
        """See `Workspaces.delete`."""
        workspace: models.Workspace = seen.handle
        try:
            with as_fleet_errors():
                async with asyncio.timeout(self._patience.delete_s):
                    await self._builds.destroy(workspace, report)
        except TimeoutError as error:
            raise FleetError.unavailable(
                f"Workspace '{seen.name}' was not deleted within {self._patience.delete_s:g} s;"
                " the deletion may still be going on.",
                workspace_id=workspace.id,
            ) from error
        return None

    async def ask(self, seen: Sighting) -> Sighting:
        """See `Work.ask`."""
        activity, warnings = await self._activity(seen, required=True)
        return replace(seen, activity=activity, warnings=seen.warnings + warnings)

    async def send(self, seen: Sighting, task: Task) -> None:
        """See `Work.send`."""
        app = self._app(seen)
        with as_fleet_errors():
            try:
                await self._client.agent_message(app, task.description, "user")
            except errors.NotConnected:
                raise
            except errors.Unreachable as error:
                await self._check_arrival(seen, error)
            except errors.CoderError as error:
                # AgentAPI answers 500 whatever its reason is; whether it is at work tells which.
                if error.status == 500 and await self._is_running(app):
                    raise FleetError.conflict(
                        f"Agent '{seen.name}' is at work already. Wait for its end or call"
                        " stop_agent_task.",
                        agent_name=seen.name,
                        **described(error),
                    ) from error
                raise unavailable(error, f"Agent '{seen.name}' did not take the task") from error

    async def interrupt(self, seen: Sighting, task: Task) -> None:  # noqa: ARG002
        """See `Work.interrupt`: ESC, then wait for AgentAPI to be stable."""
        app = self._app(seen)
        with as_fleet_errors():
            await self._client.agent_message(app, ESCAPE, "raw")
            try:
                async with asyncio.timeout(self._patience.stop_s):
                    while await self._is_running(app):
                        await self._sleep(self._patience.stop_poll_s)
            except TimeoutError as error:
                raise FleetError.unavailable(
                    f"Agent '{seen.name}' was interrupted but is still at work after"
                    f" {self._patience.stop_s:g} s.",
                    agent_name=seen.name,
                ) from error

    async def transcript(self, seen: Sighting) -> list[Line]:
        """See `Work.transcript`."""
        with as_fleet_errors():
            messages = await self._client.agent_messages(self._app(seen))
        return [Line(row.role, row.content.rstrip(), row.time) for row in messages]

    async def _blueprint(self, order: Order) -> Blueprint:
        try:
            blueprint = await self._projects.blueprint(order.project)
        except FleetError as error:
            if error.kind != "not_found":
                raise
            raise FleetError.bad_request(str(error), field="project") from error
        known = [role.name for role in blueprint.roles]
        if order.role not in known:
            raise FleetError.bad_request(
                f"Project '{order.project}' has no role '{order.role[:80]}'; choose from"
                f" {', '.join(known)}.",
                field="role",
                roles=known,
            )
        return blueprint

    async def _post(
        self, order: Order, blueprint: Blueprint, values: dict[str, str]
    ) -> models.Workspace:
        """Ask for the workspace; an answer that got lost is looked for, never asked for twice."""
        try:
            return await self._client.create_workspace(order.name, blueprint.template, values)
        except errors.Conflict as error:
            raise await self._name_taken(order.name, error) from error
        except errors.Invalid as error:
            raise FleetError.bad_request(
                f"Coder refuses to create '{order.name}': {error}", **described(error)
            ) from error
        except errors.NotConnected:
            raise
        except (errors.Unreachable, errors.Broken) as error:
            try:
                made = await self._client.workspace(order.name)
                if await self._client.parameters(made.latest_build.id) == values:
                    return made
            except errors.CoderError:
                pass
            raise unavailable(error, f"Whether '{order.name}' was created is not known") from error

    async def _name_taken(self, name: str, error: errors.CoderError) -> FleetError:
        """The seed's 400 where Coder says 409, with the state of what has the name."""
        try:
            seen = self._sighting(await self._client.workspace(name), self._now())
            state = f" Its workspace is {seen.state}."
        except errors.CoderError:
            state = ""
        return FleetError.bad_request(
            f"An agent or workspace called '{name}' already exists.{state} Choose another name or"
            " delete it first.",
            field="name",
            **described(error),
        )

    async def _agent_parameters(self, seen: Sighting) -> dict[str, str]:
        """The parameters of an agent's build. Raises 404 for a workspace that is not an agent."""
        values = self._parameters.get(seen.build)
        if values is None:
            values = await self._client.parameters(seen.build)
            if self._names.role_parameter not in values:
                raise FleetError.no_such_agent(seen.name)
            self._remember(seen.build, values)
        return values

    def _remember(self, build_id: str, values: dict[str, str]) -> None:
        if len(self._parameters) >= KEPT_BUILDS:
            self._parameters.clear()
        self._parameters[build_id] = values

    async def _metadata(self, seen: Sighting) -> tuple[dict[str, str], tuple[str, ...]]:
        """The `fleet_mcp_*` values that an agent has collected."""
        agent = seen.handle.agent()
        try:
            rows = await self._client.metadata(agent.id)
        except errors.Unauthorized:
            raise
        except errors.CoderError as error:
            return {}, (f"The agent's metadata could not be read: {error}",)
        collected = {
            row.description.key: row.result.value
            for row in rows
            if row.result.value and row.result.collected_at.year > 1
        }
        return {k: v for k, v in collected.items() if k.startswith(METADATA_PREFIX)}, ()

    async def _activity(
        self, seen: Sighting, *, required: bool = False
    ) -> tuple[Literal["running", "stable"] | None, tuple[str, ...]]:
        """AgentAPI's word; when it is not required, its silence is only worth a warning."""
        try:
            return ("running" if await self._is_running(self._app(seen)) else "stable"), ()
        except errors.Unauthorized as error:
            raise unavailable(error) from error
        except errors.CoderError as error:
            told = f"AgentAPI of agent '{seen.name}' does not answer"
            if required:
                raise unavailable(error, told, agent_name=seen.name) from error
            return None, (f"{told}: {error}",)
        except FleetError as error:
            if required:
                raise
            return None, (str(error),)

    async def _is_running(self, app: str) -> bool:
        return await self._client.agent_status(app) == "running"

    async def _check_arrival(self, seen: Sighting, error: errors.CoderError) -> None:
        """After a message without an answer: did it arrive?"""
        told = f"Whether agent '{seen.name}' got the task is not known: {error}"
        try:
            running = await self._is_running(self._app(seen))
        except errors.CoderError:
            raise UnconfirmedError("unavailable", told, agent_name=seen.name) from error
        if not running:
            raise unavailable(error, f"Agent '{seen.name}' did not take the task") from error

    def _app(self, seen: Sighting) -> str:
        workspace: models.Workspace = seen.handle
        agent = workspace.agent()
        app = agent_app(agent, self._names.app_slug)
        if agent is None or app is None:
            raise FleetError.unavailable(
                f"Workspace '{seen.name}' has no AgentAPI app; name it in [fleet.coder] app_slug.",
                agent_name=seen.name,
            )
        return app_path(workspace, agent, app.slug)

    def _listed(self, page: ListPage, workspace_id: str, looked_at: datetime) -> Sighting:
        with as_fleet_errors():
            return self._sighting(self._client.in_full(page, workspace_id), looked_at)

    def _sighting(self, workspace: models.Workspace, looked_at: datetime) -> Sighting:
        project = self._projects.project_of(workspace.template_name)
        return sighting(workspace, project, looked_at, self._names.app_slug)


def _with_parameters(seen: Sighting, parameters: dict[str, str], names: Names) -> Sighting:
    """The agent with its role and spec, which only the build's parameters hold in full."""
    spec = next((parameters[name] for name in names.spec_names if name in parameters), None)
    if spec is None:
        spec = seen.metadata.get("fleet_mcp_agent_spec", "")
    return replace(seen, role=parameters.get(names.role_parameter, ""), spec=spec)


def _nobody_builds(workspace: models.Workspace) -> bool:
    """Whether a create was answered with a job that no provisioner can take."""
    matched = workspace.latest_build.matched_provisioners
    return workspace.latest_build.job.status == "pending" and bool(matched and not matched.count)
