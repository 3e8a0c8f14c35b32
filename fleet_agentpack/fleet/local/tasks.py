"""A task on this machine: a folder, a detached process, and what both tell of its state."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.programs import Program, Result
from fleet_agentpack.fleet.models import Episode, Line
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.process import run

RUNNER = Path(__file__).with_name("runner.py")
START_S = 30.0  # how long a task may take to get going before it counts as lost
INTERRUPT_S = 10.0  # how long a program may take to end by itself after an interrupt
END_S = 3.0
POLL_S = 0.05
MAX_LOG = 1_000_000
LOST = "The process ended without saying how; it may have been killed."


@dataclass(frozen=True)
class Launch:
    """Everything that starting a task needs."""

    task_id: str
    description: str
    program: Program
    command: list[str]
    prompt: str
    directory: Path
    session: str
    continues: bool


class TaskFolder:
    """One task's files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, launch: Launch, environ: Mapping[str, str]) -> None:
        """Start the program and return once it runs. Raises 503 when it cannot."""
        self.path.mkdir(parents=True, mode=0o700)
        write_atomic(self.path / "prompt", launch.prompt, mode=0o600)
        self._write("launch.json", {"command": launch.command, "directory": str(launch.directory)})
        about = {
            "id": launch.task_id,
            "description": launch.description,
            "program": launch.program.name,
            "session": launch.session,
            "continues": launch.continues,
            "at": time.time(),
        }
        self._write("task.json", about)
        interpreter = [sys.executable, "-I", "-S", str(RUNNER), str(self.path)]
        done = run(interpreter, env=environ, cwd=launch.directory, timeout_s=START_S)
        if done.text != "started":
            raise FleetError.unavailable(
                f"{launch.command[0]} could not be started: {done.text or done.complaint}"
            )

    @property
    def about(self) -> dict[str, Any]:
        """What was noted when the task was started; empty when that cannot be read."""
        return self._read("task.json") or {}

    @property
    def running(self) -> bool:
        """Whether the program is at work, by the word of the operating system."""
        if (self.path / "outcome.json").exists():
            return False
        if not self._locked() and (self.path / "outcome.json").exists():
            return False
        if self._read("process.json") is None:
            return time.time() - self._started_at() < START_S
        return self._locked()

    def episode(self, program: Program | None) -> Episode | None:
        """The task as a stretch of work."""
        about = self.about
        if not about:
            return None
        opened = datetime.fromtimestamp(about["at"], UTC)
        episode = Episode(about["id"], opened, about["description"])
        if self.running:
            return episode
        outcome = self._read("outcome.json") or {}
        closed = datetime.fromtimestamp(outcome.get("at") or self._last_sign(), UTC)
        if self.interrupted:
            return Episode(episode.key, opened, episode.text, "idle", closed)
        result = self.result(program)
        status = outcome.get("status")
        failed = status != 0 or result.failed
        return Episode(
            episode.key,
            opened,
            episode.text,
            "failed" if failed else "completed",
            closed,
            self._reason(result, outcome) if failed else result.text or self._tail("output"),
            result.cost_usd,
        )

    def result(self, program: Program | None) -> Result:
        """What the program itself said."""
        return program.read(self.path / "output") if program else Result()

    @property
    def interrupted(self) -> bool:
        """Whether somebody asked for the task to end."""
        return (self.path / "interrupted").exists()

    def interrupt(self) -> None:
        """End the program: ask its process group, then insist. Raises 503 when it will not go."""
        write_atomic(self.path / "interrupted", "")
        for number, patience_s in (
            (signal.SIGINT, INTERRUPT_S),
            (signal.SIGTERM, END_S),
            (signal.SIGKILL, END_S),
        ):
            if not self.running:
                break
            self._signal(number)
            deadline = time.monotonic() + patience_s
            while self.running and time.monotonic() < deadline:
                time.sleep(POLL_S)
        if self.running:
            raise FleetError.unavailable("The program could not be ended.", task=self.path.name)
        self._signal(signal.SIGKILL)  # what the program left behind in its group

    def lines(self) -> list[Line]:
        """The task's output and complaints."""
        return [
            Line(who, line)
            for who in ("output", "errors")
            for line in self._tail(who, MAX_LOG).splitlines()
        ]

    def _reason(self, result: Result, outcome: dict[str, Any]) -> str:
        """Why a task failed, in the program's own words where it has some."""
        status = outcome.get("status")
        told = result.error or (result.text if result.failed else None) or outcome.get("error")
        if told:
            return str(told)
        if not outcome:
            return LOST
        ended = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        words = self._tail("errors") or result.text or self._tail("output")
        return f"ended with {ended}{f': {words}' if words else ''}"

    def _signal(self, number: int) -> None:
        process = self._read("process.json")
        if process:
            try:
                os.killpg(process["pid"], number)
            except (ProcessLookupError, PermissionError):
                return

    def _locked(self) -> bool:
        """Whether the runner or its program lives; shared, so that two who ask do not clash."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def _started_at(self) -> float:
        at = self.about.get("at")
        return float(at) if isinstance(at, int | float) else 0.0

    def _last_sign(self) -> float:
        """When the program last wrote something."""
        times = [self._started_at()]
        for name in ("output", "errors"):
            try:
                times.append((self.path / name).stat().st_mtime)
            except OSError:
                continue
        return max(times)

    def _tail(self, name: str, size: int = 2000) -> str:
        try:
            with (self.path / name).open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - size))
                return stream.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        write_atomic(self.path / name, json.dumps(content), mode=0o600)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found = json.loads((self.path / name).read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None
