"""The wire over a real stdio process."""

from __future__ import annotations

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO

import pytest

from tests.rig import (
    EXAMPLE,
    MODERN,
    SERVE,
    Stdio,
    child_environment,
    eventually,
    modern_meta,
    pipe,
    text_of,
)

LINUX = sys.platform == "linux"


def test_initialize_negotiates_the_version() -> None:
    with Stdio() as server:
        for asked in ("1999-01-01", "2025-03-26", "2025-11-25"):
            result = server.hello(asked)
            known = asked in ("2025-03-26", "2025-11-25")
            assert result["protocolVersion"] == (asked if known else "2025-11-25")
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


def test_piped_calls_that_take_a_second_are_answered_even_without_a_last_newline() -> None:
    tools = {"wait": {"seconds": 1.2}, "work_in_thread": {"steps": 24}}
    calls = [
        {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params}
        for name, arguments in tools.items()
        if (params := {"name": name, "arguments": arguments})
    ]
    done = pipe("\n".join(map(json.dumps, calls)), EXAMPLE)
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0
    assert answers.keys() == tools.keys()
    assert not any(answer["result"]["isError"] for answer in answers.values())


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


def test_prints_while_importing_and_a_dotenv_change_nothing(work: Path) -> None:
    (work / "sitecustomize.py").write_text(
        "import sys, importlib.abc\n"
        "class Noisy(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'fastmcp': print('importing', name)\n"
        "sys.meta_path.insert(0, Noisy())\n"
    )
    (work / ".env").write_text(
        "FASTMCP_TRANSPORT=http\nFASTMCP_LOG_LEVEL=LOUD\nFLEET_AGENTPACK_ONLY=nowhere\n"
    )
    variables = {"PYTHONPATH": str(work), "FASTMCP_LOG_LEVEL": "LOUD", "FASTMCP_TRANSPORT": "http"}
    # A shape that the front leaves to the server.
    asked = '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":null}}\n'
    done = pipe(asked, **variables)
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert answer["result"]["tools"]
    assert (done.returncode, done.stderr) == (0, b"importing fastmcp\n")


def call_and_see_it_run(server: Stdio) -> int:
    """Start a call of a minute; it has reported progress when this returns."""
    meta = {"progressToken": "running"}
    number = server.send("tools/call", name="wait", arguments={"seconds": 60}, _meta=meta)

    def reports() -> bool:
        return any(
            note.get("params", {}).get("progressToken") == "running"
            for note in server.notifications
        )

    eventually(reports)
    server.notifications.clear()
    return number


def is_full(stream: IO[bytes]) -> bool:
    """Whether a pipe holds about as much as it can."""
    held = array.array("i", [0])
    fcntl.ioctl(stream, termios.FIONREAD, held)
    capacity = fcntl.fcntl(stream, getattr(fcntl, "F_GETPIPE_SZ", 1032)) if LINUX else 16_384
    return held[0] > capacity / 2


@pytest.mark.parametrize(("number", "busy"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_signal_ends_the_process_promptly_and_quietly(number: signal.Signals, busy: bool) -> None:
    with Stdio(EXAMPLE) as server:
        server.hello()
        if busy:
            call_and_see_it_run(server)
        server.process.send_signal(number)
        status = server.process.wait(5)
        server.join()
        assert status == 128 + number, server.errors.decode()
        server.join()
        noise = server.errors.replace(b"noise: at start\n", b"").replace(b"noise: at exit\n", b"")
        assert noise == b""
        assert server.bad_lines == []


@pytest.mark.parametrize("handed_over", [False, True])
def test_started_in_a_terminal_it_says_what_it_waits_for(handed_over: bool) -> None:
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
        if handed_over:
            os.write(controller, b'{"jsonrpc":"2.0","method":"something/else"}\n')
            tasks = Path(f"/proc/{process.pid}/task")  # the second one reads: the server is serving
            eventually(lambda: not tasks.exists() or len(list(tasks.iterdir())) > 1)
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=10)
        assert (process.returncode, out, rest) == (130, b"", b"")
    finally:
        process.kill()
        process.wait()
        os.close(controller)
        os.close(terminal)


def test_garbage_between_requests_is_refused_and_disturbs_nothing(example: Stdio) -> None:
    for line in ("garbage", "{}", '{"jsonrpc":"2.0","method":5}', "\x00", "{" * 5000, "[" * 9000):
        example.line(line)
        error = example.wait(None)["error"]
        assert error["code"] in (-32700, -32600)
        assert error["message"]
    for line in ("", "  ", "[]", '{"jsonrpc":"2.0","id":1,"result":5}'):
        example.line(line)
    assert alive(example)


@pytest.mark.parametrize(
    "rest",
    [
        '"method":"tools/call","params":{"name":5}',
        '"method":"tools/call","params":[1]',
        '"method":"tools/call","params":5',
        '"method":5',
        '"method":"no/such"',
        '"params":{}',
        pytest.param(
            '"method":"tools/call","params":{"name":"echo","arguments":{"text":%s}}'
            % ("[" * 500 + "]" * 500),
            id="deep",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_answered_under_its_id(example: Stdio, rest: str) -> None:
    for number in ('"x"', "-3", "12345678901234567890123"):
        example.line(f'{{"jsonrpc":"2.0","id":{number},{rest}}}')
        assert example.wait(json.loads(number))["error"]["code"] in (-32600, -32601, -32602)
    assert alive(example)


def test_a_request_whose_id_cannot_be_used_is_told_so(example: Stdio) -> None:
    for number in ("1.0", "1.5", "null", "true", "{}", "[1]"):
        example.line(f'{{"jsonrpc":"2.0","id":{number},"method":"ping"}}')
        assert "id" in example.wait(None)["error"]["message"]
    example.line('{"jsonrpc":"1.0","id":"old","method":"ping"}')
    assert "JSON-RPC 2.0" in example.wait("old")["error"]["message"]


def test_every_request_of_a_batch_is_answered(example: Stdio) -> None:
    example.line(
        '[{"jsonrpc":"2.0","id":"b1","method":"ping"},{"jsonrpc":"2.0","method":"x/y"},'
        '{"jsonrpc":"2.0","id":"b2","method":"ping"},{"id":"b3"}]'
    )
    assert example.wait("b1")["result"] == example.wait("b2")["result"] == {}
    assert example.wait("b3")["error"]["code"] == -32600


def test_halves_of_characters_and_bad_bytes_reach_the_tool_as_question_marks(
    example: Stdio,
) -> None:
    call = '{"jsonrpc":"2.0","id":"h","method":"tools/call","params":{"name":"echo",%s}}'
    example.line(call % '"arguments":{"text":"cut \\ud83d"}')
    assert example.wait("h")["result"]["structuredContent"]["text"] == "cut ?"
    example.raw((call % '"arguments":{"text":"XY"}').encode().replace(b"XY", b"\xff\xfe") + b"\n")
    assert example.wait("h")["result"]["structuredContent"]["text"] == "\ufffd\ufffd"


def test_progress_with_half_a_character_does_not_end_the_server(example: Stdio) -> None:
    params = {"name": "mumble", "arguments": {}, "_meta": {"progressToken": "half"}}
    assert example.ask("tools/call", **params)["result"]["isError"] is False
    (note,) = [
        n for n in example.notifications if n.get("params", {}).get("progressToken") == "half"
    ]
    assert note["params"]["message"] == "file ?"
    assert alive(example)


def test_a_large_message_is_read_and_written_whole(work: Path) -> None:
    config = work / "config.toml"
    config.write_text("[limits]\nresult_bytes = 10_000_000\n")
    text = "x" * 3_000_000
    with Stdio(EXAMPLE, FLEET_AGENTPACK_CONFIG=str(config)) as server:
        server.hello()
        assert server.call("echo", text=text)["structuredContent"]["text"] == text


def test_many_calls_at_once_lose_no_answer(example: Stdio) -> None:
    numbers = [
        example.send("tools/call", name="echo", arguments={"text": str(n)}) for n in range(300)
    ]
    for n, number in enumerate(numbers):
        assert example.wait(number)["result"]["structuredContent"]["text"] == str(n)


def test_a_second_handshake_and_unknown_notifications_change_nothing(example: Stdio) -> None:
    example.notify("notifications/whatever", a=1)
    example.notify("tools/call", name="echo", arguments={"text": "x"})
    assert example.hello("2025-03-26")["protocolVersion"] == "2025-03-26"
    assert alive(example)


def test_odd_beginnings_and_a_broken_end(work: Path) -> None:
    ping, listing = (
        f'{{"jsonrpc":"2.0","id":{n},"method":"{m}"}}' for n, m in ((1, "ping"), (2, "tools/list"))
    )
    note = '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    twice = "\n".join(
        '{"jsonrpc":"2.0","id":"d","method":"tools/call","params":{"name":"wait"}}' for _ in "ab"
    )
    done = pipe(
        "\n".join(["rubbish", note, ping, listing, twice, '{"jsonrpc":"2.0","id":']), EXAMPLE
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [answer["id"] for answer in answers].count("d") == 2
    assert {answer["id"]: "result" in answer for answer in answers} == {
        None: False,
        1: True,
        2: True,
        "d": True,
    }


def test_a_client_that_reads_late_gets_everything_and_one_that_left_is_not_waited_for() -> None:
    listing = '{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n'
    with start(EXAMPLE) as process:
        process.stdin.write("".join(listing % n for n in range(100)).encode())
        process.stdin.close()
        eventually(lambda: is_full(process.stdout))
        assert len(process.stdout.readlines()) == 100
        assert process.wait(30) == 0
    with start(EXAMPLE) as process:
        process.stdout.close()
        process.stdin.write((listing % 1).encode())
        process.stdin.flush()
        assert process.wait(30) == 0  # while its standard input is still open
        assert b"Traceback" not in process.stderr.read()


def test_a_tool_that_hears_nothing_does_not_keep_the_process() -> None:
    code = (
        "import sys; from tests.wire import example; from fleet_agentpack.wire import stdio\n"
        "stdio.DRAIN_TIMEOUT_S, stdio.EXIT_GRACE_S = 1, 0.5; sys.exit(example.main())"
    )
    params = {"name": "block", "arguments": {"seconds": 40}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    began = time.monotonic()
    done = pipe(json.dumps(call) + "\n", [sys.executable, "-c", code])
    assert time.monotonic() - began < 30
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def test_a_refused_line_settles_no_request_of_the_same_id() -> None:
    lines = [
        '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"list_agents"}}',
        '{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}',
    ]
    refused, answer = map(json.loads, pipe("\n".join(lines)).stdout.splitlines())
    assert refused["error"]["code"] == -32600 and refused["id"] == 7
    assert text_of(answer["result"])


def test_a_cancelled_request_is_not_waited_for_at_end_of_input() -> None:
    code = (
        "import sys; from tests.wire import example; from fleet_agentpack.wire import stdio\n"
        "stdio.DRAIN_TIMEOUT_S = 600; sys.exit(example.main())"
    )
    # A tool that cannot hear of its cancellation, so nothing ever answers the request.
    params = {"name": "block", "arguments": {"seconds": 600}}
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    call = {"id": 1, "method": "tools/call", "params": params}
    lines = "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in (call, cancel))
    done = pipe(lines, [sys.executable, "-c", code])  # which gives up after a minute
    assert done.returncode == 0


def test_progress_reaches_the_client_before_the_answer(example: Stdio) -> None:
    for tool in ("wait", "work_in_thread"):
        params = {"name": tool, "arguments": {}, "_meta": {"progressToken": tool}}
        answer = example.ask("tools/call", **params)
        assert answer["result"]["isError"] is False
        steps = [
            note["params"]
            for note in example.notifications
            if note.get("params", {}).get("progressToken") == tool
        ]
        assert [step["progress"] for step in steps] == list(range(10))
        assert steps[3] == {
            "progressToken": tool,
            "progress": 3,
            "total": 10,
            "message": "step 3",
        }


def test_a_cancelled_call_stops_working(example: Stdio) -> None:
    number = call_and_see_it_run(example)
    example.notify("notifications/cancelled", requestId=number)
    eventually((example.folder / "stopped").exists)
    assert alive(example)


def test_a_cancelled_call_in_a_thread_stops_at_its_next_report(example: Stdio) -> None:
    mark = example.folder / "steps"
    mark.unlink(missing_ok=True)
    number = example.send("tools/call", name="work_in_thread", arguments={"steps": 400})
    eventually(mark.exists)
    example.notify("notifications/cancelled", requestId=number)
    eventually((example.folder / "thread-stopped").exists)
    assert int(mark.read_text()) < 399


def test_text_and_structured_content_are_the_same_json(example: Stdio) -> None:
    result = example.call("echo", text="grüße\n", count=2)
    assert json.loads(text_of(result)) == result["structuredContent"]
    assert result["structuredContent"] == {"text": "grüße\ngrüße\n", "kind": "a"}
    assert example.call("poem") == {
        "content": [{"type": "text", "text": "roses are red"}],
        "isError": False,
    }


def alive(server: Stdio) -> bool:
    """Whether the server still answers as it should."""
    return server.call("echo", text="alive")["structuredContent"]["text"] == "alive"


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
    )
