"""What the fleet answers: one frozen class per answer, its fields in the contract's order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from fleet_agentpack.fleet.models import Source, TaskStatus
from fleet_agentpack.kit.fit import Part, Rows, Text
from fleet_agentpack.kit.results import UNKNOWN, Maybe

AgentStatus = Literal["busy", "idle", "offline"]
RANKS: Mapping[AgentStatus, int] = {"busy": 0, "idle": 1, "offline": 2}


@dataclass(frozen=True)
class Project:
    """Something agents can work on."""

    name: str
    display_name: str
    description: str
    template_id: str
    template_name: str


@dataclass(frozen=True)
class ProjectList:
    """Every project that agents can be created for."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("projects"),)
    projects: list[Project]
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class Role:
    """A persona that an agent can be created with."""

    name: str
    display_name: str
    description: str


@dataclass(frozen=True)
class RoleList:
    """The roles of one project."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("roles"),)
    roles: list[Role]


class AgentSummary(NamedTuple):
    """An agent in the list of all agents; cheap, because fleets are large."""

    name: str
    status: AgentStatus
    current_task: str | None


@dataclass(frozen=True)
class AgentList:
    """Every agent of the fleet."""

    parts: ClassVar[tuple[Part, ...]] = (
        Rows("agents", collection="fleet://agents", first=lambda row: RANKS[row.status]),
    )
    agents: list[AgentSummary]
    total_count: int


@dataclass(frozen=True)
class AgentDetail:
    """Everything there is to know about one agent."""

    parts: ClassVar[tuple[Part, ...]] = (Text("spec"), Text("metadata"))
    name: str
    workspace_id: str
    status: AgentStatus
    role: str
    project: str
    spec: str
    current_task: str | None
    created_at: str
    updated_at: str
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class AgentShown:
    """One agent in detail."""

    agent: AgentDetail
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class AgentCreated:
    """A new agent, ready for its first task."""

    agent: AgentDetail
    message: str
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class DeletedAgent:
    """What identified an agent that is gone."""

    name: str
    workspace_id: str


@dataclass(frozen=True)
class AgentDeleted:
    """A deletion; its message names the work that was kept. Without an agent, it was declined."""

    message: str
    deleted_agent: Maybe[DeletedAgent] = UNKNOWN


@dataclass(frozen=True)
class TaskSummary:
    """A task with its outcome."""

    id: str
    agent_name: str
    summary: str
    status: TaskStatus
    source: Source
    created_at: str
    started_at: str | None
    completed_at: str | None


@dataclass(frozen=True)
class TaskHistory:
    """One page of an agent's tasks, newest first."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("tasks"),)
    tasks: list[TaskSummary]
    total_count: int
    page: int
    page_size: int
    total_pages: int
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class RunningTask:
    """A task that has only just begun: it has no outcome yet."""

    id: str
    agent_name: str
    summary: str
    status: TaskStatus
    created_at: str
    started_at: str | None


@dataclass(frozen=True)
class TaskChanged:
    """A task that an agent accepted, or one that was interrupted."""

    task: RunningTask | TaskSummary
    agent_status: AgentStatus
    message: str


WithMessage = AgentCreated | AgentDeleted | TaskChanged


@dataclass(frozen=True)
class TranscriptLine:
    """One thing that was said to or by an agent."""

    who: str
    text: str
    at: str | None


@dataclass(frozen=True)
class Transcript:
    """What was said, oldest first."""

    lines: list[TranscriptLine]


Described = TypeVar("Described", AgentDetail, TaskSummary, RunningTask, TranscriptLine)


def describe(kind: type[Described], value: object, **given: Any) -> Described:
    """The result for a value that has the same fields, except those that are given."""
    for field in fields(kind):
        if field.name not in given:
            given[field.name] = _told(getattr(value, field.name))
    return kind(**given)


def _told(value: object) -> object:
    """A value; a time in the contract's form, `YYYY-MM-DDTHH:MM:SSZ`."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value
