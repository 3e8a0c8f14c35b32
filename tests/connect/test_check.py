"""The check starts a server as a client does, and says what went wrong."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from fleet_agentpack.connect.check import CheckError, check
from fleet_agentpack.connect.client import Entry

SERVER = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    method, number = request["method"], request.get("id")
    if method == "initialize":
        result = {"serverInfo": {"name": "fake"}, "environment": dict(os.environ)}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/x", "params": {}}))
    elif method == "tools/list":
        second = request["params"].get("cursor") == "more"
        names = ["c"] if second else ["a", "b"] + sorted(os.environ)
        result = {"tools": [{"name": name} for name in names]}
        result |= {} if second else {"nextCursor": "more"}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
"""


def script(body: str, **env: str) -> Entry:
    return Entry(sys.executable, ("-c", body), env)


def test_all_pages_are_read_and_the_environment_is_a_clients(work: Path) -> None:
    environ = {"HOME": "/h", "PATH": os.environ["PATH"], "SECRET": "s", "PYTHONPATH": "/x"}
    checked = check(script(SERVER, MINE="m"), environ=environ, cwd=work)
    assert checked.server == "fake"
    assert set(checked.tools) - {"LC_CTYPE"} == {"a", "b", "c", "HOME", "MINE", "PATH"}
    assert 0 < checked.seconds < 60


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import sys; sys.exit('no such option')", "exited before it answered initialize.*no such"),
        ("print('Welcome!', flush=True); input()", "not MCP: 'Welcome!'"),
        (
            """input(); print('{"jsonrpc":"2.0","id":1,"error":{"message":"old"}}', flush=True)""",
            "initialize was refused.*old",
        ),
        (
            """input(); print('{"jsonrpc":"2.0","id":1,"result":[1]}', flush=True)""",
            "does not follow MCP",
        ),
    ],
)
def test_a_server_that_fails_is_told(body: str, reason: str, work: Path) -> None:
    with pytest.raises(CheckError, match=f"(?s){reason}"):
        check(script(body), environ=os.environ, cwd=work)


def test_a_missing_program_is_told(work: Path) -> None:
    with pytest.raises(CheckError, match=r"/no/such cannot be started: No such file"):
        check(Entry("/no/such"), environ=os.environ, cwd=work)


def test_a_silent_server_is_ended_with_what_it_started(work: Path) -> None:
    body = (
        "import os, subprocess, sys, time, signal\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "time.sleep(60)"
    )
    with pytest.raises(CheckError, match="no answer within 1 s"):
        check(script(body), environ=os.environ, cwd=work, timeout_s=1)
    pids = (work / "pids").read_text().split()
    deadline = time.monotonic() + 5
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if is_alive(pid)]


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_real_server_answers(work: Path, command: list[str]) -> None:
    entry = Entry(command[0], (*command[1:], "--only", "climpt"))
    checked = check(entry, environ=os.environ, cwd=work)
    assert checked.server == "climpt"
    assert len(checked.tools) == 4
