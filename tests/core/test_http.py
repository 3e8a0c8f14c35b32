"""Streamable HTTP as a real process."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import threading
from pathlib import Path

import pytest

from tests.rig import EXAMPLE, SERVE, Http, child_environment, free_port, initialize

TOKEN = "a-token-for-this-test"


def test_foreign_host_and_origin_are_refused() -> None:
    with Http() as server:
        assert server.request(initialize())[0] == 200
        assert server.request(initialize(), Host="evil.example.test")[0] == 421
        assert server.request(initialize(), Origin="http://evil.example.test")[0] == 403
        assert server.request(initialize(), Origin="null")[0] == 403
        assert server.request(None, method="GET", path="/health") == (200, None, "ok")


def test_a_token_is_asked_for_and_never_shown() -> None:
    with Http(FLEET_AGENTPACK_TOKEN=TOKEN) as server:
        assert server.request(initialize())[0] == 401
        assert server.request(initialize(), Authorization="Bearer wrong")[0] == 401
        assert server.request(initialize(), Authorization=f"Bearer {TOKEN}ü")[0] == 401
        assert server.request(initialize(), Authorization=f"Bearer {TOKEN}")[0] == 200
        assert server.request(None, method="GET", path="/health")[2] == "ok"
        server.end()
        assert TOKEN.encode() not in server.output


def test_the_token_may_come_from_a_private_file(work: Path) -> None:
    path = work / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    with Http("--token-file", str(path)) as server:
        assert server.request(initialize())[0] == 401
        assert server.request(initialize(), Authorization=f"Bearer {TOKEN}")[0] == 200


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        (["--host", "0.0.0.0"], "FLEET_AGENTPACK_TOKEN"),
        (["--host", "::"], "--allowed-host"),
        (["--host", "0.0.0.0", "--allowed-host", "x.example.test"], "FLEET_AGENTPACK_TOKEN"),
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


def test_beyond_loopback_with_token_and_hosts() -> None:
    options = ["--host", "0.0.0.0", "--allowed-host", "box.example.test"]
    with Http(*options, FLEET_AGENTPACK_TOKEN=TOKEN) as server:
        bearer = f"Bearer {TOKEN}"
        assert server.request(initialize(), Authorization=bearer, Host="box.example.test")[0] == 200
        assert (
            server.request(initialize(), Authorization=bearer, Host="evil.example.test")[0] == 421
        )


def test_a_port_in_use_is_a_message_and_not_a_trace() -> None:
    with Http() as server:
        command = [*SERVE, "--http", "--port", str(server.port)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=child_environment(), timeout=30
        )
        assert done.returncode != 0
        assert "in use" in done.stderr
        assert "Traceback" not in done.stderr


def test_twenty_clients_at_once_keep_their_answers_apart() -> None:
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
        assert server.end() in (0, -15)
        assert b"Traceback" not in server.output


def test_it_ends_cleanly_while_a_call_is_under_way() -> None:
    with Http(command=EXAMPLE) as server:
        session = server.hello()

        def ignore_the_end() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException, TypeError, KeyError):
                server.call(session, "wait", {"seconds": 30})

        thread = threading.Thread(target=ignore_the_end)
        thread.start()
        threading.Event().wait(0.5)
        assert server.end() in (0, -15)
        assert b"Traceback" not in server.output
        thread.join()
