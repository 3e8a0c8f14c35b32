"""Streamable HTTP as a real process."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet_agentpack.cli import _with_token
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.settings import HttpSettings, Settings, SettingsError, own_token
from fleet_agentpack.wire.http import listen
from tests.rig import (
    EXAMPLE,
    SERVE,
    Http,
    child_environment,
    eventually,
    free_port,
    initialize,
)

TOKEN = "a-token-for-this-test"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def test_foreign_host_and_origin_and_a_second_server_are_refused() -> None:
    with Http() as server:
        assert server.request(initialize())[0] == 200
        assert server.request(initialize(), Host="evil.example.test")[0] == 421
        assert server.request(initialize(), Origin="http://evil.example.test")[0] == 403
        assert server.request(initialize(), Origin="null")[0] == 403
        assert server.request(None, method="GET", path="/health") == (200, None, "ok")
        assert f"listens on http://127.0.0.1:{server.port}/mcp\n".encode() in server.output

        command = [*SERVE, "--http", "--port", str(server.port)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=child_environment(), timeout=30
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            f"fleet-agentpack: port {server.port} on 127.0.0.1 is in use; choose another with"
            " --port, or end what listens there\n"
        )


def test_a_token_is_asked_for_and_never_shown() -> None:
    with Http(FLEET_AGENTPACK_TOKEN=TOKEN) as server:
        assert server.request(initialize())[0] == 401
        assert server.request(initialize(), Authorization="Bearer wrong")[0] == 401
        assert server.request(initialize(), Authorization=f"Bearer {TOKEN}ü")[0] == 401
        assert server.request(initialize(), Authorization=f"Bearer {TOKEN}")[0] == 200
        assert server.request(None, method="GET", path="/health")[2] == "ok"
        server.end()
        assert TOKEN.encode() not in server.output


def test_neither_the_project_nor_the_environment_steers_the_library(work: Path) -> None:
    (work / ".env").write_text("FASTMCP_LOG_LEVEL=LOUD\nFASTMCP_HOST=0.0.0.0\n")
    with Http(FLEET_AGENTPACK_TOKEN=TOKEN, FASTMCP_LOG_LEVEL="LOUD") as server:
        assert server.request(initialize())[0] == 401
        assert server.request(initialize(), Authorization="Bearer wrong")[0] == 401
        server.end()
        listens, *more = server.output.decode().strip().splitlines()
        assert "listens on http://127.0.0.1:" in listens and more == []


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        (["--host", "0.0.0.0"], "FLEET_AGENTPACK_TOKEN"),
        (["--host", "::"], "--allowed-host"),
        (["--host", "0.0.0.0", "--allowed-host", "x.example.test"], "FLEET_AGENTPACK_TOKEN"),
        (["--host", "0.0.0.0", "--no-token"], "--no-token is for loopback"),
        (["--no-token", "--token-file", "loose"], "contradict"),
        (["--token-file", "loose"], "chmod 600"),
        (["--token-file", "missing"], "cannot read the token file"),
        (["--token-file", "empty"], "is empty"),
    ],
)
def test_an_unsafe_start_is_refused(work: Path, options: list[str], needs: str) -> None:
    (work / "loose").write_text(TOKEN)
    (work / "loose").chmod(0o644)
    (work / "empty").touch(mode=0o600)
    command = [*SERVE, "--http", "--port", str(free_port()), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, env=child_environment(), timeout=30
    )
    assert done.returncode == 2
    assert needs in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_token_of_the_users_one_is_made_and_kept(home: Path) -> None:
    settings = Settings.read()
    path = settings.directories.state / "http-token"
    with Http(own_token=True) as server:
        token = path.read_text().strip()
        assert server.request(initialize())[0] == 401
        assert server.request(initialize(), Authorization=f"Bearer {token}")[0] == 200
        server.end()
        assert str(path).encode() in server.output  # no terminal: the token itself is not shown
        assert token.encode() not in server.output
    assert path.stat().st_mode & 0o777 == 0o600
    assert own_token(path) == (Secret(token), False)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        own_token(path)


def test_a_new_token_is_shown_once_on_a_terminal(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    tokens = [_with_token(Settings.read()).http.token for _ in range(2)]
    assert tokens[0] == tokens[1]
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(tokens[0].reveal()) and second.endswith("http-token")


def test_beyond_loopback_with_named_hosts_and_a_token_from_a_private_file(work: Path) -> None:
    path = work / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    hosts = ["--host", "0.0.0.0", "--allowed-host", "box.example.test"]
    with Http(*hosts, "--token-file", str(path)) as server:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert server.request(initialize(), Host="box.example.test")[0] == 401
        assert server.request(initialize(), Host="box.example.test", **bearer)[0] == 200
        assert server.request(initialize(), Host="evil.example.test", **bearer)[0] == 421


def test_twenty_clients_keep_their_answers_apart_and_a_busy_server_ends_cleanly() -> None:
    mixed: list[str] = []
    count = 0

    with Http(command=EXAMPLE) as server:

        def client(number: int) -> None:
            nonlocal count
            session = server.hello()
            for turn in range(10):
                if turn == 5 and number % 5 == 0:
                    assert server.request(b"{")[0] == 400
                    server.request(b"\xff\xfe", session=session)
                text = f"client {number} turn {turn}"
                result = server.call(session, "echo", {"text": text}, number=turn + 2)
                if result["structuredContent"]["text"] != text:
                    mixed.append(text)
                count += 1

        threads = [threading.Thread(target=client, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (mixed, count) == ([], 200)

        session = server.hello()
        params = {"name": "mumble", "arguments": {}, "_meta": {"progressToken": "p"}}
        body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}
        assert server.request(body, session=session)[2]["id"] == 9

        with running_call(server, session):
            assert server.end() in (0, -15)
        assert b"Traceback" not in server.output


@contextlib.contextmanager
def running_call(server: Http, session: str) -> Iterator[None]:
    """A call of half a minute, that has reported progress."""
    params = {"name": "wait", "arguments": {"seconds": 30}, "_meta": {"progressToken": "p"}}
    body = {"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": params}
    head = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Mcp-Session-Id": session,
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("POST", "/mcp", json.dumps(body), head)
        answer = connection.getresponse()
        assert any(b"notifications/progress" in line for line in answer)
        yield
    finally:
        connection.close()


def test_abandoned_sessions_do_not_stay(work: Path) -> None:
    """More sessions than are kept: those that were idle longest end, one in use does not."""
    code = (
        "import functools, sys; from tests.wire import example\n"
        "from fleet_agentpack.wire import http\n"
        "http.BoundedSessions = functools.partial(http.BoundedSessions, most=5)\n"
        "sys.exit(example.main())"
    )
    command = [sys.executable, "-c", code]
    with Http(command=command, FLEET_AGENTPACK_TOKEN=TOKEN) as server:
        authorized = {"Authorization": f"Bearer {TOKEN}"}
        first, used = server.hello(**authorized), server.hello(**authorized)
        for _ in range(6):
            assert server.request(initialize(), **authorized)[0] == 200
            assert server.request(PING, session=used, **authorized)[0] == 200
        assert server.request(PING, session=first, **authorized)[0] == 404
        assert server.request(PING, session=used, **authorized)[0] == 200


def test_an_idle_session_ends(work: Path) -> None:
    code = (
        "import sys; from tests.wire import example; from fleet_agentpack.wire import http\n"
        "http.SESSION_IDLE_S = 0.5; sys.exit(example.main())"
    )
    with Http(command=[sys.executable, "-c", code]) as server:
        session = server.hello()
        eventually((work / "ended").exists)
        assert server.request(PING, session=session)[0] == 404


def test_small_answers_are_not_held_back() -> None:
    (listening, *others) = listen(HttpSettings(port=0))
    for each in others:
        each.close()
    with listening:
        assert listening.proto == socket.IPPROTO_TCP
