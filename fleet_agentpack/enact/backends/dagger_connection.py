"""The processes that are connected to a Dagger engine: one for each task at a time, kept for later.

Connecting costs seconds and a run a fraction of one, so a process that has answered is used again.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from fleet_agentpack.enact.backends.dagger_messages import (
    CLEAN_S,
    RUNNER,
    START_S,
    Answer,
    Request,
)
from fleet_agentpack.kit.process import kill_group

PATIENCE_S = 10.0  # for what a process says itself, beyond the time that it waits
REACH_S = 3.0
LOOK_S = 3.0
MOST_IDLE = 2
TICK_S = 0.5
FORGOTTEN_S = 30.0  # how long an engine that did not answer is not asked again
LARGEST_ANSWER = 16 * 1024 * 1024
MODULE = "fleet_agentpack.enact.backends.dagger_child"

Tick = Callable[[float], None]


class LostError(Exception):
    """No connection, or something that the engine needs is missing; the message says what."""


class Connections:
    """Connected processes; any thread may ask."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._idle: list[_Connection] = []
        self._turn = threading.Lock()
        self._lost: tuple[float, str] | None = None  # when and why the last attempt failed

    def probe(self) -> None:
        """Make sure that there is a connection. Raises `LostError`."""
        self._give_back(self._taken())

    def ask(
        self, request: Request, timeout_s: float = START_S, tick: Tick = lambda _: None
    ) -> Answer:
        """The answer to a request. Raises `LostError`, or `TimeoutError` after ending its run."""
        connection = self._taken()
        try:
            answer = connection.ask(request, timeout_s, self._looking_out(tick))
        except LostError:
            connection.kill()
            raise
        except BaseException:
            connection.end()
            raise
        self._give_back(connection)
        if "lacks" in answer:
            raise LostError(answer["reason"])
        return answer

    def _looking_out(self, tick: Tick) -> Tick:
        """A tick that also notices, now and then, that the engine is gone: no answer says so."""
        looked = time.monotonic()

        def both(elapsed_s: float) -> None:
            nonlocal looked
            tick(elapsed_s)
            if time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                _check_reachable(self._env.get(RUNNER, ""))

        return both

    def close(self) -> None:
        """End every connection that is not in use."""
        with self._turn:
            idle, self._idle = self._idle, []
        for each in idle:
            each.end()

    def _taken(self) -> _Connection:
        with self._turn:
            self._idle = [each for each in self._idle if each.is_alive()]
            if self._idle:
                return self._idle.pop()
            if self._lost and time.monotonic() - self._lost[0] < FORGOTTEN_S:
                raise LostError(self._lost[1])
        try:
            return self._made()
        except (LostError, TimeoutError) as error:
            reason = str(error) or "no Dagger engine answers"
            self._lost = (time.monotonic(), reason)
            raise LostError(reason) from error

    def _made(self) -> _Connection:
        """A new connection. Raises `LostError` or `TimeoutError`."""
        _check_reachable(self._env.get(RUNNER, ""))
        made = _Connection(self._env)
        try:
            ready = made.answer(START_S + PATIENCE_S)
            if "lacks" in ready:
                raise LostError(ready["reason"])
        except BaseException:
            made.end()
            raise
        self._lost = None
        return made

    def _give_back(self, connection: _Connection) -> None:
        with self._turn:
            if connection.is_alive() and len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.end()


class _Connection:
    """One process, and lines of JSON to and from it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        # -P: never import from the working directory, which may be anyone's.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE],
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._unread = b""

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._child.poll() is None

    def ask(self, request: Request, timeout_s: float, tick: Tick) -> Answer:
        """Send a request and wait for its answer. Raises `LostError` or `TimeoutError`."""
        stdin = self._child.stdin
        assert stdin is not None  # noqa: S101 - it is a pipe
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise LostError("the connection to the Dagger engine has ended") from error
        return self.answer(timeout_s, tick)

    def answer(self, timeout_s: float, tick: Tick = lambda _: None) -> Answer:
        """The next line. Raises `LostError` or `TimeoutError`."""
        started = time.monotonic()
        stdout = self._child.stdout
        assert stdout is not None  # noqa: S101 - it is a pipe
        with selectors.DefaultSelector() as waiting:
            waiting.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                elapsed = time.monotonic() - started
                if elapsed >= timeout_s:
                    raise TimeoutError
                if waiting.select(min(TICK_S, timeout_s - elapsed)):
                    chunk = stdout.read1(65536)  # type: ignore[attr-defined]
                    self._unread += chunk
                    if not chunk or len(self._unread) > LARGEST_ANSWER:
                        raise LostError("the connection to the Dagger engine has ended")
                else:
                    tick(elapsed)
        line, _, self._unread = self._unread.partition(b"\n")
        answer: Answer = json.loads(line)
        return answer

    def end(self) -> None:
        """End the process: it stops its task and prunes, or else it is killed."""
        assert self._child.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(CLEAN_S + 1)
        self.kill()

    def kill(self) -> None:
        """End the process and what it started, whatever it does."""
        kill_group(self._child.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(5)
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _check_reachable(address: str) -> None:
    """Notice at once that nothing listens where an engine should. Raises `LostError`."""
    parts = urlsplit(address)
    try:
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as trial:
                trial.connect(parts.path)
        elif parts.scheme == "tcp" and parts.hostname and parts.port:
            socket.create_connection((parts.hostname, parts.port), REACH_S).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LostError(f"no Dagger engine can be reached: {address}: {reason}") from error
