"""`fleet-agentpack climpt` as a process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fleet_agentpack.climpt.scaffold import init
from tests import rig
from tests.climpt.project import write_echo, write_registry


def run(*arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return rig.run("climpt", *arguments, stdin=stdin, **env)


def test_a_first_session(work: Path) -> None:
    first = run("init")
    assert first.returncode == 0
    assert first.stdout.count("wrote ") == 15
    found = run("search", "group", "changes", "and", "commit")
    assert found.stdout.splitlines()[1].split()[1:4] == ["git", "group-commit", "unstaged-changes"]
    described = run("describe", "git", "group-commit", "unstaged-changes")
    assert "climpt-git group-commit unstaged-changes" in described.stdout
    prompt = run("execute", "git", "group-commit", "unstaged-changes", "-a", "detailed")
    assert prompt.stdout.startswith("# Commit the changes in groups, with a plan")
    assert first.stderr == found.stderr == described.stderr == prompt.stderr == ""


def test_json_is_that_of_the_tools(work: Path) -> None:
    assert json.loads(run("init", "--json").stdout)["kept"] == []
    rows = json.loads(run("search", "commit", "--json").stdout)
    assert rows[0].keys() == {"c1", "c2", "c3", "description", "score"}
    described = run("describe", "git", "merge-up", "base-branch", "--json").stdout
    assert json.loads(described)["options"]["edition"] == ["default"]
    prompt = run("execute", "git", "merge-up", "base-branch", "--json").stdout
    assert json.loads(prompt)["prompt"].startswith("# Merge this branch")


def test_execute_passes_its_options_on(work: Path) -> None:
    write_echo(work, "{input_text}|{input_text_file}|{uv-a}|{uv-b}")
    done = run(
        *("execute", "test", "echo", "input", "--stdin", "--from", "x.md"),
        *("--uv", "a=1", "--uv", "b=2=3"),
        stdin="Grüße\n",
        PYTHONUTF8="1",
    )
    assert done.stdout == f"Grüße|{work.resolve() / 'x.md'}|1|2=3\n"
    assert done.stderr == ""


def test_variables_without_a_value_are_named(work: Path) -> None:
    write_echo(work, "{input_text}|{uv-a}")
    done = run("execute", "test", "echo", "input")
    assert done.stdout == "{input_text}|{uv-a}\n"
    assert done.stderr == "Warning: no value for input_text, uv-a; pass --stdin --uv a=VALUE\n"
    told = json.loads(run("execute", "test", "echo", "input", "--json").stdout)
    assert told["unfilled"] == ["input_text", "uv-a"]


def test_a_search_without_a_hit_says_what_there_is(work: Path) -> None:
    write_echo(work, "x")
    done = run("search", "zebra")
    assert (done.stdout, done.returncode) == ("", 0)
    assert "There are commands for test (1)" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["search", "x"], "Failed to load registry: .agent/climpt/registry.json: File not found\n"),
        (["describe", "git", "x", "y"], "Failed to load registry"),
        (["execute", "a", "b", "c", "--uv", "x"], "--uv: write NAME=VALUE instead of 'x'"),
    ],
)
def test_errors_are_told_with_what_to_do(work: Path, arguments: list[str], complaint: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_errors_are_json_when_json_was_asked_for(work: Path) -> None:
    done = run("search", "x", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"] == "Failed to load registry"


def test_a_registry_of_ones_own_is_not_replaced(work: Path) -> None:
    registry = write_registry(work, [])
    before = registry.read_bytes()
    done = run("init")
    assert done.returncode == 1
    assert "has commands of its own" in done.stderr
    assert registry.read_bytes() == before


def test_the_terminal_is_safe_from_a_registrys_text(work: Path) -> None:
    init(work)
    write_registry(
        work,
        [{"c1": "a", "c2": "b", "c3": "c", "description": "evil \x1b[2J\nnext", "usage": "\x9b"}],
    )
    for arguments in (("search", "evil"), ("describe", "a", "b", "c")):
        out = run(*arguments, FORCE_COLOR="1").stdout
        assert "\\x1b[2J" in out
        assert "\x1b[2J" not in out and "\x9b" not in out


def test_help_names_the_commands(work: Path) -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("init", "search", "describe", "execute"))
    assert run().returncode == 2
