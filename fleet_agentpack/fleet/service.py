"""The nine use cases of the fleet, the same for every engine."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fleet_agentpack.fleet import results
from fleet_agentpack.fleet.arguments import check_existing_name, check_new_name, plain, required
from fleet_agentpack.fleet.backend import Backend, Progress
from fleet_agentpack.fleet.building import CREATE_TIMEOUT_S, Building
from fleet_agentpack.fleet.errors import FleetError, UnconfirmedError
from fleet_agentpack.fleet.ledger import Ledger, TaskOpenError
from fleet_agentpack.fleet.models import AgentSnapshot, ListedAgent, NewAgent, Source, Task, shorten
from fleet_agentpack.fleet.questions import about_deletion
from fleet_agentpack.fleet.reconcile import CLAIM_S, reconcile
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.approval import Question
from fleet_agentpack.kit.results import UNKNOWN

MAX_PAGE_SIZE = 100
SETTLE_S = 5.0  # how long an agent may take to notice that its work is done
SETTLE_POLL_S = 0.25
MESSAGE_LAG_S = 10.0  # from a message to the first report of the work it started


def quiet(_done: float, _total: float | None, _text: str) -> None:
    """Progress that nobody watches."""


def utc_now() -> datetime:
    """The time by this machine's clock."""
    return datetime.now(UTC)


class FleetService:
    """Creates, lists, shows and deletes the agents of one engine, and gives them tasks."""

    def __init__(
        self,
        backend: Backend,
        ledger: Ledger,
        *,
        source: Source,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        create_timeout_s: float = CREATE_TIMEOUT_S,
    ) -> None:
        self._backend = backend
        self._ledger = ledger
        self._source = source
        self._now = now
        self._sleep = sleep
        self._fingerprints: dict[str, object] = {}  # by workspace id, as last reconciled
        self._building = Building(create_timeout_s)
        self._handing_over: set[asyncio.Task[Task]] = set()

    async def close(self) -> None:
        """Finish handing over tasks, then close the engine and the ledger."""
        if self._handing_over:
            await asyncio.wait(self._handing_over)
        await self._building.close()
        await self._backend.close()
        self._ledger.close()

    async def projects(self) -> results.ProjectList:
        """Every project that agents can be created for."""
        catalogue = self._backend.catalogue
        found = await catalogue.projects()
        return results.ProjectList(found, UNKNOWN if found else (catalogue.no_projects_hint,))

    async def roles(self, project: str) -> results.RoleList:
        """The roles of a project."""
        return results.RoleList(await self._backend.catalogue.roles(plain(project, "project")))

    async def role(self, project: str, name: str) -> results.Role:
        """One role of a project. Raises 404."""
        listed = (await self.roles(project)).roles
        for role in listed:
            if role.name == name:
                return role
        known = ", ".join(role.name for role in listed)
        raise FleetError.not_found(f"There is no role '{name[:80]}'; choose from {known}.")

    async def create(
        self, name: str, project: str, role: str, spec: str, report: Progress = quiet
    ) -> results.AgentCreated:
        """Create an agent and wait until it is ready for its first task."""
        check_new_name(name)
        new = NewAgent(
            name, required(project, "project"), required(role, "role"), required(spec, "spec")
        )
        try:
            agent = await self._building.agent(
                name, lambda told: self._backend.create(new, told), report
            )
        except FleetError as error:
            if error.kind != "not_found":
                raise
            # Only the project can be unknown here, and it is an argument of the call.
            raise FleetError.bad_request(str(error), *error.actions, field="project") from error
        message = f"Agent '{agent.name}' created for project '{agent.project}'"
        detail = _detail(agent, "idle", None)
        return results.AgentCreated(detail, message, agent.warnings or UNKNOWN)

    async def agents(self) -> results.AgentList:
        """Every agent with its status and its task."""
        fleet = await self._backend.agents()
        open_tasks = self._ledger.open_tasks_at_once()  # a thread would cost more than the read
        if open_tasks is None:
            open_tasks = await asyncio.to_thread(self._ledger.open_tasks)
        tasks: dict[str, Task | None] = {**open_tasks}
        # Busy agents are reconciled each time: their claim may have run out.
        known = self._fingerprints.get
        news = [
            agent
            for agent in fleet
            if agent.workspace_id in tasks or known(agent.workspace_id) != agent.fingerprint
        ]
        if news:
            tasks |= await asyncio.to_thread(self._reconcile_fleet, news)
        rows = [_summary(agent, tasks.get(agent.workspace_id)) for agent in fleet]
        known_names = {row.name.lower() for row in rows}
        building = [name for name in self._building.names if name.lower() not in known_names]
        rows += [results.AgentSummary(name, "offline", None) for name in building]
        return results.AgentList(rows, len(rows))

    async def show(self, name: str) -> results.AgentShown:
        """One agent in detail."""
        agent = await self._find(name, detailed=True)
        task = await self._reconciled(agent)
        status = _status(agent.online, task is not None or agent.activity == "running")
        return results.AgentShown(_detail(agent, status, task), agent.warnings or UNKNOWN)

    async def history(self, name: str, page: int = 1, page_size: int = 20) -> results.TaskHistory:
        """An agent's tasks, newest first, page by page."""
        if page < 1:
            raise FleetError.bad_request("page starts at 1.", page=page)
        size = max(1, min(page_size, MAX_PAGE_SIZE))
        agent = await self._find(name)
        await self._reconciled(agent)
        tasks, total = await asyncio.to_thread(
            self._ledger.page, agent.workspace_id, (page - 1) * size, size
        )
        tasks = await self._with_sources(agent, tasks)
        rows = [results.describe(results.TaskSummary, task) for task in tasks]
        pages = -(-total // size)
        return results.TaskHistory(rows, total, page, size, pages, agent.warnings or UNKNOWN)

    async def start(self, name: str, description: str) -> results.TaskChanged:
        """Give an idle agent a task."""
        text = required(description, "task_description")
        agent = await self._idle(_online(await self._find(name)))
        task = Task(
            id=str(uuid.uuid4()),
            workspace_id=agent.workspace_id,
            agent_name=agent.name,
            description=text,
            status="pending",
            source=self._source,
            created_at=self._now(),
            build=agent.build,
            reported_before=agent.reported_at,
        )
        started = await self._shielded(self._hand_over(agent, task))
        # As it was handed over, even if it has ended since.
        asked = shorten(started.description)
        row = results.describe(results.RunningTask, started, summary=asked, status="running")
        return results.TaskChanged(row, "busy", f"Task started on agent '{agent.name}'")

    async def stop(self, name: str) -> results.TaskChanged:
        """Interrupt the task of a busy agent."""
        agent = await self._backend.with_activity(_online(await self._find(name)))
        task = await self._reconciled(agent)
        about = {"agent_name": agent.name}
        if task is None and agent.activity == "running":
            raise FleetError.not_found(
                f"Agent '{agent.name}' is working, but its task was not started here and is"
                " unknown.",
                **about,
            )
        if task is None:
            raise FleetError.bad_request(
                f"Agent '{agent.name}' is not busy.",
                Action("show_agent_task_history", about, "Call {} to see its last tasks.", "{}"),
                **about,
            )
        await asyncio.to_thread(self._ledger.request_stop, task.id, True)
        try:
            await self._backend.interrupt(agent, task)
        except FleetError:
            await asyncio.to_thread(self._ledger.request_stop, task.id, False)
            raise
        stopped = await asyncio.to_thread(self._ledger.finish, task.id, "stopped", self._now())
        summary = results.describe(results.TaskSummary, stopped)
        return results.TaskChanged(summary, "idle", f"Task stopped on agent '{agent.name}'")

    async def deletion(self, name: str) -> Question:
        """What a person is asked before an agent is deleted."""
        return await self._deletion(await self._find(name))

    async def delete(
        self, name: str, report: Progress = quiet, approved: str | None = None
    ) -> results.AgentDeleted:
        """Delete an agent and its workspace, even a busy one.

        Raises `PlanChangedError` if that would not be, or no longer, what was approved.
        """
        agent = await self._find(name)
        if approved is not None:
            (await self._deletion(agent)).check(approved)
        note = await self._backend.delete(agent, report)
        await asyncio.to_thread(self._close_open_task, agent.workspace_id)
        message = f"Agent '{agent.name}' deleted successfully{f'. {note}' if note else ''}"
        return results.AgentDeleted(message, results.DeletedAgent(agent.name, agent.workspace_id))

    async def transcript(self, name: str) -> results.Transcript:
        """What an agent said, oldest first."""
        said = await self._backend.messages(await self._find(name))
        return results.Transcript([results.describe(results.TranscriptLine, row) for row in said])

    async def _deletion(self, agent: AgentSnapshot) -> Question:
        task = await self._reconciled(agent)
        return about_deletion(agent, task, await self._backend.unsaved(agent))

    async def _find(self, name: str, *, detailed: bool = False) -> AgentSnapshot:
        check_existing_name(name)
        try:
            return await self._backend.find(name, detailed=detailed)
        except FleetError as error:
            if error.kind != "not_found":
                raise
            raise self._building.why_missing(name) or error from error

    async def _idle(self, agent: AgentSnapshot) -> AgentSnapshot:
        """The agent once it can take a task. Raises 409 when it is busy."""
        agent = await self._backend.with_activity(agent)
        task = await self._reconciled(agent)
        if task is not None:
            raise _busy(agent, task)
        if agent.activity != "running":
            return agent
        newest = await asyncio.to_thread(self._ledger.newest, agent.workspace_id)
        if newest is None and agent.reported_at is not None:
            raise FleetError.busy(agent.name)
        # The last task is over, or the agent was only just created: AgentAPI notices a moment
        # later than we do that it is idle.
        deadline = self._now() + timedelta(seconds=SETTLE_S)
        while agent.activity == "running":
            if self._now() >= deadline:
                raise FleetError.busy(agent.name)
            await self._sleep(SETTLE_POLL_S)
            agent = await self._backend.with_activity(agent)
        return agent

    async def _hand_over(self, agent: AgentSnapshot, task: Task) -> Task:
        """Claim the agent in the ledger, send the task, and record whether it arrived."""
        try:
            await asyncio.to_thread(self._ledger.claim, task)
        except TaskOpenError as error:
            raise FleetError.busy(agent.name) from error
        try:
            await self._backend.send(agent, task)
        except UnconfirmedError:
            await asyncio.to_thread(self._ledger.doubt, task.id, self._now())
            raise
        except BaseException:
            await asyncio.to_thread(self._ledger.release, task.id)
            raise
        return await asyncio.to_thread(self._ledger.confirm, task.id, self._now())

    async def _shielded(self, work: Coroutine[Any, Any, Task]) -> Task:
        """Run to the end even if the caller is cancelled: a claim must be confirmed or released."""
        running = asyncio.create_task(work)
        self._handing_over.add(running)
        running.add_done_callback(self._handing_over.discard)
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(running)

    async def _reconciled(self, agent: AgentSnapshot) -> Task | None:
        return await asyncio.to_thread(self._reconcile, agent)

    def _reconcile(self, agent: AgentSnapshot) -> Task | None:
        """Bring the ledger up to date with an agent; returns its open task."""
        return self._ledger.adjust(
            agent.workspace_id, agent.build, lambda tasks: reconcile(tasks, agent)
        )

    def _reconcile_fleet(self, news: list[ListedAgent]) -> dict[str, Task | None]:
        """Bring the ledger up to date with these agents; returns their open tasks."""
        open_tasks = {}
        for agent in news:
            open_tasks[agent.workspace_id] = self._reconcile(agent.snapshot())
            self._fingerprints[agent.workspace_id] = agent.fingerprint
        return open_tasks

    async def _with_sources(self, agent: AgentSnapshot, tasks: list[Task]) -> list[Task]:
        """Tasks that follow a user's message were given by a person, not by the agent itself."""
        unexplained = [t for t in tasks if t.id == t.episode and t.source == "agent"]
        if not agent.online or not unexplained:
            return tasks
        try:
            said = await self._backend.messages(agent)
        except FleetError:
            return tasks
        asked = [message.at for message in said if message.who == "user" and message.at]
        lag = timedelta(seconds=MESSAGE_LAG_S)
        human = [
            replace(task, source="human")
            for task in unexplained
            if any(at <= task.created_at <= at + lag for at in asked)
        ]
        if human:
            await asyncio.to_thread(self._ledger.relabel, human)
        relabelled = {task.id: task for task in human}
        return [relabelled.get(task.id, task) for task in tasks]

    def _close_open_task(self, workspace_id: str) -> None:
        task = self._ledger.open_tasks().get(workspace_id)
        if task:
            self._ledger.finish(task.id, "stopped", self._now())
        self._fingerprints.pop(workspace_id, None)


def _summary(agent: ListedAgent, task: Task | None) -> results.AgentSummary:
    if task is None or not agent.online:
        return results.AgentSummary(agent.name, "idle" if agent.online else "offline", None)
    return results.AgentSummary(agent.name, "busy", task.summary)


def _detail(
    agent: AgentSnapshot, status: results.AgentStatus, task: Task | None
) -> results.AgentDetail:
    current = task.summary if task and status == "busy" else None
    metadata = {**agent.metadata, "fleet_mcp_agent_spec": agent.spec}
    return results.describe(
        results.AgentDetail, agent, status=status, current_task=current, metadata=metadata
    )


def _status(online: bool, working: bool) -> results.AgentStatus:
    return "offline" if not online else "busy" if working else "idle"


def _busy(agent: AgentSnapshot, task: Task) -> FleetError:
    if task.status == "pending":
        return FleetError.conflict(
            f"Agent '{agent.name}' is being given a task: {task.summary}. If the sender died, the"
            f" agent is free again within {CLAIM_S:g} s.",
            Action("stop_agent_task", {"agent_name": agent.name}, "To free it now, call {}.", "{}"),
            agent_name=agent.name,
            task_id=task.id,
        )
    return FleetError.busy(agent.name, task.summary, task_id=task.id)


def _online(agent: AgentSnapshot) -> AgentSnapshot:
    """The agent, if it is online. Raises 400."""
    if not agent.online:
        raise FleetError.bad_request(
            f"Agent '{agent.name}' is offline (its workspace is {agent.state}). Start its workspace"
            " again, or delete the agent and create a new one.",
            agent_name=agent.name,
            workspace_state=agent.state,
        )
    return agent
