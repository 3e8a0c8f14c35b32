"""Claude Code and Codex, their models scripted: the plan of a large pack arrives whole."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import child_environment
from tests.scripted_model import ScriptedModel, scripted_model
from tests.wire.test_limits import make_pack

pytestmark = pytest.mark.clients

TOOL = "mcp__agentpack__plan"
SERVER = {"command": sys.executable, "args": ["-m", "fleet_agentpack", "--only", "agentpack"]}
PATIENCE_S = 90
ATTEMPTS = 5  # a client does not wait for the server before its first request


@pytest.fixture
def model(home: Path, socket_enabled: None) -> Iterator[ScriptedModel]:
    repo = make_pack(home / "pack", 50, 50)
    with scripted_model(TOOL, {"repo": repo}) as model:
        yield model


def program(name: str) -> str:
    found = shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not on PATH; npm installs it")
    return found


def run(model: ScriptedModel, *words: str, **env: str) -> None:
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            words,
            env=child_environment(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        if model.results:
            return
    pytest.fail(f"the tool was never called: {done.stdout!r} {done.stderr!r}")


def check(answer: dict[str, Any]) -> None:
    data = answer["data"]
    assert data["summary"]["create"] == 2500
    assert data["omitted"]["count"] == 2500 - len(data["changes"])
    assert data["omitted"]["how"].startswith("read agentpack://plan/")


def test_claude_code_shows_its_model_the_whole_answer(work: Path, model: ScriptedModel) -> None:
    config = work / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"agentpack": SERVER}}))
    run(
        model,
        program("claude"),
        *("--mcp-config", str(config), "--allowedTools", TOOL, "-p", "Plan it"),
        **model.environ,
    )
    content = model.results[0]["content"]
    check(json.loads(content if isinstance(content, str) else content[0]["text"]))


def test_codex_shows_its_model_the_whole_answer(home: Path, model: ScriptedModel) -> None:
    folder = home / ".codex-test"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f"""tool_output_token_limit = 10000  # what Codex's own models have
{model.codex_config}
[mcp_servers.agentpack]
command = {json.dumps(SERVER["command"])}
args = {json.dumps(SERVER["args"])}
[mcp_servers.agentpack.env]
PYTHONPATH = {json.dumps(child_environment()["PYTHONPATH"])}
"""
    )
    environ = {**model.environ, "CODEX_HOME": str(folder)}
    words = ["exec", "--skip-git-repo-check", "Plan it"]
    run(model, program("codex"), *words, **environ)
    output = model.results[0]["output"]
    text = output if isinstance(output, str) else output[0]["text"]
    check(json.loads(text[text.index("{") : text.rindex("}") + 1]))
