"""The processes that are connected to a Dagger engine: one for each run at a time, kept for later.

Connecting costs seconds and a run a fraction of one, so a process that has answered is used again.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

from fleet_agentpack.enact.backends.dagger_messages import Answer, Request
from fleet_agentpack.kit.process import kill_group

CONNECT_S = 40.0  # more than the process itself waits
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
        self, request: Request, timeout_s: float = CONNECT_S, tick: Tick = lambda _: None
    ) -> Answer:
        """The answer to a request. Raises `LostError`, or `TimeoutError` after ending its run."""
        connection = self._taken()
        try:
            answer = connection.ask(request, timeout_s, tick)
        except BaseException:
            connection.end()
            raise
        self._give_back(connection)
        if "lacks" in answer:
            raise LostError(answer["reason"])
        return answer

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
        made = _Connection(self._env)
        try:
            ready = made.answer(CONNECT_S)
            if "lacks" in ready:
                raise LostError(ready["reason"])
        except (LostError, TimeoutError) as error:
            made.end()
            reason = str(error) or "no Dagger engine answers"
            self._lost = (time.monotonic(), reason)
            raise LostError(reason) from error
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
        """Kill the process and what it started; the engine ends what it ran for it."""
        kill_group(self._child.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(5)
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
