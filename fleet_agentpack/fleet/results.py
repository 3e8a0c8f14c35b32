"""What the fleet answers: one frozen class per answer, its fields in the contract's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from fleet_agentpack.fleet.models import ChangedFile, Message, Source, TaskStatus
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

    @property
    def rank(self) -> int:
        """Where not all agents fit, those with the lowest rank are shown."""
        return RANKS[self.status]


class WaitingAgent(AgentSummary):
    """An agent that waits for an answer."""

    __slots__ = ()

    @property
    def rank(self) -> int:
        """Among the first."""
        return 0


@dataclass(frozen=True)
class AgentList:
    """Every agent of the fleet."""

    parts: ClassVar[tuple[Part, ...]] = (
        Rows("agents", collection="fleet://agents", first=lambda row: row.rank),
    )
    agents: list[AgentSummary]
    total_count: int
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


class OverviewRow(NamedTuple):
    """An agent as a person at a terminal wants to see it."""

    name: str
    status: AgentStatus
    activity: str  # what it does now
    elapsed_s: int | None  # since its task began
    cost_usd: float | None  # of all its tasks
    last_outcome: str
    attention: str


@dataclass(frozen=True)
class Overview:
    """Every agent of the fleet, for a person at a terminal."""

    agents: list[OverviewRow]


@dataclass(frozen=True)
class AwaitedAgent:
    """An agent that is no longer busy, and how its last task ended."""

    name: str
    status: AgentStatus
    last_outcome: Maybe[str] = UNKNOWN
    attention: Maybe[str] = UNKNOWN


@dataclass(frozen=True)
class StillBusy:
    """An agent that goes on working."""

    name: str
    current_task: str | None


@dataclass(frozen=True)
class AwaitedAgents:
    """What came of waiting for agents."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("done"), Rows("still_busy"))
    done: list[AwaitedAgent]
    still_busy: list[StillBusy]
    timed_out: bool


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
    cost_usd: Maybe[float] = UNKNOWN
    known_only_here: Maybe[bool] = UNKNOWN  # other controllers of the agent cannot see it


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
class PastTask:
    """A task with its whole description and result."""

    id: str
    description: str
    status: TaskStatus
    source: Source
    created_at: str
    started_at: str | None
    completed_at: str | None
    result: str | None
    cost_usd: float | None


@dataclass(frozen=True)
class Past:
    """Everything that the ledger has of an agent, also of one that is gone; newest first."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("tasks"),)
    workspace_id: str
    agent_name: str
    deleted_at: str | None
    tasks: list[PastTask]
    total_count: int


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


@dataclass(frozen=True)
class AgentWork:
    """What an agent has made since it started, and what it said last."""

    parts: ClassVar[tuple[Part, ...]] = (
        Text("diff"),
        Text("result"),
        Rows("messages"),
        Rows("files"),
    )
    branch: str | None
    base: str | None
    directory: str | None
    ahead: int
    files: Sequence[ChangedFile]
    diff: str
    messages: list[TranscriptLine]
    result: str | None  # of the last task, in full
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class WorkMerged:
    """An agent's work in a branch of the user's; without a commit, it was declined."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("files"),)
    message: str
    commit: Maybe[str] = UNKNOWN
    files: Maybe[Sequence[str]] = UNKNOWN


@dataclass(frozen=True)
class WorkSynced:
    """An agent's work on top of the newest commit that it came from."""

    message: str


@dataclass(frozen=True)
class WorkProposed:
    """A pull request of an agent's work, or how to make one."""

    message: str
    push: Maybe[str]
    url: Maybe[str]


Described = TypeVar("Described", AgentDetail, TaskSummary, PastTask, RunningTask, TranscriptLine)


def describe(kind: type[Described], value: object, **given: Any) -> Described:
    """The result for a value that has the same fields, except those that are given."""
    for field in fields(kind):
        if field.name not in given:
            given[field.name] = _told(getattr(value, field.name))
    return kind(**given)


def transcript_of(said: Iterable[Message]) -> Transcript:
    """What was said, as an answer."""
    return Transcript([describe(TranscriptLine, message) for message in said])


def _told(value: object) -> object:
    return moment(value) if isinstance(value, datetime) else value


def moment(at: datetime) -> str:
    """A time in the contract's form, `YYYY-MM-DDTHH:MM:SSZ`."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
