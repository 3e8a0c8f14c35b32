"""Claude Code, its model scripted: the terminal asks the person, a run without one is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deploy.lab import Lab
from tests.rig import child_environment, eventually
from tests.scripted_model import API_KEY, ScriptedModel, scripted_model

pytestmark = pytest.mark.clients

TOOL = "mcp__agentpack__deploy_apply"
PATIENCE_S = 60


@pytest.fixture
def lab(home: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A pack, and a file of the user's in its way."""
    lab = Lab(home / "lab")
    lab.instructions("base", "# Ours\n")
    lab.write("user/.codex/AGENTS.md", "# Mine\n")
    for name, value in lab.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(lab.project)
    return lab


@pytest.fixture
def claude(lab: Lab) -> list[str]:
    """Claude Code with this server, past its first-run questions."""
    program = shutil.which("claude")
    if not program:
        pytest.skip("claude is not on PATH; npm installs it")
    known = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
        "projects": {str(lab.project): known},
    }
    lab.write("user/.claude.json", json.dumps(settings))
    args = ["-m", "fleet_agentpack", "--only", "agentpack", "--ask", "risky"]
    entry = {"command": sys.executable, "args": args}
    config = lab.write("mcp.json", json.dumps({"mcpServers": {"agentpack": entry}}))
    return [program, "--mcp-config", str(config), "--allowedTools", TOOL]


@pytest.fixture
def model(socket_enabled: None) -> Iterator[ScriptedModel]:
    with scripted_model(TOOL, {"yes": True, "adopt": True}) as model:
        yield model


@pytest.fixture
def tmux(lab: Lab) -> Iterator[Callable[..., str]]:
    """Runs tmux on a server of its own."""
    program = shutil.which("tmux")
    if not program:
        pytest.skip("tmux is not installed")
    socket = str(lab.root / "tmux")

    def run(*words: str, **env: str) -> str:
        command = [program, "-S", socket, "-f", os.devnull, *words]
        environ = child_environment(TERM="xterm-256color", LANG="C.UTF-8", **env)
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run
    run("kill-server")


def test_the_terminal_asks_and_yes_applies(
    lab: Lab, claude: list[str], model: ScriptedModel, tmux: Callable[..., str]
) -> None:
    mine = lab.user / ".codex/AGENTS.md"

    def screen() -> str:
        return tmux("capture-pane", "-p", "-J")

    def wait_for(*texts: str) -> None:
        try:
            eventually(lambda: all(text in screen() for text in texts), PATIENCE_S)
        except AssertionError:
            pytest.fail(f"{texts} is not on the screen:\n{screen()}")

    tmux("new-session", "-d", "-x", "160", "-y", "50", *claude, **model.environ)
    wait_for("? for shortcuts")
    while not model.called:  # the client does not wait for the server before its first request
        asked = model.asked
        tmux("send-keys", "Deploy it")
        wait_for("Deploy it")
        tmux("send-keys", "Enter")
        eventually(lambda before=asked: model.asked > before, PATIENCE_S)
    wait_for("requests your input", "Deploy profile default", "Accept")
    wait_for("Overwrite, though agentpack did not write it:", str(mine))
    assert mine.read_text() == "# Mine\n"
    tmux("send-keys", "Space")
    wait_for("Write these files: ☒")
    tmux("send-keys", "Down")
    eventually(lambda: "Space to toggle" not in screen(), PATIENCE_S)
    tmux("send-keys", "Enter")
    eventually(lambda: model.results, PATIENCE_S)
    assert mine.read_text() == "# Ours\n"
    assert json.loads(_text(model))["data"]["applied"] is True


def test_a_run_without_a_person_is_refused_cleanly(
    lab: Lab, claude: list[str], model: ScriptedModel
) -> None:
    words, environ = [*claude, "-p", "Deploy it"], child_environment(**model.environ)
    while not model.called:  # as above
        done = subprocess.run(
            words, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
    error = json.loads(_text(model))["errors"][0]
    assert error["code"] == "E_CONFIRM_REQUIRED"
    assert error["details"]["reason_code"] == "approval_closed"
    assert (lab.user / ".codex/AGENTS.md").read_text() == "# Mine\n"


def _text(model: ScriptedModel) -> str:
    content = model.results[0]["content"]
    return content if isinstance(content, str) else content[0]["text"]
