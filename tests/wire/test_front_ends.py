"""How a server ends and waits while the front is alone, and while it hands over."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.rig import SERVE, Stdio
from tests.wire.test_stdio import start

CALL = {"name": "fractary_forge_config_get", "arguments": {"key": "x"}}


@pytest.mark.parametrize("importing", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly(number: signal.Signals, importing: bool) -> None:
    with Stdio() as server:
        server.hello()
        server.ask("tools/list")
        if importing:
            server.send("tools/call", **CALL)
        server.process.send_signal(number)
        assert server.process.wait(10) == 128 + number
        server.join()
        assert (server.bad_lines, server.errors) == ([], b"")


def test_a_call_that_is_cancelled_during_the_import_does_no_harm() -> None:
    with Stdio() as server:
        server.hello()
        number = server.send("tools/call", **CALL)
        server.notify("notifications/cancelled", requestId=number)
        assert server.ask("tools/call", **CALL)["result"]
        assert server.close() == 0


def test_input_that_ends_during_the_import_is_answered() -> None:
    with Stdio() as server:
        server.hello()
        number = server.send("tools/call", **CALL)
        assert server.close(30) == 0
        assert server.wait(number)["result"]


def test_a_client_may_write_everything_before_it_reads() -> None:
    """More answers than a pipe holds, and more requests than one holds."""
    lists, pings = 40, 8_000
    lines = [{"jsonrpc": "2.0", "id": n, "method": "tools/list"} for n in range(lists)]
    lines += [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(lists, pings)]
    with start(SERVE) as process:
        sent = "".join(json.dumps(line) + "\n" for line in lines).encode()
        writing = threading.Thread(
            target=lambda: (process.stdin.write(sent), process.stdin.close())
        )
        writing.start()
        writing.join(60)
        assert not writing.is_alive()
        answers = [json.loads(line)["id"] for line in process.stdout]
        assert sorted(answers) == list(range(pings))
        assert process.wait(30) == 0


def test_a_client_that_left_is_not_waited_for() -> None:
    with start(SERVE) as process:
        process.stdout.close()
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
        process.stdin.flush()
        assert process.wait(30) == 0  # while its standard input is still open
        assert process.stderr.read() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_front_sleeps_while_nothing_happens() -> None:
    def switches() -> int:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])

    with Stdio() as server:
        server.hello()
        server.ask("tools/list")
        server.ask("ping")
        time.sleep(0.5)  # it may still be at work on its watch
        before = switches()
        time.sleep(1.5)
        assert switches() - before <= 1


def test_the_first_call_imports_what_it_needs_and_no_more() -> None:
    with Stdio([sys.executable, "-X", "importtime", *SERVE[1:]]) as server:
        server.hello()
        server.ask("tools/list")
        assert server.ask("tools/call", **CALL)["result"]
        assert server.close() == 0
    imported = {line.split("|")[-1].strip() for line in server.errors.decode().splitlines()}
    assert "fleet_agentpack.forge.service" in imported
    others = ("enact.service", "deploy.results", "forge.command_results", "forge.forks.forks")
    assert not imported & {f"fleet_agentpack.{each}" for each in others}
