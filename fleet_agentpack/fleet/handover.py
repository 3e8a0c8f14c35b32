"""Hands tasks over: claimed in the ledger, sent, and recorded as arrived or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from fleet_agentpack.fleet.backend import Queueing, Tasks
from fleet_agentpack.fleet.errors import FleetError, UnconfirmedError
from fleet_agentpack.fleet.ledger import Ledger, TaskOpenError
from fleet_agentpack.fleet.models import AgentSnapshot, Task


class HandOver:
    """Gives agents their tasks, to the end even if the caller is gone."""

    def __init__(self, backend: Tasks, ledger: Ledger, now: Callable[[], datetime]) -> None:
        self._backend, self._ledger, self._now = backend, ledger, now
        self._under_way: set[asyncio.Task[tuple[Task, tuple[str, ...]]]] = set()

    async def give(
        self, agent: AgentSnapshot, task: Task, *, queue: bool = False
    ) -> tuple[Task, tuple[str, ...]]:
        """The task once the agent has it, and the agents whose tasks it waits for.

        A cancelled call still confirms or releases its claim.
        """
        running = asyncio.create_task(self._give(agent, task, queue))
        self._under_way.add(running)
        running.add_done_callback(self._under_way.discard)
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(running)

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def _give(
        self, agent: AgentSnapshot, task: Task, queue: bool
    ) -> tuple[Task, tuple[str, ...]]:
        """Claim the agent in the ledger, send the task, and record whether it arrived."""
        try:
            await asyncio.to_thread(self._ledger.claim, task)
        except TaskOpenError as error:
            raise FleetError.busy(agent.name) from error
        try:
            ahead = await self._send(agent, task, queue)
        except UnconfirmedError:
            await asyncio.to_thread(self._ledger.doubt, task.id, self._now())
            raise
        except BaseException:
            await asyncio.to_thread(self._ledger.release, task.id)
            raise
        if ahead:
            return task, ahead
        return await asyncio.to_thread(self._ledger.confirm, task.id, self._now()), ()

    async def _send(self, agent: AgentSnapshot, task: Task, queue: bool) -> tuple[str, ...]:
        """Send a task, or let it wait where there is a line; returns who is ahead of it."""
        if queue and isinstance(self._backend, Queueing):
            return await self._backend.enqueue(agent, task)
        await self._backend.send(agent, task)
        return ()
