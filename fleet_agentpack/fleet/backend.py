"""What an engine has to offer; the service knows nothing else about Coder or this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fleet_agentpack.fleet.models import AgentSnapshot, ListedAgent, Message, NewAgent, Task
from fleet_agentpack.fleet.results import Project, Role

# How far a long call has got: done, total if known, and what is happening.
Progress = Callable[[float, float | None, str], None]


class Catalogue(Protocol):
    """What agents can be created for."""

    @property
    def no_projects_hint(self) -> str:
        """What to do when there are no projects."""

    async def projects(self) -> list[Project]:
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


class Backend(Workspaces, Tasks, Protocol):
    """An engine: Coder, or this machine."""

    @property
    def catalogue(self) -> Catalogue:
        """What agents can be created for."""

    async def close(self) -> None:
        """Close connections."""
