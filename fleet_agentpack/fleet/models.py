"""What the fleet keeps track of: agents as their engine sees them, tasks as the ledger has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

TaskStatus = Literal["pending", "running", "completed", "failed", "stopped"]
Source = Literal["agent", "human", "ai_controller"]
Ending = Literal["completed", "failed", "idle"]
Activity = Literal["running", "stable"]
OUTCOME_SHOWN = 500  # characters of a result in the one line of a summary
NEEDS_INPUT = "needs_input"  # an agent's attention when it waits for an answer


@dataclass(frozen=True)
class Choices:
    """What a person may choose for an agent on this machine."""

    start: str | None = None  # the branch to start from
    program: str | None = None
    model: str | None = None
    with_changes: bool = False  # take the project's uncommitted changes along


NO_CHOICES = Choices()


@dataclass(frozen=True)
class NewAgent:
    """What `create_agent` asks of an engine."""

    name: str
    project: str
    role: str
    spec: str
    choices: Choices = NO_CHOICES


@dataclass(frozen=True)
class StatusReport:
    """One report of an agent about itself."""

    id: str
    state: str
    message: str
    at: datetime
    uri: str = ""  # what it is about: a pull request, a file
    needs_input: bool = False


@dataclass(frozen=True)
class Episode:
    """A stretch of work as the agent itself reported it, by the engine's own clock."""

    key: str
    opened_at: datetime
    text: str
    progress: str = ""  # what was reported last
    ended: Ending | None = None
    closed_at: datetime | None = None
    outcome: str | None = None
    cost_usd: float | None = None
    opening_seen: bool = True  # False: only the end was reported


@dataclass(frozen=True)
class AgentSnapshot:
    """One agent as its engine saw it at one moment."""

    workspace_id: str
    name: str
    project: str
    created_at: datetime
    updated_at: datetime
    taken_at: datetime  # our clock, before the engine was asked
    build: str  # a task ends with the build it was started in
    alive: bool  # whether that build can still be working
    online: bool
    state: str  # the engine's own name for the workspace's state
    handle: Any  # the engine's own object, for its own use
    role: str = ""
    spec: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    episodes: tuple[Episode, ...] = ()  # where the engine knows them
    reports: tuple[StatusReport, ...] = ()  # otherwise: what the agent reported, oldest first
    reported_at: datetime | None = None  # the newest report, by the engine's clock
    heard_at: datetime | None = None  # a sign of life not long ago, by the engine's clock
    built_at: datetime | None = None  # by the engine's clock
    last_report: StatusReport | None = None  # outlives the build that it was made in
    activity: Activity | None = None  # None: the agent was not asked
    attention: str = ""  # why a person should look at it
    queued: str | None = None  # its task that waits for a place among those of its project
    is_shared: bool = False  # others may give it tasks that our ledger does not know
    warnings: tuple[str, ...] = ()

    @property
    def clock(self) -> datetime | None:
        """The engine's time when the snapshot was taken, or shortly before."""
        return max((at for at in (self.reported_at, self.heard_at) if at), default=None)


@dataclass(frozen=True)
class ChangedFile:
    """A file that an agent changed; without numbers if it is not text."""

    path: str
    added: int | None
    removed: int | None


@dataclass(frozen=True)
class Product:
    """What an agent's work has come to, as far as its engine can see it."""

    directory: str | None = None  # where the agent works
    branch: str | None = None  # the branch of the user's repository that has its commits
    base: str | None = None  # the commit that it started from
    ahead: int = 0  # commits since then
    files: tuple[ChangedFile, ...] = ()
    diff: str = ""


@dataclass(frozen=True)
class Merged:
    """An agent's work in a branch of the user's."""

    message: str
    commit: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class PullRequest:
    """A pull request, or how to make one."""

    push: str | None  # the command to run first, where we could not push
    url: str | None
    status: str | None = None


class ListedAgent(NamedTuple):
    """One agent in a list of the whole fleet; cheap, because fleets are large."""

    workspace_id: str
    name: str
    online: bool
    fingerprint: object  # differs as soon as there is news for the ledger
    snapshot: Callable[[], AgentSnapshot]


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
    progress: str | None = None  # what the agent reported last
    reported_until: datetime | None = None  # the engine's time when it ended without a report

    @property
    def open(self) -> bool:
        """Whether the task occupies its agent."""
        return self.status in ("pending", "running")

    @property
    def summary(self) -> str:
        """What was asked, and the outcome if there is one."""
        asked = shorten(self.description)
        return f"{asked} → {shorten(self.outcome, OUTCOME_SHOWN)}" if self.outcome else asked

    @property
    def was_found(self) -> bool:
        """Whether it was found among the reports of a shared agent, not started by us."""
        return self.id == self.episode

    @property
    def activity(self) -> str:
        """What is being done: the newest report since the task began, else what was asked."""
        return shorten(self.progress) if self.progress else self.summary

    def ended(self, status: TaskStatus, at: datetime, outcome: str | None = None) -> Task:
        """The task once it is over; it never ends before it started."""
        started = self.started_at or self.created_at
        completed = max(at, self.started_at or at)
        return replace(
            self, status=status, started_at=started, completed_at=completed, outcome=outcome
        )


@dataclass(frozen=True)
class Message:
    """One thing that was said to or by an agent."""

    who: str
    text: str
    at: datetime | None = None
    key: str = ""  # the same whenever it is read
    unfinished: bool = False  # it may become longer


def shorten(text: str, length: int = 200) -> str:
    """Text on one line, cut where it gets long."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"
