"""The agents of this machine, one folder each: what they are and their tasks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import convert

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.streams import Streams
from fleet_agentpack.fleet.local.tasks import TaskFolder
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock

LOCK_S = 60.0
NOWHERE = "/nonexistent"


@dataclass(frozen=True)
class LocalAgent:
    """What was decided when an agent was created."""

    id: str
    name: str
    project: str
    origin: str  # the repository or directory that the agent's copy came from
    directory: str  # where the agent works
    branch: str | None
    role: str
    spec: str
    instructions: str
    program: str
    created_at: float
    base: str | None = None  # the commit that it started from; version 0.1 had worktrees, and none
    base_branch: str | None = None  # the branch that it was on, for merges
    model: str | None = None
    ports: tuple[int, int] | None = None  # the first and the last that it may use
    copied: tuple[str, ...] = ()  # files of the project that git does not manage
    submodules: bool = False  # whether the files of submodules were copied

    @property
    def key(self) -> str:
        """The name of its folders: lower case, since names ignore case."""
        return self.name.lower()


def find_agent(root: Path, name: str) -> LocalAgent | None:
    """An agent by name, ignoring case. Raises 503 if its file is invalid."""
    path = root / name.lower() / "agent.json"
    try:
        # Another version of this program may know more about an agent.
        return convert(json.loads(path.read_bytes()), LocalAgent)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise FleetError.unavailable(f"{path} is not a valid agent file: {error}") from error


class AgentFolders:
    """Stores agents under one directory."""

    def __init__(self, root: Path, streams: Streams) -> None:
        self.root = root
        self.streams = streams

    @contextmanager
    def locked(self, name: str) -> Iterator[LocalAgent | None]:
        """One creation, start or deletion of an agent at a time; yields it. Raises 409."""
        try:
            with file_lock(self.root / f".{name.lower()}.lock", timeout_s=LOCK_S):
                yield self.find(name)
        except LockTimeoutError as error:
            raise FleetError.conflict(
                f"Agent '{name}' is being changed by another process. Try again in a moment.",
                agent_name=name,
            ) from error

    def all(self) -> list[LocalAgent]:
        """Every agent, by name."""
        if not self.root.exists():
            return []
        names = sorted(folder.name for folder in self.root.iterdir())
        found = (self._readable(name) for name in names if not name.startswith("."))
        return [agent for agent in found if agent]

    def find(self, name: str) -> LocalAgent | None:
        """An agent by name, ignoring case. Raises 503 if its file is invalid."""
        return find_agent(self.root, name)

    def _readable(self, name: str) -> LocalAgent | None:
        """An agent; one whose file is invalid counts as offline, so that it is not overlooked."""
        try:
            return self.find(name)
        except FleetError:
            return LocalAgent(
                id=f"unreadable-{name}",
                name=name,
                project="",
                origin=NOWHERE,
                directory=NOWHERE,
                branch=None,
                role="",
                spec="",
                instructions="",
                program="",
                created_at=0.0,
            )

    def add(self, agent: LocalAgent) -> None:
        """Store a new agent."""
        folder = self.root / agent.key
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(folder / "agent.json", json.dumps(asdict(agent), indent=2), mode=0o600)

    @contextmanager
    def counting(self) -> Iterator[list[LocalAgent]]:
        """Every agent, while no other one is added."""
        with file_lock(self.root / ".all.lock", timeout_s=LOCK_S):
            yield self.all()

    def mark_unready(self, agent: LocalAgent) -> None:
        """Note that an agent's directory is being set up."""
        (self.root / agent.key).mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.root / agent.key / "unready").touch()

    def mark_ready(self, agent: LocalAgent) -> None:
        """Note that an agent can take tasks."""
        (self.root / agent.key / "unready").unlink(missing_ok=True)

    def is_ready(self, agent: LocalAgent) -> bool:
        """Whether an agent's directory was set up."""
        return not (self.root / agent.key / "unready").exists()

    def remove(self, agent: LocalAgent) -> None:
        """Remove an agent; its file first, so that a crash leaves no half-deleted agent."""
        (self.root / agent.key / "agent.json").unlink(missing_ok=True)
        shutil.rmtree(self.root / agent.key, ignore_errors=True)

    def current(self, agent: LocalAgent) -> TaskFolder | None:
        """The task that an agent was given last."""
        try:
            task_id = (self.root / agent.key / "current").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return self.task(agent, task_id)

    def tasks(self, agent: LocalAgent) -> list[TaskFolder]:
        """Every task of an agent that has left something here."""
        folder = self.root / agent.key / "tasks"
        return (
            [TaskFolder(each, self.streams) for each in folder.iterdir()] if folder.is_dir() else []
        )

    def task(self, agent: LocalAgent, task_id: str) -> TaskFolder:
        """The folder of a task; call `make_current` before it runs."""
        return TaskFolder(self.root / agent.key / "tasks" / task_id, self.streams)

    def withdraw(self, agent: LocalAgent, task: TaskFolder, previous: TaskFolder | None) -> None:
        """Forget a task that could not be started."""
        if previous:
            self.make_current(agent, previous.path.name)
        else:
            (self.root / agent.key / "current").unlink(missing_ok=True)
        shutil.rmtree(task.path, ignore_errors=True)

    def setup_log(self, agent: LocalAgent) -> Path:
        """What an agent's set-up said; it outlives an agent that was not created because of it."""
        return self.root.parent / "setup" / f"{agent.key}.log"

    def home(self, agent: LocalAgent) -> Path:
        """The home of an agent's program."""
        path = self.root / agent.key / "home"
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    def make_current(self, agent: LocalAgent, task_id: str) -> None:
        """Record which task an agent was given last."""
        write_atomic(self.root / agent.key / "current", task_id, mode=0o600)
