"""Machines for these tests: no client programs, or fakes, or the real ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet_agentpack import cli
from fleet_agentpack.connect import commands


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on PATH, empty at first."""
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


@pytest.fixture
def fake(programs: Path) -> Callable[[str, str], Path]:
    """Puts a Python program under a client's name on PATH."""

    def make(name: str, body: str) -> Path:
        path = programs / name
        path.write_text(f"#!{sys.executable}\n{body}")
        path.chmod(0o755)
        return path

    return make


QUICK_SERVER = """
import json, sys
for line in sys.stdin:
    number = json.loads(line).get("id")
    result = {"serverInfo": {"name": "quick"}, "tools": [{"name": "a"}, {"name": "b"}]}
    if number:
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
"""


@pytest.fixture
def quick_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Registers a server of two tools in place of the real one, which takes a second to start."""
    path = tmp_path / "fleet-agentpack"
    path.write_text(f"#!{sys.executable} -S\n{QUICK_SERVER}")
    path.chmod(0o755)
    monkeypatch.setattr(commands, "launch_words", lambda _: [str(path)])
    return path


@pytest.fixture
def connect(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `fleet-agentpack connect …`: status, standard output, standard error."""

    def run(*words: str) -> tuple[int, str, str]:
        status = cli.run(["connect", *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
