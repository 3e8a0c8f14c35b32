"""climpt's commands in Claude Code's terminal: slash commands, new ones without a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_agentpack.climpt.scaffold import init
from tests.claude_terminal import PATIENCE_S, claude_with, terminal
from tests.climpt.test_commands import run
from tests.rig import Stdio, eventually
from tests.scripted_model import scripted_model

pytestmark = pytest.mark.clients

NAMES = {"agent": "climpt", "c1": "poem", "c2": "translate", "c3": "verse"}
COMMAND = "/agentpack:poem-translate-verse (MCP)"


def test_commands_are_slash_commands(home: Path, work: Path, socket_enabled: None) -> None:
    init(work)
    described = ("--description", "Translate a verse", "--uv", "metre=how strict")
    run("add", "poem", "translate", "verse", *described)
    with Stdio() as server:
        server.hello()
        rendered = server.call("execute", **NAMES, options={"uv-metre": "iambic"})
    words = claude_with(home, work, "--only", "climpt")
    with scripted_model("none", {}) as model, terminal(home, words, model) as shown:
        shown.press("/poem-tr")
        shown.wait_for(COMMAND, "Translate a verse (arguments: uv-metre)")
        shown.press("Tab")
        shown.wait_for(" /mcp__agentpack__poem-translate-verse", "[uv-metre]")
        shown.press("iambic")
        shown.wait_for("poem-translate-verse iambic")
        shown.press("Enter")
        eventually(lambda: "how strict: iambic" in model.said, PATIENCE_S)
        run("add", "poem", "recite", "verse", "--description", "Recite a verse")
        shown.press("/poem-re")
        shown.wait_for("/agentpack:poem-recite-verse (MCP)", "Recite a verse")
    assert rendered["content"][0]["text"].strip() in model.said
