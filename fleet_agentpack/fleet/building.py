"""Agents that are being built: the build goes on when the call that asked for it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fleet_agentpack.fleet.backend import Progress
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.models import AgentSnapshot
from fleet_agentpack.kit.actions import Action

LONGEST_BUILD_S = 3600.0
CREATE_TIMEOUT_S = 240.0  # some clients end every call at 300 s

Build = Callable[[Progress], Awaitable[AgentSnapshot]]


@dataclass
class _Running:
    """One build, and what it said last."""

    name: str
    task: asyncio.Task[AgentSnapshot]
    text: str = ""


class Building:
    """The builds of this process that nobody waits for any longer, or not yet."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._builds: dict[str, _Running] = {}  # by name in lower case; failed ones stay

    @property
    def names(self) -> list[str]:
        """The agents that are being built."""
        return [each.name for each in self._builds.values() if not each.task.done()]

    async def agent(self, name: str, build: Build, report: Progress) -> AgentSnapshot:
        """The agent, once it is built. Raises 503 if that takes too long, and 400 if it is begun.

        A build that is not ready in time goes on; one whose caller is gone is given up.
        """
        earlier = self._builds.get(name.lower())
        if earlier and not earlier.task.done():
            raise FleetError.bad_request(
                f"An agent called '{earlier.name}' is being built.", _show(name), field="name"
            )
        heard = True

        def tell(done: float, total: float | None, text: str) -> None:
            running.text = text
            if heard:
                report(done, total, text)

        running = _Running(name, asyncio.create_task(_bounded(build(tell))))
        self._builds[name.lower()] = running
        try:
            done, _ = await asyncio.wait({running.task}, timeout=self._timeout_s)
        except asyncio.CancelledError:
            running.task.cancel()
            del self._builds[name.lower()]
            raise
        finally:
            heard = False
        if not done:
            running.task.add_done_callback(self._ended)
            raise self._unfinished(running)
        del self._builds[name.lower()]
        return await running.task

    def why_missing(self, name: str) -> FleetError | None:
        """Why an agent is not there that was asked for: its build goes on, or has failed."""
        build = self._builds.get(name.lower())
        if build is None:
            return None
        if not build.task.done():
            return self._unfinished(build)
        error = build.task.exception()
        reason = str(error) if isinstance(error, FleetError) else "the server's log says why."
        again = Action("create_agent", text="Call {} again.", person="{}")
        return FleetError.unavailable(
            f"Agent '{build.name}' could not be built: {reason}", again, agent=build.name
        )

    async def close(self) -> None:
        """Wait for no build any longer."""
        running = [each.task for each in self._builds.values() if not each.task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[AgentSnapshot]) -> None:
        if task.cancelled() or task.exception() is None:
            self._builds = {k: each for k, each in self._builds.items() if each.task is not task}

    def _unfinished(self, build: _Running) -> FleetError:
        now = f" Now: {build.text}" if build.text else ""
        return FleetError.unavailable(
            f"Agent '{build.name}' is still being built, and the build goes on.{now}",
            _show(build.name),
            agent=build.name,
        )


def _show(name: str) -> Action:
    return Action("show_agent", {"agent_name": name}, "Call {} in a minute.", "{}")


async def _bounded(build: Awaitable[AgentSnapshot]) -> AgentSnapshot:
    async with asyncio.timeout(LONGEST_BUILD_S):
        return await build
