"""Runs a child process within limits of time and output, and cleans up all it started."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    duration_s: float
    reason: str = "exit"  # or `timeout`, `output`


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
    started = time.monotonic()
    with tempfile.TemporaryFile() as stdin:
        stdin.write(command.stdin)
        stdin.seek(0)
        child = subprocess.Popen(
            list(command.argv),
            env=dict(command.env),
            cwd=command.cwd,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    reading = _Reading(child, largest_output)
    reason = "stopped"
    try:
        reason = reading.until_end(started + timeout_s, lambda: tick(time.monotonic() - started))
    finally:
        _kill_group(child)
        reading.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(KILL_WAIT_S)
        _kill_marked(command.env.get(MARKER))
        if reason != "exit":
            on_kill()
    stdout, stderr = reading.output()
    code = child.returncode if child.returncode is not None else -signal.SIGKILL
    return Ended(code, stdout, stderr, time.monotonic() - started, reason)


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

    def until_end(self, deadline: float, tick: Callable[[], None]) -> str:
        """Read until the child ends or reaches a limit; returns which."""
        next_tick = time.monotonic() + TICK_S
        ended_at: float | None = None
        while self._selector.get_map() or self._child.poll() is None:
            now = time.monotonic()
            if now >= deadline:
                return "timeout"
            if now >= next_tick:
                tick()
                next_tick = now + TICK_S
            if ended_at is None and self._child.poll() is not None:
                ended_at = now
            if ended_at is not None and now - ended_at > GRACE_S:
                return "exit"
            self._wait(max(min(deadline, next_tick, now + 0.1) - now, 0.0))
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
