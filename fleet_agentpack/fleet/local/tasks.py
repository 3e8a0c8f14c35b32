"""A task on this machine: a folder, a detached process, and the state that both tell."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from msgspec import convert, to_builtins

import fleet_agentpack
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.places import is_locked
from fleet_agentpack.fleet.local.processes import (
    TASK_VARIABLE,
    Target,
    end_marked,
    is_of_this_boot,
    signal_target,
)
from fleet_agentpack.fleet.local.stream import ProgramResult, Reading
from fleet_agentpack.fleet.local.streams import Streams
from fleet_agentpack.fleet.models import Episode, Message, shorten
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.process import run

T = TypeVar("T")

START_S = 30.0
INTERRUPT_S = 10.0  # how long a program may take to end by itself after an interrupt
END_S = 3.0
WRAP_UP_S = 150.0  # how long its work may take to be committed and fetched
POLL_S = 0.05
MAX_LOG = 1_000_000
LOST = "The process ended without recording how; it may have been killed."
NO_TURN = "It waited for its turn, and what waited for it was killed."
STOPPED = "The task was stopped before it began."
NEVER_STARTED = "The server ended before the program was started."
_ROOT = Path(fleet_agentpack.__file__).parents[1]
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "from fleet_agentpack.fleet.local.runner import main; main(*sys.argv[2:])"
)


@dataclass(frozen=True)
class TaskRecord:
    """What is known when a task starts (`task.json`)."""

    id: str
    description: str
    program: str
    session: str  # the program's conversation
    continues: bool  # whether that conversation began with an earlier task
    at: float
    readings: tuple[Reading, ...] = ()
    sandboxed: bool = False  # its conversation is in the agent's own home
    denied_in_errors: str = ""  # how its errors name a command that was denied


@dataclass(frozen=True)
class Collection:
    """How the task's work gets to the agent's branch."""

    agents: str
    agent: str
    copies: str
    kept: str
    locks: str
    author: str | None = None
    message: str | None = None  # of the commit that is made of its files; None: none is made


@dataclass(frozen=True)
class Launch:
    """What the runner starts (`launch.json`)."""

    command: list[str]
    directory: str
    sandbox: list[str] = field(default_factory=list)  # the command that runs another one in it
    commit: list[list[str]] = field(default_factory=list)  # run in it once the program has ended
    commit_s: float = 0.0  # how long each of these commands may take
    max_minutes: float | None = None
    max_cost_usd: float | None = None
    collection: Collection | None = None
    owned: list[str] = field(default_factory=list)  # what the agent may change of the sandbox
    places: str | None = None  # where it waits for a place, if there is none yet
    places_count: int = 0
    ledger: str = ""  # where what was read of its output is recorded


@dataclass(frozen=True)
class Exit:
    """How the program ended (`outcome.json`)."""

    at: float
    status: int | None = None
    error: str | None = None
    problem: str | None = None  # what stood in the way of its work getting to the branch
    changed: bool | None = None  # whether anything came of it; None: unknown


class TaskFolder:
    """One task's files."""

    def __init__(self, path: Path, streams: Streams) -> None:
        self.path = path
        self._streams = streams

    def prepare(self, record: TaskRecord, launch: Launch, prompt: str) -> int:
        """Write down a task before anything of it runs; returns its lock, which is held.

        Raises 409 for one that was stopped meanwhile: only a stop writes here before.
        """
        try:
            self.path.mkdir(parents=True, mode=0o700)
        except FileExistsError as error:
            raise FleetError.conflict(STOPPED) from error
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if launch.places:
            (self.path / "waiting").touch()
        self._write("prompt", prompt)
        self._write("launch.json", json.dumps(asdict(launch)))
        self._write("task.json", json.dumps(to_builtins(record)))
        return lock

    def start(
        self, launch: Launch, lock: int, place: int | None, environ: Mapping[str, str]
    ) -> None:
        """Start the program and return once it runs or waits. Raises 503 if it does not start.

        The runner inherits the lock: while it is held, something of this task may be running. It
        also inherits the lock of the place that the task has in its project.
        """
        inherited = [lock] if place is None else [lock, place]
        argv = [sys.executable, "-I", "-c", _BOOT, str(_ROOT), str(self.path)]
        try:
            done = run(
                [*argv, *map(str, inherited)],
                env={**environ, TASK_VARIABLE: self.path.name},
                cwd=Path(launch.directory),
                timeout_s=START_S,
                pass_fds=inherited,
            )
        except TimeoutError as error:
            self.end_left_overs()
            told = f"{launch.command[0]} did not start within {START_S:g} s."
            raise FleetError.unavailable(told) from error
        if done.text not in ("started", "waiting") and (self.path / "interrupted").exists():
            raise FleetError.conflict(STOPPED)
        if done.text not in ("started", "waiting"):
            why = done.text or (done.complaint.splitlines() or ["it ended at once"])[-1]
            raise FleetError.unavailable(f"{launch.command[0]} could not be started: {why}")

    @property
    def record(self) -> TaskRecord | None:
        """What was known when the task started; None if that cannot be read."""
        return self._read("task.json", TaskRecord)

    @property
    def ended(self) -> Exit | None:
        """How it ended, if that was recorded."""
        return self._read("outcome.json", Exit)

    @property
    def running(self) -> bool:
        """Whether the program is running, according to the operating system."""
        outcome = self.path / "outcome.json"
        # The runner may end while we look: the lock is free after the file is written.
        locked = not outcome.exists() and is_locked(self.path / "lock")
        return locked and not outcome.exists()

    @property
    def waiting(self) -> bool:
        """Whether the program is still to be started, once there is a place for it."""
        return (self.path / "waiting").exists() and self.running

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """What differs as soon as there is news of this task."""
        marks = ("waiting", "interrupted")
        return (self.path.name, self.running, *((self.path / mark).exists() for mark in marks))

    def episode(self) -> Episode | None:
        """The task as a stretch of work; None for one that has not begun."""
        record, target = self.record, self._target()
        if record is None or self.waiting:
            return None
        began = target.at if target and target.at else record.at
        episode = Episode(record.id, datetime.fromtimestamp(began, UTC), record.description)
        if self.running:
            return replace(episode, progress=self.result().progress or "")
        ended = self.ended
        closed_at = datetime.fromtimestamp(ended.at if ended else self._last_sign(), UTC)
        if (self.path / "interrupted").exists():
            return replace(episode, ended="idle", closed_at=closed_at)
        result = self.result()
        failed = self._failed(result, ended)
        told = self._reason(result, ended) if failed else result.text or self._tail("output")
        return replace(
            episode,
            ended="failed" if failed else "completed",
            closed_at=closed_at,
            outcome="\n\n".join(part for part in (told, *_notes(result, ended)) if part),
            cost_usd=result.cost_usd,
        )

    def result(self) -> ProgramResult:
        """What the program itself reported; its output is read once, and no further than needed."""
        record = self.record
        readings: Sequence[Reading] = record.readings if record else ()
        stream = self._streams.load(self.path.name)
        if not stream.whole and stream.advance(
            self.path / "output", readings, ended=not self.running
        ):
            self._streams.save(self.path.name, stream)
        return stream.result

    def read_to_the_end(self) -> None:
        """Read what is left of the output, once there will be no more."""
        record, stream = self.record, self._streams.load(self.path.name)
        stream.advance(self.path / "output", record.readings if record else (), ended=True)
        if record and record.denied_in_errors:
            for denied in re.findall(record.denied_in_errors, self._tail("errors", MAX_LOG)):
                stream.deny(f"Bash: {shorten(denied)}")
        stream.whole = True
        self._streams.save(self.path.name, stream)

    @property
    def question(self) -> str | None:
        """What the program wants to know before it goes on."""
        ended = self.ended
        if ended is None or self.running or (self.path / "interrupted").exists():
            return None
        result = self.result()
        if result.asked:
            return result.asked
        last = (result.text or "").rstrip().rstrip("*_`)\"' ")
        if self._failed(result, ended) or not last.endswith(("?", "\uff1f")):
            return None
        return last.splitlines()[-1]

    def interrupt(self) -> None:
        """End the program: interrupt it, then kill all of it. Raises 503 if that fails."""
        self._write("interrupted", "")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if not self._program_runs():
                break
            signal_target(self._target(), number, self.path / "lock")
            patience = INTERRUPT_S if number == signal.SIGINT else END_S
            _wait(lambda: not self._program_runs(), patience)
        _wait(lambda: not self.running, WRAP_UP_S)
        if self.running:
            raise FleetError.unavailable("The program could not be stopped.", task=self.path.name)
        self.end_left_overs()

    def end_left_overs(self) -> None:
        """End what the program left behind.

        Its number may be another program's by now, once its end is recorded or after a restart.
        """
        target = self._target()
        is_known = target is not None and self.ended is None and is_of_this_boot(target.at)
        end_marked(TASK_VARIABLE, self.path.name, target if is_known else None)

    def messages(self) -> list[Message]:
        """The lines of the task's output and errors, the newest of very many."""
        return [message for who in ("output", "errors") for message in self._lines(who)]

    def _lines(self, name: str) -> Iterator[Message]:
        try:
            with (self.path / name).open("rb") as stream:
                at = max(0, stream.seek(0, os.SEEK_END) - MAX_LOG)
                stream.seek(at)
                if at:  # in the middle of a line
                    at += len(stream.readline())
                for line in stream:
                    text = line.decode("utf-8", "replace").strip()
                    if text:
                        key = f"{self.path.name}:{name}:{at}"
                        yield Message(name, text, None, key, not line.endswith(b"\n"))
                    at += len(line)
        except OSError:
            return

    def _failed(self, result: ProgramResult, ended: Exit | None) -> bool:
        """Whether it failed: by its own word or end, or since nothing came of what was denied."""
        if ended is None or ended.status != 0 or ended.error or result.failed:
            return True
        return bool(result.denied) and ended.changed is False

    def _reason(self, result: ProgramResult, ended: Exit | None) -> str:
        """Why a task failed, in the program's own words if there are any."""
        told = (ended and ended.error) or result.error or (result.text if result.failed else None)
        if told:
            return told
        if ended is None and (self.path / "waiting").exists():
            return NO_TURN
        if ended is None:
            return LOST if (self.path / "process.json").exists() else NEVER_STARTED
        if ended.status == 0:
            return result.text or "Nothing came of it."
        status = ended.status
        how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        words = self._tail("errors") or result.text or self._tail("output")
        return f"ended with {how}{f': {words}' if words else ''}"

    def _program_runs(self) -> bool:
        """Whether the program itself runs, not only what follows its end."""
        return self.running and not (self.path / "wrapping-up").exists()

    def _target(self) -> Target | None:
        return self._read("process.json", Target)

    def _last_sign(self) -> float:
        """When the program last wrote something."""
        times = [self.record.at if self.record else 0.0]
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


def _notes(result: ProgramResult, ended: Exit | None) -> list[str]:
    """What else a person should know: what was denied, and work that did not get to its branch."""
    notes = []
    if result.denied:
        notes.append(
            f"Denied: {'; '.join(result.denied)}. To allow it, add the command to 'allow' of the"
            " agent's role in config.toml ([fleet.roles.NAME])."
        )
    if ended and ended.problem:
        notes.append(ended.problem)
    return notes


def _wait(done: Any, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not done() and time.monotonic() < deadline:
        time.sleep(POLL_S)
