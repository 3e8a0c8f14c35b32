"""The wire over a real stdio process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.rig import EXAMPLE, MODERN, SERVE, Stdio, child_environment, modern_meta, pipe, text_of


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-03-26", "2025-03-26"),
        ("1999-01-01", "2025-11-25"),
        ("2031-01-01", "2025-11-25"),
    ],
)
def test_initialize_negotiates_the_version(asked: str, answered: str) -> None:
    with Stdio() as server:
        result = server.hello(asked)
        assert result["protocolVersion"] == answered
        assert result["serverInfo"]["name"] == "agentpack"
        assert "tools" in result["capabilities"]
        assert result["instructions"]
        assert server.close() == 0
        assert server.bad_lines == []
        assert server.errors == b""


def test_a_client_without_handshake_is_served() -> None:
    with Stdio() as server:
        discovered = server.ask("server/discover", _meta=modern_meta())["result"]
        assert MODERN in discovered["supportedVersions"]
        tools = server.ask("tools/list", _meta=modern_meta())["result"]["tools"]
        assert {"search", "describe", "execute", "reload"} <= {tool["name"] for tool in tools}
        params = {"name": "search", "arguments": {}, "_meta": modern_meta()}
        assert server.ask("tools/call", **params)["result"]["isError"] is True


def test_a_bare_pipe_is_answered_before_the_process_ends() -> None:
    done = pipe('{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0
    assert answer["id"] == 1
    assert len(answer["result"]["tools"]) >= 4


def test_a_last_line_without_newline_counts() -> None:
    done = pipe('{"jsonrpc":"2.0","id":"a","method":"tools/list"}')
    assert json.loads(done.stdout)["id"] == "a"


@pytest.mark.parametrize("tool", ["wait", "work_in_thread"])
def test_a_piped_call_that_takes_a_second_is_answered(tool: str) -> None:
    arguments = {"seconds": 1.2} if tool == "wait" else {"steps": 24}
    params = {"name": tool, "arguments": arguments}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    done = pipe(json.dumps(call) + "\n", EXAMPLE)
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0
    assert answer["id"] == 7
    assert answer["result"]["isError"] is False


def test_end_of_input_without_a_request_ends_at_once() -> None:
    done = pipe("")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_standard_output_carries_nothing_but_messages() -> None:
    with Stdio(EXAMPLE) as server:
        server.hello()
        assert server.call("noise")["structuredContent"] == {"read": ""}
        assert server.close() == 0
        assert server.bad_lines == []
        for where in ("at start", "print", "descriptor", "original", "child", "at exit"):
            assert f"noise: {where}".encode() in server.errors


def test_a_print_while_importing_misses_the_wire(work: Path) -> None:
    (work / "sitecustomize.py").write_text(
        "import sys, importlib.abc\n"
        "class Noisy(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'fastmcp': print('importing', name)\n"
        "sys.meta_path.insert(0, Noisy())\n"
    )
    done = pipe('{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n', PYTHONPATH=str(work))
    assert len(done.stdout.splitlines()) == 1
    assert b"importing fastmcp" in done.stderr


def test_a_dotenv_in_the_working_directory_changes_nothing(work: Path) -> None:
    (work / ".env").write_text(
        "FASTMCP_TRANSPORT=http\nFASTMCP_LOG_LEVEL=LOUD\nFLEET_AGENTPACK_ONLY=nowhere\n"
    )
    done = pipe('{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n', FASTMCP_LOG_LEVEL="LOUD")
    assert done.returncode == 0
    assert json.loads(done.stdout)["result"]["tools"]


def test_children_inherit_the_environment_as_it_was() -> None:
    code = (
        "import os, fleet_agentpack.server as s; print(os.environ['FASTMCP_X'], "
        "[n for n in os.environ if n.startswith('FASTMCP_')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=child_environment(FASTMCP_X="kept"),
    )
    assert done.stdout == "kept ['FASTMCP_X']\n", done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("busy", [False, True])
def test_a_signal_ends_the_process_promptly_and_quietly(number: signal.Signals, busy: bool) -> None:
    with Stdio(EXAMPLE) as server:
        server.hello()
        if busy:
            server.send("tools/call", name="wait", arguments={"seconds": 60})
            time.sleep(0.2)
        server.process.send_signal(number)
        status = server.process.wait(5)
        server.join()
        assert status == 128 + number, server.errors.decode()
        server.join()
        noise = server.errors.replace(b"noise: at start\n", b"").replace(b"noise: at exit\n", b"")
        assert noise == b""
        assert server.bad_lines == []


def test_started_in_a_terminal_it_says_what_it_waits_for() -> None:
    pty = pytest.importorskip("pty", reason="terminals need a POSIX system")
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        SERVE,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
    )
    try:
        lines = [process.stderr.readline().decode() for _ in range(3)]
        assert "MCP server" in lines[0]
        assert "waits for an MCP client" in lines[1]
        assert "fleet-agentpack connect claude" in lines[2]
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=10)
        assert (out, rest) == (b"", b"")
    finally:
        process.kill()
        process.wait()
        os.close(controller)
        os.close(terminal)


def test_garbage_between_requests_disturbs_nothing() -> None:
    with Stdio() as server:
        server.hello()
        for line in ("garbage", "[]", "{}", '{"jsonrpc":"2.0","method":5}', "\x00", "{" * 5000, ""):
            server.line(line)
        server.line('{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":5}}')
        assert "error" in server.wait("x")
        assert server.ask("tools/list")["result"]["tools"]
        assert server.close() == 0
        assert server.bad_lines == []


def test_progress_reaches_the_client_before_the_answer() -> None:
    for tool in ("wait", "work_in_thread"):
        with Stdio(EXAMPLE) as server:
            server.hello()
            params = {"name": tool, "arguments": {}, "_meta": {"progressToken": "p"}}
            answer = server.ask("tools/call", **params)
            assert answer["result"]["isError"] is False
            steps = [
                n["params"] for n in server.notifications if n["method"] == "notifications/progress"
            ]
            assert [step["progress"] for step in steps] == list(range(10))
            assert steps[3] == {
                "progressToken": "p",
                "progress": 3,
                "total": 10,
                "message": "step 3",
            }


def test_a_cancelled_call_stops_working(work: Path) -> None:
    with Stdio(EXAMPLE) as server:
        server.hello()
        number = server.send("tools/call", name="wait", arguments={"seconds": 60})
        time.sleep(0.5)
        server.notify("notifications/cancelled", requestId=number)
        _eventually(lambda: (work / "stopped").exists())
        assert server.call("echo", text="alive")["structuredContent"]["text"] == "alive"
        assert server.close() == 0


def test_a_cancelled_call_in_a_thread_stops_at_its_next_report(work: Path) -> None:
    with Stdio(EXAMPLE) as server:
        server.hello()
        number = server.send("tools/call", name="work_in_thread", arguments={"steps": 400})
        _eventually(lambda: (work / "steps").exists())
        server.notify("notifications/cancelled", requestId=number)
        time.sleep(0.5)
        reached = (work / "steps").read_text()
        time.sleep(0.5)
        assert (work / "steps").read_text() == reached
        assert server.close() == 0


def test_text_and_structured_content_are_the_same_json() -> None:
    with Stdio(EXAMPLE) as server:
        server.hello()
        result = server.call("echo", text="grüße\n", count=2)
        assert json.loads(text_of(result)) == result["structuredContent"]
        assert result["structuredContent"] == {"text": "grüße\ngrüße\n", "kind": "a"}
        assert server.call("poem") == {
            "content": [{"type": "text", "text": "roses are red"}],
            "isError": False,
        }


def _eventually(holds: object, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
