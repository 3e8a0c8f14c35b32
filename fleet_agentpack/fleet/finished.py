"""What people and agents do with an agent's work: merge it, bring it up to date, propose it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fleet_agentpack.fleet import results
from fleet_agentpack.fleet.backend import Finishing
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.models import AgentSnapshot
from fleet_agentpack.kit.approval import Question
from fleet_agentpack.kit.results import UNKNOWN

Find = Callable[[str], Awaitable[AgentSnapshot]]


@dataclass(frozen=True)
class FinishedWork:
    """The use cases around finished work, the same for every engine that can reach it."""

    engine: Finishing | None
    find: Find

    async def merging(self, name: str, into: str | None = None, squash: bool = False) -> Question:
        """What a person is asked before a merge."""
        return await self._engine.merging(await self.find(name), into, squash)

    async def merge(
        self, name: str, into: str | None = None, squash: bool = False, approved: str | None = None
    ) -> results.WorkMerged:
        """Merge an agent's work into a branch: all of it, or 409 and nothing is changed.

        Raises `PlanChangedError` if that would not be, or no longer, what was approved.
        """
        done = await self._engine.merge(await self.find(name), into, squash, approved)
        return results.WorkMerged(done.message, done.commit, done.files)

    async def sync(self, name: str) -> results.WorkSynced:
        """Bring an agent's work on top of the newest commit of the branch that it came from."""
        return results.WorkSynced(await self._engine.sync(await self.find(name)))

    async def propose(self, name: str) -> results.WorkProposed:
        """Open a pull request of an agent's work, or say how."""
        made = await self._engine.pull_request(await self.find(name))
        if made.push is None:
            return results.WorkProposed(f"Pull request: {made.url}", UNKNOWN, made.url or UNKNOWN)
        told = f"Push it with: {made.push}"
        if made.url:
            told += f"\nThen open: {made.url}"
        return results.WorkProposed(told, made.push, made.url or UNKNOWN)

    @property
    def _engine(self) -> Finishing:
        if self.engine is None:
            raise FleetError.bad_request(
                "The work of this agent is inside its Coder workspace; give it the task to push it."
            )
        return self.engine
