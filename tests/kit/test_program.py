"""How messages name this program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleet_agentpack.commands import COMMANDS as DECLARED
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.program import COMMANDS, located, located_throughout, program
from tests.rig import Stdio, child_environment

SCRIPT = Path(sys.executable).with_name("fleet-agentpack")


@pytest.fixture
def off_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def test_the_commands_are_those_that_there_are() -> None:
    assert tuple(DECLARED) == COMMANDS


def test_on_the_path_it_has_its_name() -> None:
    assert program() == "fleet-agentpack"
    assert located("run `fleet-agentpack init`") == "run `fleet-agentpack init`"


@pytest.mark.usefixtures("off_the_path")
def test_off_the_path_it_is_named_by_where_it_is() -> None:
    assert program() == str(SCRIPT)
    assert located("run `fleet-agentpack init`, or use --repo") == (
        f"run `{SCRIPT} init`, or use --repo"
    )
    assert located("Next: fleet-agentpack --only fleet") == f"Next: {SCRIPT} --only fleet"
    data = {"hint": ["fleet-agentpack lock"], "count": 1}
    assert located_throughout(data) == {"hint": [f"{SCRIPT} lock"], "count": 1}
    step = Action.command("forge", "login", "a b", text="Log in: {}")
    assert step.for_agent() == f"Log in: {SCRIPT} forge login 'a b'"
    for other in (
        "this version of fleet-agentpack has other files",
        "/home/me/fleet-agentpack plan",
        "~/.config/fleet-agentpack/config.toml",
        "my-fleet-agentpack plan",
    ):
        assert located(other) == other


@pytest.mark.usefixtures("off_the_path")
def test_without_a_script_the_interpreter_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my python"))
    assert program() == f"'{tmp_path}/my python' -m fleet_agentpack"


@pytest.mark.usefixtures("off_the_path")
def test_what_the_command_line_says_can_be_copied(work: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(SCRIPT), *words]
        return subprocess.run(command, capture_output=True, text=True, env=child_environment())

    assert f"example with `{SCRIPT} init`" in run("plan").stderr
    assert f"\n  {SCRIPT} fleet list\n" in run("fleet", "show", "nobody").stderr
    assert f"Next: {SCRIPT} plan " in run("init").stdout
    assert str(SCRIPT) in run("doctor", "--all").stdout.replace("\n", "")


@pytest.mark.usefixtures("off_the_path")
def test_over_mcp_an_error_names_tools_and_what_is_no_tool_by_its_path() -> None:
    with Stdio() as server:
        server.hello()
        missing = server.call("plan")["structuredContent"]["errors"][0]
        assert f"example with `{SCRIPT} init`" in missing["details"]["hint"]
        unknown = server.call("show_agent", agent_name="nobody")["structuredContent"]
        assert "list_agents" in unknown["message"] and "fleet list" not in unknown["message"]
