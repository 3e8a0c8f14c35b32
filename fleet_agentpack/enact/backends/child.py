"""Runs a child process within limits of time and output, and cleans up all it started."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fleet_agentpack.enact.backends import keyring

with contextlib.suppress(ImportError):  # there is none on Windows
    import fcntl

LARGEST_OUTPUT = 1024 * 1024
TICK_S = 0.5
GRACE_S = 0.3  # how long a finished program's children may keep its output open
KILL_WAIT_S = 5.0
MOST_ROUNDS = 5  # of killing processes that fork while being killed
MARKER = "ENACT_EXECUTION_ID"


@dataclass(frozen=True)
class Command:
    """What to start: an argument list, its whole environment, its directory, its input."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | None = None
    stdin: bytes = b""
    descriptors: Sequence[int] = ()  # open files that the child inherits under the same numbers


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    duration_s: float
    reason: str = "exit"  # or `timeout`, `output`, `stopped`
    notes: tuple[str, ...] = ()  # what the caller has to be told


def execute(
    command: Command,
    *,
    timeout_s: float,
    tick: Callable[[float], None] = lambda _: None,
    on_kill: Callable[[], None] = lambda: None,
    largest_output: int = LARGEST_OUTPUT,
) -> Ended:
    """Run to the end, or to a limit. `tick` is called twice a second and may raise to stop it.

    Raises `OSError` when the program cannot be started.
    """
    run = _Run(command, timeout_s, largest_output)
    thread = threading.Thread(target=run.carry_out, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(TICK_S)
            if thread.is_alive():
                tick(time.monotonic() - run.started)
    finally:
        run.stopped.set()
        thread.join()
        if run.ended is None or run.ended.reason != "exit":
            on_kill()
    if run.ended is None:
        raise run.failure or OSError("it could not be started")
    return run.ended


class _Run:
    """One run, in a thread with a session keyring of its own, which the child inherits.

    The thread lives as long as the child: some children are killed when it ends.
    """

    def __init__(self, command: Command, timeout_s: float, largest_output: int) -> None:
        self.started = time.monotonic()
        self.stopped = threading.Event()
        self.ended: Ended | None = None
        self.failure: BaseException | None = None
        self._command, self._largest = command, largest_output
        self._deadline = self.started + timeout_s

    def carry_out(self) -> None:
        """Start the child, read its output to the end, and kill what is left."""
        keyring.join_new()
        try:
            child = self._spawn()
        except BaseException as error:  # noqa: BLE001 - raised again where the run was asked for
            self.failure = error
            return
        reading = _Reading(child, self._largest)
        try:
            reason = reading.until_end(self._deadline, self.stopped.is_set)
        finally:
            _kill_group(child)
            reading.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(KILL_WAIT_S)
            _kill_marked(self._command.env.get(MARKER))
        stdout, stderr = reading.output()
        code = child.returncode if child.returncode is not None else -signal.SIGKILL
        self.ended = Ended(code, stdout, stderr, time.monotonic() - self.started, reason)

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = self._command
        with _read_only(command.stdin) as stdin:
            return subprocess.Popen(
                list(command.argv),
                env=dict(command.env),
                cwd=command.cwd,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=command.descriptors,
            )


@contextmanager
def _read_only(content: bytes) -> Iterator[IO[bytes]]:
    """A file with this content that the child cannot write to, not even opened again."""
    if sys.platform == "linux":
        with sealed(content) as stream:
            yield stream
        return
    with tempfile.NamedTemporaryFile() as written:
        written.write(content)
        written.flush()
        with Path(written.name).open("rb") as stream:
            yield stream


def sealed(content: bytes) -> IO[bytes]:
    """A file in memory that nobody can change any more; Linux only."""
    stream = os.fdopen(os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
    stream.write(content)
    stream.seek(0)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(stream, fcntl.F_ADD_SEALS, seals)
    return stream


class _Reading:
    """Both outputs of a child, each up to a limit."""

    def __init__(self, child: subprocess.Popen[bytes], largest: int) -> None:
        self._child = child
        self._largest = largest
        self._buffers: dict[int, bytearray] = {}
        self._selector = selectors.DefaultSelector()
        for stream in (child.stdout, child.stderr):
            assert stream is not None  # noqa: S101 - both are pipes
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)
            self._buffers[stream.fileno()] = bytearray()

    def until_end(self, deadline: float, is_stopped: Callable[[], bool]) -> str:
        """Read until the child ends, reaches a limit or is stopped; returns which."""
        ended_at: float | None = None
        while self._selector.get_map() or self._child.poll() is None:
            now = time.monotonic()
            if now >= deadline:
                return "timeout"
            if is_stopped():
                return "stopped"
            if ended_at is None and self._child.poll() is not None:
                ended_at = now
            if ended_at is not None and now - ended_at > GRACE_S:
                return "exit"
            self._wait(max(min(deadline, now + 0.1) - now, 0.0))
            if any(len(buffer) > self._largest for buffer in self._buffers.values()):
                return "output"
        return "exit"

    def _wait(self, seconds: float) -> None:
        """Read what arrives in this time; once both outputs are closed, wait for the child."""
        if not self._selector.get_map():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)
            return
        for key, _ in self._selector.select(seconds):
            if not self._read(key.fd):
                self._selector.unregister(key.fileobj)

    def output(self) -> tuple[bytes, bytes]:
        """What was read, truncated at the limit."""
        stdout, stderr = (bytes(buffer[: self._largest]) for buffer in self._buffers.values())
        return stdout, stderr

    def close(self) -> None:
        """Close our ends of the pipes."""
        self._selector.close()
        for stream in (self._child.stdout, self._child.stderr):
            if stream is not None:
                stream.close()

    def _read(self, descriptor: int) -> bool:
        try:
            chunk = os.read(descriptor, 65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._buffers[descriptor] += chunk
        return bool(chunk)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _kill_marked(marker: str | None) -> None:
    """Kill processes that left the group, found by a variable they inherited."""
    if not marker:
        return
    for _ in range(MOST_ROUNDS):
        found = _marked(f"{MARKER}={marker}".encode())
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _marked(needle: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if needle in (entry / "environ").read_bytes().split(b"\x00"):
                found.append(int(entry.name))
    return found
