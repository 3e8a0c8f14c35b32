"""Claude Code in a terminal of tmux: what is on the screen, and the keys that are pressed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.loopback_model import API_KEY
from tests.rig import child_environment, eventually
from tests.scripted_model import ScriptedModel

PATIENCE_S = 60


def claude_with(home: Path, project: Path, *options: str) -> list[str]:
    """Claude Code with this server, past its first-run questions."""
    program = shutil.which("claude")
    if not program:
        pytest.skip("claude is not on PATH; npm installs it")
    known = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
        "projects": {str(project): known},
    }
    (home / ".claude.json").write_text(json.dumps(settings))
    entry = {"command": sys.executable, "args": ["-m", "fleet_agentpack", *options]}
    config = home / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"agentpack": entry}}))
    return [program, "--mcp-config", str(config)]


class Terminal:
    """A screen with a program on it."""

    def __init__(self, tmux: Callable[..., str]) -> None:
        self._tmux = tmux

    def screen(self) -> str:
        """What a person sees now."""
        return self._tmux("capture-pane", "-p", "-J").replace("\xa0", " ")

    def press(self, *keys: str) -> None:
        """Press keys, by their names, or type text."""
        self._tmux("send-keys", *keys)

    def wait_for(self, *texts: str) -> None:
        """Wait until all of it is on the screen."""
        try:
            eventually(lambda: all(text in self.screen() for text in texts), PATIENCE_S)
        except AssertionError:
            pytest.fail(f"{texts} is not on the screen:\n{self.screen()}")


@contextmanager
def terminal(folder: Path, words: list[str], model: ScriptedModel) -> Iterator[Terminal]:
    """Claude Code on a tmux server of its own, ready for the first key."""
    program = shutil.which("tmux")
    if not program:
        pytest.skip("tmux is not installed")

    def tmux(*arguments: str, **env: str) -> str:
        command = [program, "-S", str(folder / "tmux"), "-f", os.devnull, *arguments]
        environ = child_environment(TERM="xterm-256color", LANG="C.UTF-8", **env)
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tmux("new-session", "-d", "-x", "160", "-y", "50", *words, **model.environ)
    try:
        shown = Terminal(tmux)
        shown.wait_for("? for shortcuts")
        yield shown
    finally:
        tmux("kill-server")
