"""Coder as an engine: agents are workspaces, and tasks are messages to the AgentAPI inside."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from msgspec import structs

from fleet_agentpack.fleet.backend import Progress
from fleet_agentpack.fleet.coder import errors, models
from fleet_agentpack.fleet.coder.builds import BuildWatcher
from fleet_agentpack.fleet.coder.client import CoderClient, app_path, at_once
from fleet_agentpack.fleet.coder.errors import unavailable
from fleet_agentpack.fleet.coder.listing import ListPage
from fleet_agentpack.fleet.coder.membership import Membership
from fleet_agentpack.fleet.coder.orders import CoderNames, WorkspaceOrder
from fleet_agentpack.fleet.coder.projects import CoderProjects
from fleet_agentpack.fleet.coder.snapshot import agent_app, listed_agent, snapshot
from fleet_agentpack.fleet.errors import FleetError, NotAnsweringError, UnconfirmedError
from fleet_agentpack.fleet.models import (
    NO_CHOICES,
    AgentSnapshot,
    ListedAgent,
    Message,
    NewAgent,
    Product,
    Task,
)
from fleet_agentpack.fleet.records import AgentRecords

ESCAPE = "\x1b"  # the one key that interrupts a program behind AgentAPI
METADATA_PREFIX = "fleet_mcp_"


@dataclass(frozen=True)
class Timeouts:
    """How long slow operations may take, and how often their state is polled."""

    delete_s: float = 300.0
    start_s: float = 200.0
    stop_s: float = 30.0
    poll_s: float = 1.0
    stop_poll_s: float = 0.3


class CoderBackend:
    """Agents in Coder workspaces of the token's user."""

    finishing = None  # an agent's work is inside its workspace

    def __init__(
        self,
        client: CoderClient,
        names: CoderNames,
        *,
        records: AgentRecords | None = None,
        timeouts: Timeouts | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._names = names
        self._timeouts = timeouts or Timeouts()
        self._sleep = sleep
        self.catalogue = CoderProjects(client, names)
        self._builds = BuildWatcher(client, self._timeouts.poll_s, sleep)
        self._members = Membership(client, names, records)
        self._agents: set[str] = set()  # workspaces listed as agents

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def agents(self) -> list[ListedAgent]:
        """See `Workspaces.agents`: one request per 100 agents."""
        taken_at = datetime.now(UTC)
        # By id: a workspace that moved to the next page between two requests is listed twice.
        fleet = {
            row.id: listed_agent(row, partial(self._listed, page, row.id, taken_at))
            async for page, row in self._members.listed()
        }
        self._agents = set(fleet)
        return list(fleet.values())

    async def find(self, name: str, *, detailed: bool) -> AgentSnapshot:
        """See `Workspaces.find`: two requests, detailed at most four."""
        taken_at = datetime.now(UTC)
        try:
            workspace = await self._client.workspace(name)
        except errors.NotFound as error:
            raise FleetError.no_such_agent(name) from error
        agent = self._snapshot(workspace, taken_at)
        if not (detailed and agent.online):
            return await self._members.described(agent)
        if workspace.id not in self._agents:
            # Ask nothing inside a workspace that may turn out not to be an agent.
            await self._members.described(agent)
        asked = at_once(self._with_metadata(agent), self.with_activity(agent, required=False))
        try:
            # What is not an agent is 404, whatever the other two requests answer.
            known = await self._members.described(agent)
            collected, reported = await asked
        finally:
            asked.cancel()
        warnings = collected.warnings + reported.warnings
        return replace(
            collected,
            role=known.role,
            spec=known.spec or collected.metadata.get("fleet_mcp_agent_spec", ""),
            activity=reported.activity,
            warnings=warnings,
        )

    async def create(self, new: NewAgent, report: Progress) -> AgentSnapshot:
        """See `Workspaces.create`."""
        if new.choices != NO_CHOICES:
            raise FleetError.bad_request(
                "On Coder the template decides about branch, program and model; leave out --from,"
                " --program and --model."
            )
        order = await self.catalogue.plan(new)
        report(0, None, f"Creating workspace '{new.name}' from {order.template.name}")
        workspace = await self._post(new.name, order)
        await self._members.add(workspace, new, order)
        build = workspace.latest_build
        matched = build.matched_provisioners
        if build.job.status == "pending" and matched and not matched.count:
            report(0, None, "Coder has no provisioner for this template; waiting for one")
        workspace = await self._builds.until_ready(workspace, report)
        agent = self._snapshot(workspace, datetime.now(UTC))
        return replace(agent, role=new.role, spec=new.spec)

    async def wake(self, agent: AgentSnapshot, report: Progress) -> AgentSnapshot:
        """See `Workspaces.wake`: a stopped workspace is started, if that is configured."""
        workspace: models.Workspace = agent.handle
        is_stopped = workspace.latest_build.status == "stopped"
        if not self._names.start_stopped or not (is_stopped or workspace.is_coming_up):
            return agent
        report(0, None, f"Starting workspace '{agent.name}'")
        try:
            async with asyncio.timeout(self._timeouts.start_s):
                if is_stopped:
                    workspace = await self._started(workspace)
                workspace = await self._builds.until_ready(workspace, report)
        except TimeoutError as error:
            raise FleetError.unavailable(
                f"Workspace '{agent.name}' is still starting after {self._timeouts.start_s:g} s;"
                " try again in a minute.",
                workspace_id=workspace.id,
            ) from error
        return self._snapshot(workspace, datetime.now(UTC))

    async def unsaved(self, agent: AgentSnapshot) -> None:
        """See `Workspaces.unsaved`: nobody looks into a workspace."""

    async def delete(self, agent: AgentSnapshot, report: Progress) -> None:
        """See `Workspaces.delete`."""
        workspace: models.Workspace = agent.handle
        try:
            async with asyncio.timeout(self._timeouts.delete_s):
                await self._builds.destroy(workspace, report)
        except TimeoutError as error:
            raise FleetError.unavailable(
                f"Workspace '{agent.name}' was not deleted within {self._timeouts.delete_s:g} s;"
                " the deletion may still finish.",
                workspace_id=workspace.id,
            ) from error

    async def with_activity(self, agent: AgentSnapshot, *, required: bool = True) -> AgentSnapshot:
        """See `Tasks.with_activity`; unless required, no answer is only a warning."""
        try:
            running = await self._is_running(self._app(agent))
            return replace(agent, activity="running" if running else "stable")
        except errors.Unauthorized:
            raise
        except errors.CoderError as error:
            told = f"AgentAPI of agent '{agent.name}' does not answer"
            if required:
                details = {"agent_name": agent.name, **error.answer}
                raise NotAnsweringError("unavailable", f"{told}: {error}", **details) from error
            return replace(agent, warnings=(f"{told}: {error.report}",))
        except FleetError as error:
            if required:
                raise
            return replace(agent, warnings=(str(error),))

    async def send(self, agent: AgentSnapshot, task: Task) -> None:
        """See `Tasks.send`."""
        app = self._app(agent)
        untold = await self._members.untold(agent)
        text = f"{untold}\n\n{task.description}" if untold else task.description
        try:
            await self._client.agent_message(app, text, "user")
        except errors.NotConnected:
            raise
        except errors.Unreachable as error:
            await self._check_arrival(agent, error)
        except errors.CoderError as error:
            # AgentAPI answers 500 for any reason; whether it is running tells which one.
            if error.status == 500 and await self._is_running(app):
                raise FleetError.busy(agent.name, **error.answer) from error
            raise unavailable(error, f"Agent '{agent.name}' did not accept the task") from error
        if untold:
            await self._members.told(agent)

    async def interrupt(self, agent: AgentSnapshot, task: Task) -> None:  # noqa: ARG002
        """See `Tasks.interrupt`: ESC, then wait for AgentAPI to be stable."""
        app = self._app(agent)
        await self._client.agent_message(app, ESCAPE, "raw")
        try:
            async with asyncio.timeout(self._timeouts.stop_s):
                while await self._is_running(app):
                    await self._sleep(self._timeouts.stop_poll_s)
        except TimeoutError as error:
            raise FleetError.unavailable(
                f"Agent '{agent.name}' was interrupted, but is still working after"
                f" {self._timeouts.stop_s:g} s.",
                agent_name=agent.name,
            ) from error

    async def messages(self, agent: AgentSnapshot) -> list[Message]:
        """See `Tasks.messages`."""
        messages = await self._client.agent_messages(self._app(agent))
        return [
            Message(row.role, row.content.rstrip(), row.time, str(row.id), row is messages[-1])
            for row in messages
        ]

    async def product(self, agent: AgentSnapshot) -> Product:  # noqa: ARG002
        """See `Works.product`: the files are inside the workspace."""
        return Product()

    async def _post(self, name: str, order: WorkspaceOrder) -> models.Workspace:
        """Request the workspace; if the answer is lost, look for it instead of asking again."""
        try:
            return await self._client.create_workspace(
                name, order.template, order.values, order.preset_id
            )
        except errors.Conflict as error:
            raise await self._name_taken(name, error) from error
        except errors.Invalid as error:
            raise FleetError.bad_request(
                f"Coder refused to create '{name}': {error.report}", **error.answer
            ) from error
        except errors.NotConnected:
            raise
        except (errors.Unreachable, errors.Broken) as error:
            with suppress(errors.CoderError):
                made = await self._client.workspace(name)
                given = await self._client.parameters(made.latest_build.id)
                if given.items() >= order.values.items():
                    return made
            raise unavailable(error, f"It is not known whether '{name}' was created") from error

    async def _started(self, workspace: models.Workspace) -> models.Workspace:
        """A stopped workspace that comes up, whoever started it."""
        try:
            build = await self._client.start_workspace(workspace.id)
        except errors.Conflict:
            return await self._client.workspace_by_id(workspace.id)
        return structs.replace(workspace, latest_build=build)

    async def _name_taken(self, name: str, error: errors.CoderError) -> FleetError:
        """The contract's 400 where Coder answers 409, with the state of the existing workspace."""
        state = ""
        with suppress(errors.CoderError):
            agent = self._snapshot(await self._client.workspace(name), datetime.now(UTC))
            state = f" Its workspace is {agent.state}."
        return FleetError.bad_request(
            f"An agent or workspace called '{name}' already exists.{state} Choose another name or"
            " delete it first.",
            field="name",
            **error.answer,
        )

    async def _with_metadata(self, agent: AgentSnapshot) -> AgentSnapshot:
        """The agent with the `fleet_mcp_*` values that it has collected, or a warning."""
        workspace: models.Workspace = agent.handle
        inside = workspace.agent()
        if inside is None:
            return agent
        try:
            rows = await self._client.metadata(inside.id)
        except errors.Unauthorized:
            raise
        except errors.CoderError as error:
            told = f"The agent's metadata could not be read: {error.report}"
            return replace(agent, warnings=(told,))
        collected = {
            row.description.key: row.result.value
            for row in rows
            if row.description.key.startswith(METADATA_PREFIX) and row.result.collected
        }
        return replace(agent, metadata={**agent.metadata, **collected})

    async def _is_running(self, app: str) -> bool:
        return await self._client.agent_status(app) == "running"

    async def _check_arrival(self, agent: AgentSnapshot, error: errors.CoderError) -> None:
        """Find out whether a message without an answer arrived. Raises 503 if not, or unknown."""
        told = f"It is not known whether agent '{agent.name}' got the task: {error.report}"
        try:
            running = await self._is_running(self._app(agent))
        except errors.CoderError:
            raise UnconfirmedError("unavailable", told, agent_name=agent.name) from error
        if not running:
            raise unavailable(error, f"Agent '{agent.name}' did not accept the task") from error

    def _app(self, agent: AgentSnapshot) -> str:
        workspace: models.Workspace = agent.handle
        inside = workspace.agent()
        app = agent_app(inside, self._names.app_slug)
        if inside is None or app is None:
            raise FleetError.unavailable(
                f"Workspace '{agent.name}' has no AgentAPI app; if it has another name, set"
                " [fleet.coder] app_slug.",
                agent_name=agent.name,
            )
        return app_path(workspace, inside, app.slug)

    def _listed(self, page: ListPage, workspace_id: str, taken_at: datetime) -> AgentSnapshot:
        return self._snapshot(self._client.in_full(page, workspace_id), taken_at)

    def _snapshot(self, workspace: models.Workspace, taken_at: datetime) -> AgentSnapshot:
        project = self.catalogue.project_of(workspace.template_name)
        return snapshot(workspace, project, taken_at, self._names.app_slug)
