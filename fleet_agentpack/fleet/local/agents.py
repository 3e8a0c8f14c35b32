"""The agents of this machine, one folder each: what they are and their tasks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.tasks import TaskFolder
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock

LOCK_S = 60.0


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

    @property
    def key(self) -> str:
        """The name of its folders: lower case, since names ignore case."""
        return self.name.lower()


class AgentFolders:
    """Stores agents under one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def locked(self, name: str) -> Iterator[LocalAgent | None]:
        """One creation, start or deletion of an agent at a time; yields it. Raises 409."""
        try:
            with file_lock(self._root / f".{name.lower()}.lock", timeout_s=LOCK_S):
                yield self.find(name)
        except LockTimeoutError as error:
            raise FleetError.conflict(
                f"Agent '{name}' is being changed by another process. Try again in a moment.",
                agent_name=name,
            ) from error

    def all(self) -> list[LocalAgent]:
        """Every agent, by name."""
        if not self._root.exists():
            return []
        names = sorted(folder.name for folder in self._root.iterdir())
        found = (self.find(name) for name in names if not name.startswith("."))
        return [agent for agent in found if agent]

    def find(self, name: str) -> LocalAgent | None:
        """An agent by name, ignoring case. Raises 503 if its file is invalid."""
        path = self._root / name.lower() / "agent.json"
        try:
            return LocalAgent(**json.loads(path.read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError) as error:
            raise FleetError.unavailable(f"{path} is not a valid agent file: {error}") from error

    def add(self, agent: LocalAgent) -> None:
        """Store a new agent."""
        folder = self._root / agent.key
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(folder / "agent.json", json.dumps(asdict(agent), indent=2), mode=0o600)

    def remove(self, agent: LocalAgent) -> None:
        """Remove an agent; its file first, so that a crash leaves no half-deleted agent."""
        (self._root / agent.key / "agent.json").unlink(missing_ok=True)
        shutil.rmtree(self._root / agent.key, ignore_errors=True)

    def current(self, agent: LocalAgent) -> TaskFolder | None:
        """The task that an agent was given last."""
        try:
            task_id = (self._root / agent.key / "current").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return self.task(agent, task_id)

    def task(self, agent: LocalAgent, task_id: str) -> TaskFolder:
        """The folder of a task; call `make_current` once it runs."""
        return TaskFolder(self._root / agent.key / "tasks" / task_id)

    def make_current(self, agent: LocalAgent, task_id: str) -> None:
        """Record which task an agent was given last."""
        write_atomic(self._root / agent.key / "current", task_id, mode=0o600)
