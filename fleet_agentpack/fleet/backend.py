"""What an engine has to offer; the service knows nothing else of Coder or of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fleet_agentpack.fleet.models import Glance, Line, Order, Project, Role, Sighting, Task

# How far a long call is: done, total when known, and what is happening.
Progress = Callable[[float, float | None, str], None]


class Catalogue(Protocol):
    """What agents can be made of."""

    @property
    def without_projects(self) -> str:
        """What to tell whoever finds no projects."""

    async def projects(self) -> list[Project]:
        """Every project that an agent can be created for."""

    async def roles(self, project: str) -> list[Role]:
        """The roles of a project. Raises 404 for an unknown one."""


class Workspaces(Protocol):
    """Agents as such: made, seen, removed. Raises 404 for anything that is not an agent."""

    async def all(self) -> list[Glance]:
        """Every agent, as far as one look at the whole fleet tells."""

    async def look(self, name: str, *, closely: bool) -> Sighting:
        """One agent by its name in any case; closely: its metadata and its own word as well."""

    async def create(self, order: Order, report: Progress) -> Sighting:
        """Make an agent and wait until it is ready."""

    async def delete(self, seen: Sighting, report: Progress) -> str | None:
        """Remove an agent, whatever it does; returns what the caller should know of it."""


class Work(Protocol):
    """Agents at work."""

    async def ask(self, seen: Sighting) -> Sighting:
        """The same agent with its own word on whether it works."""

    async def send(self, seen: Sighting, task: Task) -> None:
        """Give an agent a task. Raises 409 when it is at work."""

    async def interrupt(self, seen: Sighting, task: Task) -> None:
        """Stop what an agent does and wait until it is idle."""

    async def transcript(self, seen: Sighting) -> list[Line]:
        """What was said, oldest first."""


class Backend(Catalogue, Workspaces, Work, Protocol):
    """An engine: Coder, or this machine."""

    async def close(self) -> None:
        """Let go of connections."""
