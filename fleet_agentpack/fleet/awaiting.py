"""Waits until agents are no longer busy, for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Protocol

from fleet_agentpack.fleet import results
from fleet_agentpack.fleet.backend import Progress
from fleet_agentpack.kit.results import UNKNOWN

FIRST_POLL_S = 0.25
LONGEST_POLL_S = 5.0
SLOWER = 1.5
ASKED_AT_ONCE = 8


class ShownAgents(Protocol):
    """What waiting needs to know of a fleet."""

    async def agents(self) -> results.AgentList:
        """Every agent with its status and its task."""

    async def show(self, name: str) -> results.AgentShown:
        """One agent in detail, having asked the agent itself."""


async def wait_for(
    fleet: ShownAgents,
    names: Sequence[str],
    report: Progress,
    *,
    any_one: bool,
    timeout_s: float,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = monotonic,
) -> results.AwaitedAgents:
    """Wait until these agents, or any one of them, are idle or offline. Raises 404.

    Without names, every agent that is busy now.
    """
    began, pause = clock(), FIRST_POLL_S
    if not names:
        names = [row.name for row in (await fleet.agents()).agents if row.status == "busy"]
    wanted = {name.lower(): name for name in names}
    done: dict[str, results.AwaitedAgent] = {}
    while True:
        seen = await _seen(fleet, [name for key, name in wanted.items() if key not in done])
        done |= {key: _ended(agent) for key, agent in seen.items() if agent.status != "busy"}
        busy = [agent for agent in seen.values() if agent.status == "busy"]
        left = timeout_s - (clock() - began)
        if not busy or (any_one and done) or left <= 0:
            rows = [results.StillBusy(agent.name, agent.current_task) for agent in busy]
            timed_out = bool(busy) and not (any_one and done)
            return results.AwaitedAgents(list(done.values()), rows, timed_out)
        told = "; ".join(f"{agent.name}: {agent.current_task or 'busy'}" for agent in busy)
        report(clock() - began, timeout_s, told)
        await sleep(min(pause, left))
        pause = min(pause * SLOWER, LONGEST_POLL_S)


async def _seen(fleet: ShownAgents, names: Sequence[str]) -> dict[str, results.AgentDetail]:
    """These agents as they say themselves: a list can take a report of work for work."""
    turn = asyncio.Semaphore(ASKED_AT_ONCE)

    async def look(name: str) -> results.AgentDetail:
        async with turn:
            return (await fleet.show(name)).agent

    shown = await asyncio.gather(*map(look, names))
    return {name.lower(): agent for name, agent in zip(names, shown, strict=True)}


def _ended(agent: results.AgentDetail) -> results.AwaitedAgent:
    known = agent.metadata.get
    return results.AwaitedAgent(
        agent.name,
        agent.status,
        known("fleet_mcp_last_outcome") or UNKNOWN,
        known("fleet_mcp_attention") or UNKNOWN,
    )
