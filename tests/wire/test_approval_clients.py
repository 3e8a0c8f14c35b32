"""Claude Code, its model scripted: the terminal asks the person, a run without one is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.claude_terminal import PATIENCE_S, claude_with, terminal
from tests.deploy.lab import Lab
from tests.rig import child_environment, eventually
from tests.scripted_model import ScriptedModel, scripted_model

pytestmark = pytest.mark.clients

TOOL = "mcp__agentpack__deploy_apply"


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
    words = claude_with(lab.user, lab.project, "--only", "agentpack", "--ask", "risky")
    return [*words, "--allowedTools", TOOL]


@pytest.fixture
def model(socket_enabled: None) -> Iterator[ScriptedModel]:
    with scripted_model(TOOL, {"yes": True, "adopt": True}) as model:
        yield model


def test_the_terminal_asks_and_yes_applies(
    lab: Lab, claude: list[str], model: ScriptedModel
) -> None:
    mine = lab.user / ".codex/AGENTS.md"
    with terminal(lab.root, claude, model) as shown:
        while not model.called:  # the client does not wait for the server before its first request
            asked = model.asked
            shown.press("Deploy it")
            shown.wait_for("Deploy it")
            shown.press("Enter")
            eventually(lambda before=asked: model.asked > before, PATIENCE_S)
        shown.wait_for("requests your input", "Deploy profile default", "Accept")
        shown.wait_for("Overwrite, though agentpack did not write it:", str(mine))
        assert mine.read_text() == "# Mine\n"
        shown.press("Space")
        shown.wait_for("Write these files: ☒")
        shown.press("Down")
        eventually(lambda: "Space to toggle" not in shown.screen(), PATIENCE_S)
        shown.press("Enter")
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
