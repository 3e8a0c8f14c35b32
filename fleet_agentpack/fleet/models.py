"""What the fleet talks about: agents as seen, tasks as kept, and the results the seed contracts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from fleet_agentpack.kit.results import UNKNOWN, Maybe

AgentStatus = Literal["busy", "idle", "offline"]
TaskStatus = Literal["pending", "running", "completed", "failed", "stopped"]
Source = Literal["agent", "human", "ai_controller"]
Ending = Literal["completed", "failed", "idle"]

SUMMARY_LENGTH = 200


@dataclass(frozen=True)
class Project:
    """Something agents can work on."""

    name: str
    display_name: str
    description: str
    template_id: str
    template_name: str


@dataclass(frozen=True)
class Role:
    """A persona that an agent can be created with."""

    name: str
    display_name: str
    description: str


@dataclass(frozen=True)
class Order:
    """What `create_agent` asks of an engine."""

    name: str
    project: str
    role: str
    spec: str


@dataclass(frozen=True)
class Report:
    """One word of an agent about itself."""

    id: str
    state: str
    message: str
    at: datetime


@dataclass(frozen=True)
class Episode:
    """A stretch of work as the agent itself reported it, with the engine's own clock."""

    key: str
    opened_at: datetime
    text: str
    ended: Ending | None = None
    closed_at: datetime | None = None
    outcome: str | None = None
    cost_usd: float | None = None
    opening_seen: bool = True  # False: only the end was reported


@dataclass(frozen=True)
class Sighting:
    """One agent as its engine saw it at one moment."""

    workspace_id: str
    name: str
    project: str
    created_at: datetime
    updated_at: datetime
    looked_at: datetime  # our clock, when the look began
    build: str  # tasks die with the build they were started in
    alive: bool  # whether that build can still be working
    online: bool
    state: str  # the engine's own word for the workspace's state
    handle: Any  # the engine's own object, for its own use
    role: str = ""
    spec: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    episodes: tuple[Episode, ...] = ()
    reported_at: datetime | None = None  # the newest report, on the engine's clock
    last_word: Report | None = None  # outlives the build in which it was said
    activity: Literal["running", "stable"] | None = None  # the agent's own word, when asked
    warnings: tuple[str, ...] = ()


class Glance(NamedTuple):
    """One agent as a look over the whole fleet shows it; cheap, since fleets are large."""

    workspace_id: str
    name: str
    online: bool
    mark: object  # differs as soon as there is news for the ledger
    sighting: Callable[[], Sighting]


@dataclass(frozen=True)
class Task:
    """A row of the ledger."""

    id: str
    workspace_id: str
    agent_name: str
    description: str
    status: TaskStatus
    source: Source
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    outcome: str | None = None
    build: str = ""
    reported_before: datetime | None = None  # the newest report when the task was started
    episode: str | None = None  # the reported stretch of work that is this task
    stop_requested: bool = False
    cost_usd: float | None = None

    @property
    def open(self) -> bool:
        """Whether the task occupies its agent."""
        return self.status in ("pending", "running")

    @property
    def summary(self) -> str:
        """What was asked, and how it ended when that was told."""
        asked = shorten(self.description)
        return f"{asked} → {shorten(self.outcome, 500)}" if self.outcome else asked


@dataclass(frozen=True)
class Line:
    """A line of what an agent said."""

    who: str
    text: str
    at: datetime | None = None


def shorten(text: str, length: int = SUMMARY_LENGTH) -> str:
    """Text on one line, cut where it gets long."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def timestamp(moment: datetime) -> str:
    """The contract's form of a time: `YYYY-MM-DDTHH:MM:SSZ`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def agent_row(seen: Glance, status: AgentStatus, task: Task | None) -> dict[str, Any]:
    """An agent as `list_agents` shows it."""
    return {"name": seen.name, "status": status, "current_task": task.summary if task else None}


def agent_detail(seen: Sighting, status: AgentStatus, task: Task | None) -> dict[str, Any]:
    """An agent as `show_agent` and `create_agent` show it."""
    return {
        "name": seen.name,
        "workspace_id": seen.workspace_id,
        "status": status,
        "role": seen.role,
        "project": seen.project,
        "spec": seen.spec,
        "current_task": task.summary if task else None,
        "created_at": timestamp(seen.created_at),
        "updated_at": timestamp(seen.updated_at),
        "metadata": {**seen.metadata, "fleet_mcp_agent_spec": seen.spec},
    }


def task_row(task: Task, *, source: bool = True, completed: bool = True) -> dict[str, Any]:
    """A task as the history shows it."""
    return {
        "id": task.id,
        "agent_name": task.agent_name,
        "summary": task.summary,
        "status": task.status,
        "source": task.source if source else UNKNOWN,
        "created_at": timestamp(task.created_at),
        "started_at": _optional(task.started_at),
        "completed_at": _optional(task.completed_at) if completed else UNKNOWN,
    }


def warned(warnings: tuple[str, ...]) -> dict[str, Maybe[list[str]]]:
    """The one key a result may carry beyond its seed, only when there is something to say."""
    return {"warnings": list(warnings) if warnings else UNKNOWN}


def _optional(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)
