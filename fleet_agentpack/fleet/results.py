"""What the fleet answers: one frozen class per answer, its fields in the contract's order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from fleet_agentpack.fleet.models import AgentSnapshot, Message, Source, Task, TaskStatus, shorten
from fleet_agentpack.kit.results import UNKNOWN, Maybe

AgentStatus = Literal["busy", "idle", "offline"]


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

    roles: list[Role]


@dataclass(frozen=True)
class AgentSummary:
    """An agent in the list of all agents."""

    name: str
    status: AgentStatus
    current_task: str | None


@dataclass(frozen=True)
class AgentList:
    """Every agent of the fleet."""

    agents: list[AgentSummary]
    total_count: int


@dataclass(frozen=True)
class AgentDetail:
    """Everything there is to know about one agent."""

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

    @classmethod
    def of(cls, agent: AgentSnapshot, status: AgentStatus, task: Task | None) -> AgentDetail:
        """An agent as its engine reported it, with the task it is working on."""
        return cls(
            name=agent.name,
            workspace_id=agent.workspace_id,
            status=status,
            role=agent.role,
            project=agent.project,
            spec=agent.spec,
            current_task=task.summary if task else None,
            created_at=timestamp(agent.created_at),
            updated_at=timestamp(agent.updated_at),
            metadata={**agent.metadata, "fleet_mcp_agent_spec": agent.spec},
        )


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
    """A deletion; its message names the work that was kept."""

    message: str
    deleted_agent: DeletedAgent


@dataclass(frozen=True)
class DeletionDeclined:
    """A person at the terminal was asked to confirm and said no."""

    message: str = "Nothing was deleted"


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

    @classmethod
    def of(cls, task: Task) -> TaskSummary:
        """A task of the ledger."""
        return cls(
            id=task.id,
            agent_name=task.agent_name,
            summary=task.summary,
            status=task.status,
            source=task.source,
            created_at=timestamp(task.created_at),
            started_at=_optional(task.started_at),
            completed_at=_optional(task.completed_at),
        )


@dataclass(frozen=True)
class TaskHistory:
    """One page of an agent's tasks, newest first."""

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

    @classmethod
    def of(cls, task: Task) -> RunningTask:
        """A task as it was handed over, even if it has ended since."""
        asked, started_at = shorten(task.description), _optional(task.started_at)
        return cls(
            task.id, task.agent_name, asked, "running", timestamp(task.created_at), started_at
        )


@dataclass(frozen=True)
class TaskStarted:
    """A task that an agent accepted."""

    task: RunningTask
    agent_status: AgentStatus
    message: str


@dataclass(frozen=True)
class TaskStopped:
    """A task that was interrupted."""

    task: TaskSummary
    agent_status: AgentStatus
    message: str


WithMessage = AgentCreated | AgentDeleted | DeletionDeclined | TaskStarted | TaskStopped


@dataclass(frozen=True)
class TranscriptLine:
    """One thing that was said to or by an agent."""

    who: str
    text: str
    at: str | None

    @classmethod
    def of(cls, message: Message) -> TranscriptLine:
        """A message of the conversation."""
        return cls(message.who, message.text, _optional(message.at))


@dataclass(frozen=True)
class Transcript:
    """What was said, oldest first."""

    lines: list[TranscriptLine]


def timestamp(moment: datetime) -> str:
    """The contract's form of a time: `YYYY-MM-DDTHH:MM:SSZ`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _optional(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)
