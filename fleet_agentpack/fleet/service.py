"""The nine use cases of the fleet, the same for every engine."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fleet_agentpack.fleet.backend import Backend, Progress
from fleet_agentpack.fleet.errors import FleetError, UnconfirmedError
from fleet_agentpack.fleet.ledger import Ledger, TaskOpenError
from fleet_agentpack.fleet.models import (
    AgentStatus,
    Glance,
    Line,
    Order,
    Sighting,
    Source,
    Task,
    agent_detail,
    agent_row,
    task_row,
    warned,
)
from fleet_agentpack.fleet.reconcile import CLAIM_S, reconcile

MAX_PAGE_SIZE = 100
MAX_NAME = 20
MAX_KNOWN_NAME = 32  # Coder's limit: others may have made agents with longer names than ours
MAX_TEXT_BYTES = 100_000  # below what one argument or variable of a process may hold
SETTLE_S = 5.0  # how long an agent may take to notice that its work is done
SETTLE_POLL_S = 0.25
MESSAGE_LAG_S = 10.0  # from a message to the first report of the work it started

# Coder's own rule, stricter than the seed's "alphanumeric and hyphens".
NAME = re.compile(r"[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*\Z")
RESERVED = ("new", "create")


def quiet(_done: float, _total: float | None, _text: str) -> None:
    """Progress that nobody watches."""


def utc_now() -> datetime:
    """The time by this machine's clock."""
    return datetime.now(UTC)


class FleetService:
    """Creates, lists, shows, tasks and deletes agents of one engine."""

    def __init__(
        self,
        backend: Backend,
        ledger: Ledger,
        *,
        source: Source,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._backend = backend
        self._ledger = ledger
        self._source = source
        self._now = now
        self._sleep = sleep
        self._marks: dict[str, object] = {}  # workspace id → what the ledger already knows of it
        self._handing_over: set[asyncio.Task[Task]] = set()

    async def close(self) -> None:
        """Finish what is being handed over and let go of the engine."""
        if self._handing_over:
            await asyncio.wait(self._handing_over)
        await self._backend.close()
        self._ledger.close()

    async def projects(self) -> dict[str, Any]:
        """Every project that agents can be created for."""
        found = await self._backend.projects()
        return {"projects": found, **warned(() if found else (self._backend.without_projects,))}

    async def roles(self, project: str) -> dict[str, Any]:
        """The roles of a project."""
        return {"roles": await self._backend.roles(_plain(project, "project"))}

    async def create(
        self, name: str, project: str, role: str, spec: str, report: Progress = quiet
    ) -> dict[str, Any]:
        """Make an agent and wait until it is ready for its first task."""
        _check_name(name)
        order = Order(
            name,
            _required(project, "project"),
            _required(role, "role"),
            _required(spec, "spec"),
        )
        seen = await self._backend.create(order, report)
        return {
            "agent": agent_detail(seen, "idle", None),
            "message": f"Agent '{seen.name}' created for project '{seen.project}'",
            **warned(seen.warnings),
        }

    async def agents(self) -> dict[str, Any]:
        """Every agent with its status and its task."""
        fleet = await self._backend.all()
        open_tasks = self._ledger.open_tasks_at_once()  # a thread would cost more than the read
        if open_tasks is None:
            open_tasks = await asyncio.to_thread(self._ledger.open_tasks)
        tasks: dict[str, Task | None] = {**open_tasks}
        # Those at work are looked at each time: their claim may have run out.
        known = self._marks.get
        news = [
            one for one in fleet if one.workspace_id in tasks or known(one.workspace_id) != one.mark
        ]
        if news:
            tasks |= await asyncio.to_thread(self._reconcile_fleet, news)
        return {
            "agents": [_row(one, tasks.get(one.workspace_id)) for one in fleet],
            "total_count": len(fleet),
        }

    async def show(self, name: str) -> dict[str, Any]:
        """One agent in detail."""
        seen = await self._look(name, closely=True)
        task = await self._reconciled(seen)
        status = _status(seen.online, task is not None or seen.activity == "running")
        detail = agent_detail(seen, status, task if status == "busy" else None)
        return {"agent": detail, **warned(seen.warnings)}

    async def history(self, name: str, page: int = 1, page_size: int = 20) -> dict[str, Any]:
        """An agent's tasks, newest first, page by page."""
        if page < 1:
            raise FleetError.bad_request("page starts at 1.", page=page)
        size = max(1, min(page_size, MAX_PAGE_SIZE))
        seen = await self._look(name)
        await self._reconciled(seen)
        found = await asyncio.to_thread(
            self._ledger.page, seen.workspace_id, (page - 1) * size, size
        )
        tasks, total = await self._with_sources(seen, found[0]), found[1]
        return {
            "tasks": [task_row(task) for task in tasks],
            "total_count": total,
            "page": page,
            "page_size": size,
            "total_pages": -(-total // size),
            **warned(seen.warnings),
        }

    async def start(self, name: str, description: str) -> dict[str, Any]:
        """Give an idle agent a task."""
        text = _required(description, "task_description")
        seen = await self._look(name)
        _check_online(seen)
        seen = await self._idle(seen)
        moment = self._now()
        task = Task(
            id=str(uuid.uuid4()),
            workspace_id=seen.workspace_id,
            agent_name=seen.name,
            description=text,
            status="pending",
            source=self._source,
            created_at=moment,
            build=seen.build,
            reported_before=seen.reported_at,
        )
        started = await self._undisturbed(self._hand_over(seen, task))
        return {
            "task": task_row(
                replace(started, status="running", outcome=None), source=False, completed=False
            ),
            "agent_status": "busy",
            "message": f"Task started on agent '{seen.name}'",
        }

    async def stop(self, name: str) -> dict[str, Any]:
        """Interrupt what an agent is doing."""
        seen = await self._look(name)
        _check_online(seen)
        seen = await self._backend.ask(seen)
        task = await self._reconciled(seen)
        if task is None and seen.activity == "running":
            raise FleetError.not_found(
                f"Agent '{seen.name}' is at work, but on no task that is known here.",
                agent_name=seen.name,
            )
        if task is None:
            raise FleetError.bad_request(
                f"Agent '{seen.name}' is not busy; show_agent_task_history shows its last tasks.",
                agent_name=seen.name,
            )
        await asyncio.to_thread(self._ledger.ask_to_stop, task.id, True)
        try:
            await self._backend.interrupt(seen, task)
        except FleetError:
            await asyncio.to_thread(self._ledger.ask_to_stop, task.id, False)
            raise
        stopped = await asyncio.to_thread(self._ledger.finish, task.id, "stopped", self._now())
        return {
            "task": task_row(stopped),
            "agent_status": "idle",
            "message": f"Task stopped on agent '{seen.name}'",
        }

    async def delete(self, name: str, report: Progress = quiet) -> dict[str, Any]:
        """Remove an agent and its workspace, even a busy one."""
        seen = await self._look(name)
        note = await self._backend.delete(seen, report)
        await asyncio.to_thread(self._close_open_task, seen.workspace_id)
        message = f"Agent '{seen.name}' deleted successfully"
        return {
            "message": f"{message}. {note}" if note else message,
            "deleted_agent": {"name": seen.name, "workspace_id": seen.workspace_id},
        }

    async def transcript(self, name: str) -> list[Line]:
        """What an agent said, oldest first."""
        return await self._backend.transcript(await self._look(name))

    async def _look(self, name: str, *, closely: bool = False) -> Sighting:
        if len(name) > MAX_KNOWN_NAME or not NAME.match(name):
            raise FleetError.no_such_agent(_plain(name, "agent_name"))
        return await self._backend.look(name, closely=closely)

    async def _idle(self, seen: Sighting) -> Sighting:
        """The agent once it can take a task. Raises 409 when it is at work."""
        seen = await self._backend.ask(seen)
        task = await self._reconciled(seen)
        if task is not None:
            raise _busy(seen, task)
        if seen.activity != "running":
            return seen
        newest = await asyncio.to_thread(self._ledger.newest, seen.workspace_id)
        if newest is None and seen.reported_at is not None:
            raise _busy(seen, None)
        # The last task is over, or the agent has only just been made: AgentAPI needs a moment
        # longer to see that it is idle than we do.
        deadline = self._now() + timedelta(seconds=SETTLE_S)
        while seen.activity == "running":
            if self._now() >= deadline:
                raise _busy(seen, None)
            await self._sleep(SETTLE_POLL_S)
            seen = await self._backend.ask(seen)
        return seen

    async def _hand_over(self, seen: Sighting, task: Task) -> Task:
        """Claim the agent in the ledger, send the task, and keep what came of it."""
        try:
            await asyncio.to_thread(self._ledger.claim, task)
        except TaskOpenError as error:
            raise _busy(seen, None) from error
        try:
            await self._backend.send(seen, task)
        except UnconfirmedError:
            await asyncio.to_thread(self._ledger.doubt, task.id, self._now())
            raise
        except BaseException:
            await asyncio.to_thread(self._ledger.release, task.id)
            raise
        return await asyncio.to_thread(self._ledger.confirm, task.id, self._now())

    async def _undisturbed(self, work: Any) -> Task:
        """Run to the end even when the caller goes away: no half-made ledger entry."""
        running: asyncio.Task[Task] = asyncio.ensure_future(work)
        self._handing_over.add(running)
        running.add_done_callback(self._handing_over.discard)
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(running)

    async def _reconciled(self, seen: Sighting) -> Task | None:
        return await asyncio.to_thread(self._reconcile, seen)

    def _reconcile(self, seen: Sighting) -> Task | None:
        """Bring the ledger up to what was seen; returns the agent's open task."""
        return self._ledger.adjust(
            seen.workspace_id, seen.build, lambda tasks: reconcile(tasks, seen)
        )

    def _reconcile_fleet(self, news: list[Glance]) -> dict[str, Task | None]:
        """Bring the ledger up to date with these agents; returns their open tasks."""
        open_tasks = {}
        for one in news:
            open_tasks[one.workspace_id] = self._reconcile(one.sighting())
            self._marks[one.workspace_id] = one.mark
        return open_tasks

    async def _with_sources(self, seen: Sighting, tasks: list[Task]) -> list[Task]:
        """Tell tasks that a person typed from those the agent gave itself, by the messages."""
        if not seen.online or all(
            task.id != task.episode or task.source != "agent" for task in tasks
        ):
            return tasks
        try:
            said = await self._backend.transcript(seen)
        except FleetError:
            return tasks
        asked = [line.at for line in said if line.who == "user" and line.at]
        lag = timedelta(seconds=MESSAGE_LAG_S)
        human = [
            replace(task, source="human")
            for task in tasks
            if task.id == task.episode
            and task.source == "agent"
            and any(at <= task.created_at <= at + lag for at in asked)
        ]
        if human:
            await asyncio.to_thread(self._ledger.relabel, human)
        better = {task.id: task for task in human}
        return [better.get(task.id, task) for task in tasks]

    def _close_open_task(self, workspace_id: str) -> None:
        task = self._ledger.open_tasks().get(workspace_id)
        if task:
            self._ledger.finish(task.id, "stopped", self._now())
        self._marks.pop(workspace_id, None)


def _row(one: Glance, task: Task | None) -> dict[str, Any]:
    status = _status(one.online, task is not None)
    return agent_row(one, status, task if status == "busy" else None)


def _status(online: bool, at_work: bool) -> AgentStatus:
    if not online:
        return "offline"
    return "busy" if at_work else "idle"


def _busy(seen: Sighting, task: Task | None) -> FleetError:
    details = {"task_id": task.id} if task else {}
    if task and task.status == "pending":
        return FleetError.conflict(
            f"Agent '{seen.name}' is being given a task: {task.summary}. Should its sender have"
            f" died, the agent is free again within {CLAIM_S:g} s, or after stop_agent_task.",
            agent_name=seen.name,
            **details,
        )
    doing = f": {task.summary}" if task else ""
    return FleetError.conflict(
        f"Agent '{seen.name}' already has a running task{doing}."
        " Wait for its end or call stop_agent_task.",
        agent_name=seen.name,
        **details,
    )


def _check_online(seen: Sighting) -> None:
    if not seen.online:
        raise FleetError.bad_request(
            f"Agent '{seen.name}' is offline (its workspace is {seen.state}). Bring its workspace"
            " back, or delete the agent and create it anew.",
            agent_name=seen.name,
            workspace_state=seen.state,
        )


def _check_name(name: str) -> None:
    if len(name) > MAX_NAME or not NAME.match(name) or name.lower() in RESERVED:
        raise FleetError.bad_request(
            f"'{_plain(name, 'name')[:80]}' cannot be an agent's name: 1 to {MAX_NAME} letters and"
            " digits, single hyphens between them, and neither 'new' nor 'create'.",
            field="name",
        )


def _required(value: str, field: str) -> str:
    """Text that says something, without the space around it."""
    text = _plain(value, field).strip()
    if not text:
        raise FleetError.bad_request(f"{field} must not be empty.", field=field)
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise FleetError.bad_request(
            f"{field} has {size:,} bytes; {MAX_TEXT_BYTES:,} is the most.", field=field
        )
    return text


def _plain(value: str, field: str) -> str:
    """Text that can be sent and stored: JSON may smuggle in what is no character."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise FleetError.bad_request(f"{field} is not valid text.", field=field) from error
    if "\x00" in value:
        raise FleetError.bad_request(f"{field} must not hold a NUL character.", field=field)
    return value
