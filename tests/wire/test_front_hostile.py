"""Odd descriptors, signals at any moment, and a busy home: the front minds none of it."""

from __future__ import annotations

import fcntl
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rig import SERVE, Stdio, child_environment, eventually
from tests.wire.scripts import CALL, READY, as_bytes, hello, request

LARGE = 64 << 20
SERVING = [hello(), READY, request(1, "tools/list"), request(2, "tools/call", CALL)]


@contextmanager
def server(**more: Any) -> Iterator[subprocess.Popen[bytes]]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(SERVE, **{**pipes, "env": child_environment(), **more}) as process:
        yield process
        process.kill()


def ids(lines: bytes) -> list[Any]:
    return sorted(json.loads(line)["id"] for line in lines.splitlines())


def test_descriptors_that_do_not_wait_are_waited_for() -> None:
    (reading, to_server), (from_server, writing) = os.pipe(), os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    with server(stdin=reading, stdout=writing) as process:
        os.close(reading)
        os.close(writing)
        lists = [request(number, "tools/list") for number in range(3, 20)]
        with open(to_server, "wb", buffering=0) as stdin, open(from_server, "rb") as stdout:
            stdin.write(as_bytes(SERVING[:2]))
            assert json.loads(stdout.readline())["id"] == 0  # it has read, and waits for more
            stdin.write(as_bytes([*SERVING[2:], *lists]))
            stdin.close()
            assert ids(stdout.read()) == list(range(1, 20))
        assert (process.wait(30), process.stderr.read()) == (0, b"")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("closed", [[1], [2], [1, 2]], ids=str)
def test_a_closed_descriptor_is_nobody_elses(closed: list[int]) -> None:
    """Its number must not become that of the wire, or of a file that is opened later."""
    with server(preexec_fn=lambda: [os.close(each) for each in closed]) as process:
        process.stdin.write(as_bytes(SERVING))
        process.stdin.flush()
        if 1 not in closed:
            assert [json.loads(process.stdout.readline())["id"] for _ in "abc"] == [0, 1, 2]
        if 2 in closed and 1 not in closed:
            assert Path(f"/proc/{process.pid}/fd/2").readlink() == Path(os.devnull)
        out, errors = process.communicate(timeout=30)
        assert (process.returncode, out, errors) == (0, b"", b"")


def test_a_very_long_line_is_refused_and_forgotten() -> None:
    with Stdio() as running:
        running.hello()
        running.raw(b'{"jsonrpc":"2.0","id":1,"x":"' + b"x" * LARGE)
        running.raw(b'"}\n')
        assert running.wait(1)["error"]["code"] == -32600
        assert running.ask("tools/call", **CALL)["result"]
        assert running.close() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_ends_it_quietly(number: signal.Signals) -> None:
    moments = random.Random(number)
    for _ in range(40):
        with server(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
            process.stdin.write(as_bytes(SERVING[:1]))
            process.stdin.flush()
            process.stdout.readline()  # from here on, the end is ours
            process.stdin.write(as_bytes(SERVING[1:]))
            process.stdin.flush()
            time.sleep(moments.uniform(0, 1.2))  # the moment is what is tried
            process.send_signal(number)
            out, errors = process.communicate(timeout=30)
            assert (process.returncode, errors) == (128 + number, b"")
            assert set(ids(out)) <= {1, 2}


def test_a_broken_configuration_that_appears_ends_no_session(home: Path) -> None:
    with Stdio() as running:
        running.hello()
        path = home / ".config/fleet-agentpack/config.toml"
        path.parent.mkdir(parents=True)
        path.write_text("this is [no TOML")
        assert running.ask("tools/call", **CALL)["result"]
        assert running.close() == 0
    assert b"config.toml" in running.errors and b"Traceback" not in running.errors


def test_a_request_does_not_wait_until_changes_come_to_rest(home: Path) -> None:
    code = """
import sys
from fleet_agentpack import __main__
from fleet_agentpack.wire import front

def readable(descriptors, timeout_s, readable=front._readable):
    if timeout_s == front.QUIET_S:
        sys.stderr.write("waiting for rest\\n")
        sys.stderr.flush()
    return readable(descriptors, timeout_s)

front.QUIET_S, front._readable = 3600, readable
__main__.main()
"""
    change = home / ".enact" / "tools.json"
    change.parent.mkdir()
    with Stdio([sys.executable, "-c", code]) as running:
        running.hello()
        running.ask("tools/list")
        eventually(lambda: (change.touch(), b"waiting for rest" in running.errors)[1])
        assert running.ask("ping")["result"] == {}


@pytest.mark.skipif(sys.platform != "linux", reason="sets the size of a pipe")
def test_of_two_announcements_that_nobody_reads_none_is_lost(home: Path, work: Path) -> None:
    """Tools and prompts change at once; both announcements have to wait for the server."""
    with server(cwd=work) as process:
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, select.PIPE_BUF)  # one answer fills it
        process.stdin.write(as_bytes([*SERVING[:2], request(1, "prompts/list")]))
        process.stdin.flush()
        for _ in range(2):
            process.stdout.readline()
        process.stdin.write(as_bytes(request(3, "ping")))
        process.stdin.flush()
        assert select.select([process.stdout], [], [], 30)[0]
        process.send_signal(signal.SIGSTOP)  # so that it sees both changes at once
        (home / ".enact/tools").mkdir(parents=True)
        (work / ".agent").mkdir()
        process.send_signal(signal.SIGCONT)
        eventually(lambda: "pydantic_core" in Path(f"/proc/{process.pid}/maps").read_text())
        process.stdin.close()
        told = [json.loads(line).get("method", "") for line in process.stdout]
        changed = {f"notifications/{each}/list_changed" for each in ("tools", "prompts")}
        assert told[0] == "" and changed <= set(told)
