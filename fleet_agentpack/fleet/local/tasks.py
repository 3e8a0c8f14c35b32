"""A task on this machine: a folder, a detached process, and the state that both tell."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from msgspec import convert

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.programs import Program, ProgramResult
from fleet_agentpack.fleet.models import Episode, Message
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.process import run

T = TypeVar("T")

RUNNER = Path(__file__).with_name("runner.py")
START_S = 30.0  # how long a task may take to get going before it counts as lost
INTERRUPT_S = 10.0  # how long a program may take to end by itself after an interrupt
END_S = 3.0
POLL_S = 0.05
MAX_LOG = 1_000_000
LOST = "The process ended without recording how; it may have been killed."


@dataclass(frozen=True)
class TaskRecord:
    """What is known when a task starts (`task.json`)."""

    id: str
    description: str
    program: str
    session: str  # the program's conversation
    continues: bool  # whether that conversation began with an earlier task
    at: float


@dataclass(frozen=True)
class Launch:
    """What the runner starts (`launch.json`)."""

    command: list[str]
    directory: str


@dataclass(frozen=True)
class ProgramProcess:
    """The process that the runner started (`process.json`)."""

    pid: int


@dataclass(frozen=True)
class Exit:
    """How that process ended (`outcome.json`)."""

    at: float
    status: int | None = None
    error: str | None = None


class TaskFolder:
    """One task's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(
        self, record: TaskRecord, launch: Launch, prompt: str, environ: Mapping[str, str]
    ) -> None:
        """Start the program and return once it runs. Raises 503 if it does not start."""
        self.path.mkdir(parents=True, mode=0o700)
        self._write("prompt", prompt)
        self._write("launch.json", json.dumps(asdict(launch)))
        self._write("task.json", json.dumps(asdict(record)))
        interpreter = [sys.executable, "-I", "-S", str(RUNNER), str(self.path)]
        done = run(interpreter, env=environ, cwd=Path(launch.directory), timeout_s=START_S)
        if done.text != "started":
            raise FleetError.unavailable(
                f"{launch.command[0]} could not be started: {done.text or done.complaint}"
            )

    @property
    def record(self) -> TaskRecord | None:
        """What was known when the task started; None if that cannot be read."""
        return self._read("task.json", TaskRecord)

    @property
    def running(self) -> bool:
        """Whether the program is running, according to the operating system."""
        outcome = self.path / "outcome.json"
        # The runner may end while we look: the lock is free after the file is written.
        if outcome.exists() or (not self._locked() and outcome.exists()):
            return False
        if self._read("process.json", ProgramProcess) is None:
            return time.time() - self._started_at() < START_S
        return self._locked()

    def episode(self, program: Program | None) -> Episode | None:
        """The task as a stretch of work."""
        record = self.record
        if record is None:
            return None
        episode = Episode(record.id, datetime.fromtimestamp(record.at, UTC), record.description)
        if self.running:
            return episode
        ended = self._read("outcome.json", Exit)
        closed_at = datetime.fromtimestamp(ended.at if ended else self._last_sign(), UTC)
        if (self.path / "interrupted").exists():
            return replace(episode, ended="idle", closed_at=closed_at)
        result = self.result(program)
        failed = ended is None or ended.status != 0 or result.failed
        return replace(
            episode,
            ended="failed" if failed else "completed",
            closed_at=closed_at,
            outcome=self._reason(result, ended) if failed else result.text or self._tail("output"),
            cost_usd=result.cost_usd,
        )

    def result(self, program: Program | None) -> ProgramResult:
        """What the program itself reported."""
        return program.read(self.path / "output") if program else ProgramResult()

    def interrupt(self) -> None:
        """End the program: interrupt its process group, then kill it. Raises 503 if that fails."""
        write_atomic(self.path / "interrupted", "")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if not self.running:
                break
            self._signal(number)
            deadline = time.monotonic() + (INTERRUPT_S if number == signal.SIGINT else END_S)
            while self.running and time.monotonic() < deadline:
                time.sleep(POLL_S)
        if self.running:
            raise FleetError.unavailable("The program could not be stopped.", task=self.path.name)
        self._signal(signal.SIGKILL)  # what the program left behind in its group

    def messages(self) -> list[Message]:
        """The lines of the task's output and errors."""
        return [
            Message(who, line)
            for who in ("output", "errors")
            for line in self._tail(who, MAX_LOG).splitlines()
        ]

    def _reason(self, result: ProgramResult, ended: Exit | None) -> str:
        """Why a task failed, in the program's own words if there are any."""
        told = result.error or (result.text if result.failed else None) or (ended and ended.error)
        if told:
            return told
        if ended is None:
            return LOST
        status = ended.status
        how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        words = self._tail("errors") or result.text or self._tail("output")
        return f"ended with {how}{f': {words}' if words else ''}"

    def _signal(self, number: int) -> None:
        process = self._read("process.json", ProgramProcess)
        if process:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)

    def _locked(self) -> bool:
        """Whether the runner or its program lives; a shared lock lets two callers look at once."""
        try:
            with (self.path / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        return False

    def _started_at(self) -> float:
        return self.record.at if self.record else 0.0

    def _last_sign(self) -> float:
        """When the program last wrote something."""
        times = [self._started_at()]
        for name in ("output", "errors"):
            with suppress(OSError):
                times.append((self.path / name).stat().st_mtime)
        return max(times)

    def _tail(self, name: str, size: int = 2000) -> str:
        try:
            with (self.path / name).open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - size))
                return stream.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _write(self, name: str, content: str) -> None:
        write_atomic(self.path / name, content, mode=0o600)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return convert(json.loads((self.path / name).read_bytes()), kind)
        except (OSError, ValueError):
            return None
