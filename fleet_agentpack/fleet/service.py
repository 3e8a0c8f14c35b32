"""The nine use cases of the fleet, the same for every engine."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

from fleet_agentpack.fleet import results
from fleet_agentpack.fleet.arguments import check_existing_name, new_agent, plain, required
from fleet_agentpack.fleet.backend import Backend, Progress
from fleet_agentpack.fleet.building import CREATE_TIMEOUT_S, Building
from fleet_agentpack.fleet.conversation import given_by_people, result_of, said_by
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.finished import FinishedWork
from fleet_agentpack.fleet.handover import HandOver
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.models import (
    NO_CHOICES,
    AgentSnapshot,
    Choices,
    ListedAgent,
    Message,
    Source,
    Task,
    shorten,
)
from fleet_agentpack.fleet.past import address_of, past_of, where_the_rest_is
from fleet_agentpack.fleet.questions import about_deletion
from fleet_agentpack.fleet.readable import readable
from fleet_agentpack.fleet.readiness import Readiness
from fleet_agentpack.fleet.reconcile import reconcile
from fleet_agentpack.fleet.records import AgentRecords
from fleet_agentpack.fleet.showing import (
    attention_of,
    detail_of,
    online,
    overview_of,
    row_of,
    status_of,
    summary_of,
)
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.approval import Question
from fleet_agentpack.kit.results import UNKNOWN

MAX_PAGE_SIZE = 100


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
        self._records = AgentRecords(ledger)
        self._fingerprints: dict[str, object] = {}  # by workspace id, as last reconciled
        self._attention: dict[str, str] = {}  # by workspace id, likewise
        self._building = Building(create_timeout_s)
        self.finished = FinishedWork(backend.finishing, self._find)
        self._readiness = Readiness(
            backend,
            ledger,
            self._find,
            self._reconciled,
            lambda: self._now(),
            lambda seconds: self._sleep(seconds),
        )
        self._handover = HandOver(backend, ledger, lambda: self._now())

    async def close(self) -> None:
        """Finish handing over tasks, then close the engine and the ledger."""
        await self._handover.close()
        await self._building.close()
        await self._backend.close()
        self._ledger.close()

    async def projects(self) -> results.ProjectList:
        """Every project that agents can be created for."""
        catalogue = self._backend.catalogue
        found = await catalogue.projects()
        if found.projects or found.warnings is not UNKNOWN:
            return found
        return replace(found, warnings=(catalogue.no_projects_hint,))

    async def roles(self, project: str) -> results.RoleList:
        """The roles of a project."""
        return results.RoleList(await self._backend.catalogue.roles(plain(project, "project")))

    async def role(self, project: str, name: str) -> results.Role:
        """One role of a project. Raises 404."""
        listed = (await self.roles(project)).roles
        if found := next((role for role in listed if role.name == name), None):
            return found
        known = ", ".join(role.name for role in listed)
        raise FleetError.not_found(f"There is no role '{name[:80]}'; choose from {known}.")

    async def create(
        self,
        name: str,
        project: str,
        role: str,
        spec: str,
        report: Progress = quiet,
        choices: Choices = NO_CHOICES,
    ) -> results.AgentCreated:
        """Create an agent and wait until it is ready for its first task."""
        new = new_agent(name, project, role, spec, choices)
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
        detail = detail_of(agent, "idle", None)
        return results.AgentCreated(detail, message, agent.warnings or UNKNOWN)

    async def agents(self) -> results.AgentList:
        """Every agent with its status and its task."""
        rows = [
            summary_of(agent, task, self._attention.get(agent.workspace_id, ""))
            for agent, task in await self._fleet()
        ]
        known_names = {row.name.lower() for row in rows}
        building = [name for name in self._building.names if name.lower() not in known_names]
        rows += [results.AgentSummary(name, "offline", None) for name in building]
        return results.AgentList(rows, len(rows))

    async def overview(self) -> results.Overview:
        """Every agent with what it does, for how long, at which cost, and how it ended last."""
        fleet = await self._fleet()
        last, spent = await asyncio.to_thread(self._ledger.totals)
        return results.Overview(
            [
                overview_of(
                    agent,
                    task,
                    last.get(agent.workspace_id),
                    spent.get(agent.workspace_id),
                    self._attention.get(agent.workspace_id, ""),
                    self._now(),
                )
                for agent, task in fleet
            ]
        )

    async def _fleet(self) -> list[tuple[ListedAgent, Task | None]]:
        """Every agent with its open task, the ledger being up to date."""
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
        return [(agent, tasks.get(agent.workspace_id)) for agent in fleet]

    async def show(self, name: str) -> results.AgentShown:
        """One agent in detail."""
        agent = await self._find(name, detailed=True)
        task = await self._reconciled(agent)
        status = status_of(agent.online, task is not None or agent.activity == "running")
        last = await asyncio.to_thread(self._ledger.newest, agent.workspace_id)
        spent = await asyncio.to_thread(self._ledger.spent, agent.workspace_id)
        detail = detail_of(agent, status, task, last, spent)
        return results.AgentShown(detail, agent.warnings or UNKNOWN)

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
        rows = [row_of(task, is_shared=agent.is_shared) for task in tasks]
        pages = -(-total // size)
        warnings = agent.warnings + where_the_rest_is(agent.workspace_id, tasks)
        return results.TaskHistory(rows, total, page, size, pages, warnings or UNKNOWN)

    async def past(self, workspace_id: str) -> results.Past:
        """What the ledger has of an agent, also of one that is gone. Raises 404."""
        return await asyncio.to_thread(
            past_of, self._ledger, self._records, workspace_id, self._now()
        )

    async def start(
        self, name: str, description: str, report: Progress = quiet, *, queue: bool = False
    ) -> results.TaskChanged:
        """Give an idle agent a task; with `queue`, it waits where its project has no room."""
        text = required(description, "task_description")
        agent = await self._find(name)
        if not agent.online:
            agent = await self._backend.wake(agent, report)
        agent = await self._readiness.idle(online(agent))
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
        given, ahead = await self._handover.give(agent, task, queue=queue)
        # As it was handed over, even if it has ended since.
        status, asked = "pending" if ahead else "running", shorten(given.description)
        row = results.describe(results.RunningTask, given, summary=asked, status=status)
        told = f"Task queued on agent '{agent.name}'; it waits for {', '.join(ahead)}"
        begun = f"Task started on agent '{agent.name}'"
        return results.TaskChanged(row, "busy", told if ahead else begun)

    async def stop(self, name: str) -> results.TaskChanged:
        """Interrupt the task of a busy agent."""
        agent = await self._backend.with_activity(online(await self._find(name)))
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
        stopped = await asyncio.to_thread(
            self._ledger.finish, task.id, "stopped", self._now(), agent.clock
        )
        summary = row_of(stopped, is_shared=False)
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
        await asyncio.to_thread(self._records.bury, agent.workspace_id, agent.name, self._now())
        message = f"Agent '{agent.name}' deleted successfully{f'. {note}' if note else ''}"
        return results.AgentDeleted(message, results.DeletedAgent(agent.name, agent.workspace_id))

    async def transcript(self, name: str) -> results.Transcript:
        """What an agent said, oldest first."""
        return results.transcript_of(await self.said(name))

    async def said(self, name: str) -> list[Message]:
        """The same as it is known."""
        return await self._backend.messages(await self._find(name))

    async def work(self, name: str) -> results.AgentWork:
        """What an agent has made, what it said last, and the result of its last task in full."""
        agent = await self._find(name)
        await self._reconciled(agent)
        newest = await asyncio.to_thread(self._ledger.newest, agent.workspace_id)
        made = await self._backend.product(agent)
        said, warnings = await said_by(self._backend, agent)
        return results.AgentWork(
            **vars(made),
            messages=[results.describe(results.TranscriptLine, row) for row in readable(said)],
            result=result_of(newest, said if agent.is_shared else ()),
            warnings=warnings or UNKNOWN,
        )

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
            gone = await asyncio.to_thread(self._records.gone, name, self._now())
            if gone:
                error.details["history"] = address_of(gone)
            raise self._building.why_missing(name) or error from error

    async def _reconciled(self, agent: AgentSnapshot) -> Task | None:
        return await asyncio.to_thread(self._reconcile, agent)

    def _reconcile(self, agent: AgentSnapshot) -> Task | None:
        """Bring the ledger up to date with an agent; returns its open task."""
        return self._ledger.adjust(
            agent.workspace_id,
            agent.build,
            # A task that waits in line has not begun, and its claim does not run out.
            lambda tasks: reconcile([task for task in tasks if task.id != agent.queued], agent),
        )

    def _reconcile_fleet(self, news: list[ListedAgent]) -> dict[str, Task | None]:
        """Bring the ledger up to date with these agents; returns their open tasks."""
        open_tasks = {}
        for agent in news:
            snapshot = agent.snapshot()
            open_tasks[agent.workspace_id] = self._reconcile(snapshot)
            self._fingerprints[agent.workspace_id] = agent.fingerprint
            self._attention[agent.workspace_id] = attention_of(snapshot)
        return open_tasks

    async def _with_sources(self, agent: AgentSnapshot, tasks: list[Task]) -> list[Task]:
        """Tasks that follow a user's message were given by a person, not by the agent itself."""
        if not agent.online or not any(t.was_found and t.source == "agent" for t in tasks):
            return tasks
        said, _ = await said_by(self._backend, agent)
        human = {task.id: task for task in given_by_people(tasks, said)}
        if human:
            await asyncio.to_thread(self._ledger.relabel, list(human.values()))
        return [human.get(task.id, task) for task in tasks]

    def _close_open_task(self, workspace_id: str) -> None:
        task = self._ledger.open_tasks().get(workspace_id)
        if task:
            self._ledger.finish(task.id, "stopped", self._now())
        self._fingerprints.pop(workspace_id, None)
