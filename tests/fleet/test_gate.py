"""The gate that holds a program to its role's commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local import gate
from fleet_agentpack.fleet.local.programs import Order, load_programs

ALLOWED = ["git", "echo", "pytest -q"]


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git add --all && git commit -m 'Add; python3 && $(x)'",
        "echo hi > said.txt 2>&1",
        "echo 'a\nb' >> x; git log | head -5",
        "cat a.txt; ls -la; pwd",
        "cd src && pytest -q tests",
        "sed -n 1,200p app.py",
        'echo "a $HOME b"',
        "git diff\ngit log",
        "echo a &> out",
        "",
    ],
)
def test_what_the_role_lists_and_what_only_reads_may_run(command: str) -> None:
    assert gate.may_run(command, ALLOWED)


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'print(1)'",
        "git log; python3 x.py",
        "git log && python3 x.py",
        "git log | sh",
        "git log\npython3 x.py",
        "git log & python3 x.py",
        "(python3 x.py)",
        "echo $(python3 x.py)",
        'echo "$(python3 x.py)"',
        "echo `python3 x.py`",
        'echo "`python3 x.py`"',
        "echo ${x:-y}",
        "cat <(python3 x.py)",
        "sh <<END\npython3 x.py\nEND",
        "GIT_PAGER=evil git log",
        "PATH=. git log",
        "gitx status",
        "/tmp/git status",
        "$x git",
        "pytest tests",
        "sed -n 1p -e e x",
        "sed -i s/a/b/ x",
        "sed -n '1e touch z' x",
        "eval git status",
        "if true; then python3 x.py; fi",
        "echo 'unfinished",
        "echo >(python3 x.py)",
        "> x python3 x.py",
        "echo a >x python3; 2>x python3",
        "g\\it status; p\\ython3",
        "{ python3 x.py; }",
        "! python3 x.py",
        "echo $'a\\'; python3 x.py",
    ],
)
def test_anything_else_may_not(command: str) -> None:
    assert not gate.may_run(command, ALLOWED)


def test_a_hook_is_answered_by_its_status() -> None:
    def judged(tool: str, command: str) -> subprocess.CompletedProcess[str]:
        asked = json.dumps({"tool_name": tool, "tool_input": {"command": command}})
        argv = [sys.executable, "-I", str(Path(gate.__file__)), json.dumps(ALLOWED)]
        return subprocess.run(argv, input=asked, capture_output=True, text=True)

    assert judged("Bash", "git status").returncode == 0
    refused = judged("Bash", "python3 x.py")
    assert refused.returncode == 2 and "git, echo, pytest -q" in refused.stderr
    assert judged("apply_patch", "*** Begin Patch").returncode == 0


def test_codex_is_held_to_a_role_s_commands_inside_the_sandbox_only() -> None:
    codex = load_programs({})["codex"]
    argv, _ = codex.launch(Order("t", "i", "s", False, "/d", True, ("git", 'say "a"')))
    [hook] = [word for word in argv if word.startswith("hooks.PreToolUse=")]
    import tomllib

    command = tomllib.loads(hook.replace("hooks.", "", 1))["PreToolUse"][0]["hooks"][0]["command"]
    assert str(gate.__file__) in command and 'say \\"a\\"' in command
    with pytest.raises(FleetError, match="cannot be held to some commands"):
        codex.launch(Order("t", "i", "s", False, "/d", False, ("git",)))
