"""How a server ends and waits while the front is alone, and while it hands over."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.rig import SERVE, Stdio, eventually, pipe
from tests.wire.scripts import LISTINGS, READY, TASK_REQUESTS, as_bytes, hello, request
from tests.wire.test_stdio import start

CALL = {"name": "fractary_forge_config_get", "arguments": {"key": "x"}}


@pytest.mark.parametrize("importing", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly(number: signal.Signals, importing: bool) -> None:
    with Stdio(cold=True) as server:
        server.hello()
        server.ask("tools/list")
        if importing:
            server.send("tools/call", **CALL)
        server.process.send_signal(number)
        assert server.process.wait(10) == 128 + number
        server.join()
        assert (server.bad_lines, server.errors) == ([], b"")


def test_a_call_that_is_cancelled_during_the_import_does_no_harm() -> None:
    with Stdio(cold=True) as server:
        server.hello()
        number = server.send("tools/call", **CALL)
        server.notify("notifications/cancelled", requestId=number)
        assert server.ask("tools/call", **CALL)["result"]
        assert server.close() == 0


def test_input_that_ends_during_the_import_is_answered() -> None:
    with Stdio(cold=True) as server:
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

    def sleeps() -> bool:
        before = switches()
        time.sleep(1.5)  # the time that is looked at
        return switches() - before <= 1

    with Stdio(cold=True) as server:
        server.hello()
        server.ask("tools/list")
        server.ask("ping")
        eventually(sleeps)  # at first it is still at work on its watch


UI = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
# As these clients were seen to begin: protocol, capabilities, about themselves, and how they list.
HANDSHAKES: dict[str, tuple[str, Any, Any, Any]] = {
    "Claude Code 2.1.197": (
        "2025-11-25",
        {"roots": {}, "elicitation": {}},
        {
            "name": "claude-code",
            "title": "Claude Code",
            "version": "2.1.197",
            "description": "Anthropic's agentic coding tool",
            "websiteUrl": "https://claude.com/claude-code",
        },
        None,
    ),
    "Codex 0.169.0": (
        "2025-06-18",
        {
            "experimental": {"codex/auth-change": {}},
            "elicitation": {"form": {}, "url": {}},
        },
        {"name": "codex-mcp-client", "title": "Codex", "version": "0.169.0"},
        {"_meta": {"progressToken": 0}},
    ),
    "Gemini CLI 0.61.0": (
        "2025-06-18",
        {"roots": {"listChanged": True}},
        {"name": "gemini-cli-mcp-client", "version": "0.61.0"},
        {},
    ),
    "VS Code 1.138.0": (
        "2025-11-25",
        {
            "roots": {"listChanged": True},
            "sampling": {},
            "elicitation": {"form": {}, "url": {}},
            "tasks": {"list": {}, "cancel": {}, "requests": TASK_REQUESTS},
            "extensions": UI,
        },
        {"name": "Visual Studio Code", "version": "1.138.0"},
        {},
    ),
    "Cursor": (
        "2024-11-05",
        {
            "tools": True,
            "prompts": False,
            "resources": True,
            "logging": False,
            "roots": {"listChanged": False},
        },
        {"name": "cursor-vscode", "version": "1.0.0"},
        None,
    ),
    "Claude Desktop": (
        "2025-11-25",
        {"extensions": UI},
        {"name": "claude-ai", "version": "0.1.0"},
        None,
    ),
    "Cline 3.78.0": ("2025-11-25", {}, {"name": "Cline", "version": "3.78.0"}, None),
    "a client that samples with tools": (
        "2025-11-25",
        {"sampling": {"context": {}, "tools": {}}},
        {"name": "c", "version": "0"},
        None,
    ),
}


@pytest.mark.parametrize("client", HANDSHAKES)
def test_no_handshake_of_a_common_client_imports_the_server(client: str) -> None:
    version, capabilities, about, params = HANDSHAKES[client]
    shake = hello(version, "i", capabilities=capabilities, clientInfo=about)
    lists = [request(number, method, params) for number, method in enumerate(LISTINGS)]
    sent = as_bytes([shake, READY, request("p", "ping"), *lists]).decode()
    done = pipe(sent, [sys.executable, "-X", "importtime", *SERVE[1:]])
    answered = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in answered] == ["i", "p", *range(len(LISTINGS))]
    assert answered[0]["result"]["protocolVersion"] == version
    assert all("result" in each for each in answered)
    assert b"wire.front" in done.stderr and b"fastmcp" not in done.stderr


@pytest.mark.parametrize("lists", [True, False], ids=["after a list", "without one"])
def test_the_first_call_imports_what_it_needs_and_no_more(lists: bool) -> None:
    imported = imported_by(CALL, lists=lists)
    assert "fleet_agentpack.forge.service" in imported
    others = ("climpt.service", "enact.service", "deploy.results", "forge.resolver", "forge.forks")
    assert not imported & {f"fleet_agentpack.{each}" for each in others}


def test_a_list_of_definitions_imports_nothing_of_registries() -> None:
    imported = imported_by({"name": "fractary_forge_agent_list", "arguments": {}})
    assert "fleet_agentpack.forge.listing" in imported
    others = ("catalogue", "registries", "trees", "plugins", "installer", "forks", "validation")
    assert not imported & {f"fleet_agentpack.forge.{each}" for each in others}


def imported_by(call: dict[str, Any], *, lists: bool = False) -> set[str]:
    """What a server has imported after one call."""
    with Stdio([sys.executable, "-X", "importtime", *SERVE[1:]]) as server:
        server.hello()
        if lists:
            server.ask("tools/list")
        assert server.ask("tools/call", **call)["result"]
        assert server.close() == 0
    return {line.split("|")[-1].strip() for line in server.errors.decode().splitlines()}
