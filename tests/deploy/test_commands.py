"""The commands as processes: words, envelopes, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.deploy.lab import Lab, files, tree
from tests.deploy.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(Lab(tmp_path / "lab"))


def test_from_init_to_rollback(shell: Shell) -> None:
    assert "Initialized" in shell("init").stdout
    assert "Plan: +10 ~0 -0" in shell("plan").stdout
    assert "+# Working agreement" in shell("diff").stdout
    assert shell("deploy").stdout.startswith("Plan: +10")
    assert files(shell.lab.outside()) == {}
    assert shell("deploy", "--apply", stdin="n\n").stdout.endswith("Aborted\n")
    assert shell("deploy", "--apply").stdout.endswith("Aborted\n")  # nobody answers
    assert files(shell.lab.outside()) == {}
    out = shell("deploy", "--apply", stdin="y\n").stdout
    assert "Apply changes? [y/N] Applied. Snapshot: " in out
    snapshot = out.split()[-1]
    assert shell("deploy", "--apply", "--yes").stdout.endswith("No changes\n")
    assert shell("status").stdout == "No drift\n"
    agents = shell.lab.project / "AGENTS.md"
    agents.write_text("mine\n")
    assert "1 modified" in shell("status").stdout
    assert snapshot in shell("snapshots").stdout
    done = shell("rollback", "--to", snapshot)
    assert done.stdout.startswith(f"Rolled back to {snapshot}.")
    assert done.stderr.startswith("Warning: ") and "edited by hand" in done.stderr
    assert agents.read_text() != "mine\n"


def test_envelopes(shell: Shell) -> None:
    assert shell.json("init", "--yes", "--git")["data"]["git"]["initialized"] is True
    plan = shell.json("plan")
    assert plan["command"] == "plan" and plan["data"]["summary"]["create"] == 10
    assert shell.json("deploy")["command_id"] == "deploy"
    applied = shell.json("deploy", "--apply", "--yes")
    assert applied["command_id"] == "deploy --apply" and applied["data"]["applied"]
    assert shell.json("status", "--only", "missing,extra")["data"]["summary_total"]
    assert shell.json("doctor")["data"]["machine_id"] == "test-machine"
    assert shell.json("doctor", "--fix", "--yes")["command_path"] == ["doctor", "--fix"]
    assert shell.json("update", "--yes")["data"]["steps"][0]["name"] == "lock"
    assert shell.json("snapshots")["data"]["snapshots"][0]["kind"] == "deploy"


def test_what_writes_needs_yes_with_json(shell: Shell) -> None:
    before = tree(shell.lab.home_dir)
    for words in (
        ("init",),
        ("lock",),
        ("fetch",),
        ("update",),
        ("doctor", "--fix"),
        ("rollback", "--to", "1"),
    ):
        answer = shell.json(*words, status=1)
        assert answer["errors"][0]["code"] == "E_CONFIRM_REQUIRED", words
        assert answer["command"] == words[0]
    assert shell.json("deploy", "--apply", status=1)["errors"][0]["code"] == "E_CONFIG_MISSING"
    assert tree(shell.lab.home_dir) == before
    shell("init")
    answer = shell.json("deploy", "--apply", status=1)
    assert answer["errors"][0]["code"] == "E_CONFIRM_REQUIRED"
    assert answer["errors"][0]["details"]["command"] == "deploy --apply"
    assert files(shell.lab.outside()) == {}


def test_global_flags_before_and_after(shell: Shell) -> None:
    shell.lab.furnish()
    repo = str(shell.lab.repo.rename(shell.lab.root / "repo elsewhere"))
    for words in (
        ("--repo", repo, "--target", "codex", "plan", "--json"),
        ("plan", f"--repo={repo}", "--target=codex", "--json"),
        ("--json", "plan", "--target", "codex", "--repo", repo),
    ):
        assert json.loads(shell(*words).stdout)["data"]["targets"] == ["codex"]


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--target", "codex", "--target", "codex"),
        ("plan", "--json", "--json"),
        ("rollback",),
        ("update", "--lock", "--no-lock"),
        ("status", "--only", "lost"),
        ("plan", "--apply"),
        ("nonsense",),
    ],
)
def test_usage_errors_are_2_with_nothing_on_stdout(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell(*words, status=2).stdout == ""


def test_errors_are_1_and_say_what_to_do(shell: Shell) -> None:
    assert "fleet-agentpack init" in shell("plan", status=1).stderr
    shell.lab.prompt("hello", "a\n")
    shell.lab.source("modules/other/hello.md", "b\n")
    shell.lab.module("prompt", "again", "modules/other/hello.md")
    text = shell("plan", status=1).stderr
    assert "E_DESIRED_STATE_CONFLICT" in text
    assert "prompt:again" in text and "prompt:hello" in text and "hello.md" in text
    assert "has no dry run" in shell("lock", "--dry-run", status=1).stderr
    answer = shell.json("rollback", "--to", "../../x", "--yes", status=1)
    assert answer["errors"][0]["details"]["snapshots"] == []


def test_colour_and_hostile_names(shell: Shell) -> None:
    shell.lab.furnish()
    assert "\x1b[" in shell("diff", FORCE_COLOR="1").stdout
    assert "\x1b[" not in shell("diff").stdout
    shell.lab.source("modules/prompts/hello.md", "\x1b[31mred\x1b[0m\n")
    assert "\x1b" not in shell("diff").stdout


def test_differences_as_git_shows_them(shell: Shell) -> None:
    lab = shell.lab
    lab.targets = {"codex": {"mode": "files", "scope": "user", "options": {}}}
    lab.prompt("hello", "".join(f"line {n}\n" for n in range(12)))
    lab.deploy()
    lab.source("modules/prompts/hello.md", "".join(f"line {n}\n" for n in range(12)) + "end")
    path = lab.user / ".codex/prompts/hello.md"
    assert shell("diff").stdout == (
        f"=== codex {path} ===\n--- a{path}\n+++ b{path}\n"
        "@@ -10,3 +10,4 @@ line 8\n line 9\n line 10\n line 11\n"
        "+end\n\\ No newline at end of file\n"
    )
    assert "+end\n\\ No newline" in shell("diff", PATH="/nonexistent").stdout
    lab.source("modules/prompts/hello.md", b"\x00binary")
    assert "binary or not UTF-8" in shell("diff").stdout
