"""Waits until an agent can take a task: it may be starting, or not know yet that it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fleet_agentpack.fleet.backend import Backend
from fleet_agentpack.fleet.conversation import was_addressed
from fleet_agentpack.fleet.errors import FleetError, NotAnsweringError
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.models import AgentSnapshot, Task
from fleet_agentpack.fleet.showing import busy_with, online

SETTLE_S = 5.0  # how long an agent may take to notice that its work is done
SETTLE_POLL_S = 0.25
NEW_S = 120.0  # how long after its build an agent may still be starting its program
SETTLE_NEW_S = 30.0


@dataclass(frozen=True)
class Readiness:
    """Asks agents until they are idle, or busy beyond doubt."""

    backend: Backend
    ledger: Ledger
    find: Callable[[str], Awaitable[AgentSnapshot]]
    reconciled: Callable[[AgentSnapshot], Awaitable[Task | None]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]

    async def idle(self, agent: AgentSnapshot) -> AgentSnapshot:
        """The agent once it can take a task. Raises 409 when it is busy."""
        is_new, is_theirs, began = await self._is_new(agent), False, self.now()
        while True:
            patience = timedelta(seconds=SETTLE_NEW_S if is_new else SETTLE_S)
            is_late = self.now() >= began + patience
            agent = await self._asked(agent, patient=is_new and not is_late)
            task = await self.reconciled(agent)
            if task is None and agent.activity == "stable":
                return agent
            # The start of a program looks like work; so does, for a moment, work that is over.
            newest = await asyncio.to_thread(self.ledger.newest, agent.workspace_id)
            if is_new or newest is None:
                is_theirs = await was_addressed(self.backend, agent)
                is_new = is_new and not is_theirs
            if is_late or (not is_new and (task or (newest is None and is_theirs))):
                raise busy_with(agent, task) if task else FleetError.busy(agent.name)
            await self.sleep(SETTLE_POLL_S)
            if task:
                agent = online(await self.find(agent.name))

    async def _is_new(self, agent: AgentSnapshot) -> bool:
        """Whether an agent's program may still be starting: nobody gave it a task since."""
        newest = await asyncio.to_thread(self.ledger.newest, agent.workspace_id)
        if agent.clock is None or agent.built_at is None:
            return False
        if newest and newest.build == agent.build and not newest.was_found:
            return False
        return agent.clock - agent.built_at < timedelta(seconds=NEW_S)

    async def _asked(self, agent: AgentSnapshot, *, patient: bool) -> AgentSnapshot:
        """The agent with its activity; one that is only starting may not answer yet."""
        try:
            return await self.backend.with_activity(agent)
        except NotAnsweringError:
            if not patient:
                raise
            return replace(agent, activity=None)
