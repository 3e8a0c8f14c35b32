"""Starts the program as a fork of a process that has imported it: in milliseconds, not a second.

What a started program does is the same; only how long its imports take is not. Tests of the start
itself ask for a process of its own. `python -m tests.warm DESCRIPTOR` is the process that forks.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
SERVE = [sys.executable, "-m", "fleet_agentpack"]
EXAMPLE = [sys.executable, "-m", "tests.wire.example"]
LARGEST = 1 << 18
NUMBER = struct.Struct("q")
# Read while Python or FastMCP is imported: a fork would not notice them.
READ_AT_START = ("PYTHON", "FASTMCP_", "COVERAGE_")


def can_start(command: Sequence[str], env: dict[str, str]) -> bool:
    """Whether a fork is as good as a process of its own."""
    usual = {"PYTHONPATH"} if env.get("PYTHONPATH") == str(ROOT) else set()
    special = {name for name in env if name.startswith(READ_AT_START)} - usual
    return sys.platform == "linux" and [*command[:3]] in (SERVE, EXAMPLE) and not special


class WarmProcess:
    """As much of a `Popen` as the tests use."""

    def __init__(
        self, command: Sequence[str], cwd: Path | None, env: dict[str, str], *, together: bool
    ) -> None:
        """Start it; `together` sends errors where the output goes."""
        (their_in, our_in), (our_out, their_out) = os.pipe(), os.pipe()
        our_err, their_err = (-1, os.dup(their_out)) if together else os.pipe()
        self._status, their_status = os.pipe()
        theirs = [their_in, their_out, their_err, their_status]
        start = {"words": command[2:], "cwd": str(cwd or Path.cwd()), "env": env}
        zygote = _zygote()
        socket.send_fds(zygote, [json.dumps(start).encode()], theirs)
        for each in theirs:
            os.close(each)
        self.stdin: IO[bytes] = os.fdopen(our_in, "wb")
        self.stdout: IO[bytes] = os.fdopen(our_out, "rb")
        self.stderr: IO[bytes] | None = None if together else os.fdopen(our_err, "rb")
        (self.pid,) = NUMBER.unpack(os.read(self._status, NUMBER.size))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(SERVE, timeout or 0)
            (self.returncode,) = NUMBER.unpack(os.read(self._status, NUMBER.size))
            os.close(self._status)
        return self.returncode

    def communicate(
        self, given: bytes | None = None, timeout: float | None = None
    ) -> tuple[bytes, bytes]:
        """Give it all of its input and wait for all that it says."""
        found: dict[IO[bytes], bytes] = {}
        streams = [each for each in (self.stdout, self.stderr) if each]
        threads = [
            threading.Thread(target=lambda each=each: found.update({each: each.read()}))
            for each in streams
        ]
        for thread in threads:
            thread.start()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(given or b"")
            self.stdin.close()
        try:
            self.wait(timeout)
        finally:
            self.kill()
            for thread, stream in zip(threads, streams, strict=True):
                thread.join()
                stream.close()
        return found[self.stdout], found[self.stderr] if self.stderr else b""

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@functools.cache
def _zygote() -> socket.socket:
    """The connection to the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# The process that forks


def _import_everything() -> None:
    """Also build what a server builds for its first answers."""
    from fleet_agentpack import cli
    from fleet_agentpack.climpt import service as climpt
    from fleet_agentpack.deploy import service as deploy
    from fleet_agentpack.enact import service as enact
    from fleet_agentpack.fleet import engine as fleet
    from fleet_agentpack.forge import service as forge
    from fleet_agentpack.wire import http, listing, server, stdio
    from fleet_agentpack.wire.selection import Selection

    assert cli and climpt and deploy and enact and fleet and forge and http and server and stdio
    asked = [listing.initialize("2025-11-25"), listing.Request("tools/list", {})]
    with tempfile.TemporaryDirectory() as home:
        listing.results(Selection(), Path(home), asked)
    tempfile.tempdir = None  # each start has its own


def _fork(start: dict[str, Any], theirs: list[int]) -> None:
    """Fork a process that starts the program and waits for it; only the program returns."""
    *streams, status = theirs
    child = os.fork()
    if child:
        for each in streams:
            os.close(each)
        os.write(status, NUMBER.pack(child))
        ended = os.waitpid(child, 0)[1]
        os.write(status, NUMBER.pack(os.waitstatus_to_exitcode(ended)))
        os._exit(0)
    os.close(status)
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update(start["env"])
    os.chdir(start["cwd"])
    sys.argv = start["words"]


def main() -> None:
    """Fork for every start that is asked for, until nobody can ask any more."""
    from fleet_agentpack.__main__ import main as serve
    from tests.wire.example import main as serve_example

    connection = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    gc.freeze()
    while True:
        message, theirs, _, _ = socket.recv_fds(connection, LARGEST, 4)
        if not message:
            return
        if not os.fork():
            connection.close()
            _fork(json.loads(message), theirs)
            break
        for each in theirs:
            os.close(each)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    sys.exit(serve_example() if sys.argv[0] == EXAMPLE[2] else serve())


if __name__ == "__main__":
    main()
