"""What an engine has to offer; the service knows nothing else about Coder or this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from fleet_agentpack.fleet.models import (
    AgentSnapshot,
    ListedAgent,
    Merged,
    Message,
    NewAgent,
    Product,
    PullRequest,
    Task,
)
from fleet_agentpack.fleet.results import ProjectList, Role
from fleet_agentpack.kit.approval import Question

# How far a long call has got: done, total if known, and what is happening.
Progress = Callable[[float, float | None, str], None]


class Catalogue(Protocol):
    """What agents can be created for."""

    @property
    def no_projects_hint(self) -> str:
        """What to do when there are no projects."""

    async def projects(self) -> ProjectList:
        """Every project that an agent can be created for."""

    async def roles(self, project: str) -> list[Role]:
        """The roles of a project. Raises 404 for an unknown one."""


class Workspaces(Protocol):
    """Agents are created, found and deleted. Raises 404 for anything that is not an agent."""

    async def agents(self) -> list[ListedAgent]:
        """Every agent, as far as one list of the whole fleet tells."""

    async def find(self, name: str, *, detailed: bool) -> AgentSnapshot:
        """One agent by name, ignoring case; detailed: with its metadata and activity."""

    async def create(self, new: NewAgent, report: Progress) -> AgentSnapshot:
        """Create an agent and wait until it is ready."""

    async def wake(self, agent: AgentSnapshot, report: Progress) -> AgentSnapshot:
        """The agent, brought up if it is not running and may be; else as it is."""

    async def unsaved(self, agent: AgentSnapshot) -> Sequence[str] | None:
        """The files whose changes are not committed; None where that cannot be seen."""

    async def delete(self, agent: AgentSnapshot, report: Progress) -> str | None:
        """Delete an agent, even a busy one; returns a note about the work that was kept."""


class Tasks(Protocol):
    """Agents are given tasks."""

    async def with_activity(self, agent: AgentSnapshot) -> AgentSnapshot:
        """The same agent, having asked it whether it is working."""

    async def send(self, agent: AgentSnapshot, task: Task) -> None:
        """Give an agent a task. Raises 409 when it is working already."""

    async def interrupt(self, agent: AgentSnapshot, task: Task) -> None:
        """Stop an agent's task and wait until it is idle."""

    async def messages(self, agent: AgentSnapshot) -> list[Message]:
        """What was said, oldest first."""


@runtime_checkable
class Queueing(Protocol):
    """Tasks can wait where an engine runs only so many at once."""

    async def enqueue(self, agent: AgentSnapshot, task: Task) -> tuple[str, ...]:
        """Give an agent a task; returns the agents whose tasks it waits for, if it does."""


class Works(Protocol):
    """Agents' work is seen."""

    async def product(self, agent: AgentSnapshot) -> Product:
        """What an agent has made since it started; empty where that cannot be seen."""


class Finishing(Protocol):
    """Agents' work becomes the user's."""

    async def merging(self, agent: AgentSnapshot, into: str | None, squash: bool) -> Question:
        """What a merge of an agent's work would do. Raises 400 where there is no branch."""

    async def merge(
        self, agent: AgentSnapshot, into: str | None, squash: bool, approved: str | None
    ) -> Merged:
        """Merge an agent's work; all of it, or 409 and nothing is changed."""

    async def sync(self, agent: AgentSnapshot) -> str:
        """Bring an agent's work on top of its base's newest commit; returns what was done."""

    async def pull_request(self, agent: AgentSnapshot) -> PullRequest:
        """Open a pull request of an agent's work, or say how."""


class Backend(Workspaces, Tasks, Works, Protocol):
    """An engine: Coder, or this machine."""

    @property
    def finishing(self) -> Finishing | None:
        """What can be done with agents' work; None where it is out of reach."""

    @property
    def catalogue(self) -> Catalogue:
        """What agents can be created for."""

    async def close(self) -> None:
        """Close connections."""
