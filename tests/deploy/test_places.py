"""Which files are the user's and which the project's, and where both are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.lab import ALL_TARGETS, CODEX, COMMAND, PROJECT, Lab, files
from tests.deploy.shell import Shell

BASE = "instructions_base--d39861fff1"
PROJECT_ID = "ae2752b5775071e2"
APPLY = ("deploy", "--apply", "--yes")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path / "lab")
    lab.targets = {"codex": CODEX}
    lab.instructions("base", "base\n")
    return lab


@pytest.fixture
def shell(lab: Lab) -> Shell:
    return Shell(lab)


def paths(answer: dict[str, Any], lab: Lab) -> list[str]:
    return [os.path.relpath(row["path"], lab.root) for row in answer["data"]["changes"]]


def texts(lab: Lab) -> tuple[str, str]:
    return (lab.user / ".codex/AGENTS.md").read_text(), (lab.project / "AGENTS.md").read_text()


def test_a_projects_overlay_stays_in_the_project(shell: Shell) -> None:
    lab = shell.lab
    lab.source(f"projects/{PROJECT_ID}/overlays/{BASE}/AGENTS.md", "only here\n")
    rows = shell.json("plan")["data"]["changes"]
    assert [row["layer"] for row in rows] == ["project", "upstream"]
    shell("deploy", "--apply", "--yes")
    assert texts(lab) == ("base\n", "only here\n")
    shell("status", "--check")


def test_a_module_may_be_for_one_of_the_two(shell: Shell) -> None:
    lab = shell.lab
    lab.instructions("mine", "for me\n", scope="user")
    lab.instructions("ours", "for all of us\n", scope="project")
    shell("deploy", "--apply", "--yes")
    user, project = texts(lab)
    assert "for me" in user and "for all" not in user
    assert "for me" not in project and "for all" in project
    lab.modules[0]["scope"] = "machine"
    lab.save()
    assert "modules[0].scope: unknown value" in shell("plan", status=1).stderr


def test_a_profile_of_a_project_leaves_the_users_files_alone(shell: Shell) -> None:
    lab = shell.lab
    lab.instructions("acme", "acme\n", tags=["acme"])
    lab.instructions("laptop", "laptop\n", tags=["laptop"])
    lab.profiles |= {
        "acme": {"include_tags": ["base", "acme"], "project": "git@github.com:example/example.git"},
        "laptop": {"include_tags": ["base", "laptop"], "machine": "Test Machine"},
        "project-0123456789abcdef": {"include_tags": ["acme"]},
    }
    lab.save()
    answer = shell.json("deploy", "--apply", "--yes")
    assert answer["data"]["profile"] == "default"
    assert answer["data"]["profiles"] == {"project": "acme", "user": "laptop"}
    user, project = texts(lab)
    assert "laptop" in user and "acme" not in user
    assert "laptop" not in project and "acme" in project
    other = Shell(lab, lab.root / "other")
    other.cwd.mkdir()
    answer = other.json("plan")
    assert answer["data"]["profiles"] == {"project": "laptop", "user": "laptop"}
    assert paths(answer, lab) == ["other/AGENTS.md"]
    named = other.json("plan", "--profile", "project-0123456789abcdef")
    assert paths(named, lab) == ["other/AGENTS.md"]
    lab.profiles["again"] = {"project": PROJECT_ID}
    lab.save()
    assert "profiles acme and again are bound" in shell("plan", status=1).stderr


@pytest.mark.parametrize("trouble", ["refused", "missing"])
def test_the_projects_root_is_found_without_git(shell: Shell, trouble: str) -> None:
    lab = shell.lab
    lab.source(f"projects/{PROJECT_ID}/overlays/{BASE}/AGENTS.md", "only here\n")
    inside = Shell(lab, lab.project / "deep/inside")
    inside.cwd.mkdir(parents=True)
    refused = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    more = refused if trouble == "refused" else {"PATH": "/nonexistent"}
    inside("deploy", "--apply", "--yes", **more)
    assert texts(lab) == ("base\n", "only here\n")
    worktree = lab.root / "worktree"
    lab.git("commit", "--quiet", "--allow-empty", "-m", "first", cwd=lab.project)
    lab.git("worktree", "add", "--quiet", str(worktree), cwd=lab.project)
    Shell(lab, worktree)("deploy", "--apply", "--yes", **more)
    assert (worktree / "AGENTS.md").read_text() == "only here\n"


@pytest.mark.parametrize("place", ["home", "root", "home in git"])
def test_the_home_and_the_root_are_no_project(shell: Shell, place: str) -> None:
    lab = shell.lab
    shell("deploy", "--apply", "--yes")
    before = files(lab.outside())
    if place == "home in git":
        lab.git("init", "--quiet", cwd=lab.user)
    nowhere = Shell(lab, Path("/") if place == "root" else lab.user)
    for words in (("plan", "--check"), ("status", "--check"), ("deploy", "--apply", "--yes")):
        answer = nowhere.json(*words)
        (warning,) = answer["warnings"]
        assert warning.startswith("there is no project") and "--project DIR" in warning
    assert files(lab.outside()) == before
    lab.targets = {"cursor": PROJECT}
    lab.save()
    error = nowhere.refusal("plan")
    assert error["code"] == "E_PROJECT_REQUIRED"
    assert error["details"]["next_actions"][0] == "start_in_project"


def test_a_directory_below_a_home_in_git_is_a_project_of_its_own(shell: Shell) -> None:
    lab = shell.lab
    lab.git("init", "--quiet", cwd=lab.user)
    below = Shell(lab, lab.user / "src/new")
    below.cwd.mkdir(parents=True)
    assert paths(below.json("plan"), lab) == ["user/.codex/AGENTS.md", "user/src/new/AGENTS.md"]


def test_a_linked_directory_is_left_alone_and_the_rest_goes_on(shell: Shell) -> None:
    lab = shell.lab
    lab.targets = ALL_TARGETS
    lab.skill("tidy")
    lab.skill("other")
    outside = lab.root / "outside"
    outside.mkdir()
    skills = lab.user / ".claude/skills"
    skills.mkdir(parents=True)
    (skills / "tidy").symlink_to(outside)
    answer = shell.json("deploy", "--apply", "--yes")
    (warning,) = answer["warnings"]
    assert str(skills / "tidy") in warning and "left alone" in warning
    assert (skills / "other/SKILL.md").exists() and list(outside.iterdir()) == []
    shell("status", "--check")


def test_claudes_own_variable_is_followed(shell: Shell) -> None:
    lab = shell.lab
    lab.targets = {"claude_code": {**CODEX, "scope": "user"}}
    lab.command("go")
    moved = lab.root / "claude"
    shell("deploy", "--apply", "--yes", CLAUDE_CONFIG_DIR=str(moved))
    assert (moved / "commands/go.md").read_text() == COMMAND.format(name="go")
    assert not (lab.user / ".claude").exists()


def test_a_target_that_we_do_not_know_is_skipped(shell: Shell) -> None:
    lab = shell.lab
    lab.targets = {"codex": CODEX, "zed": {"mode": "whatever"}}
    lab.instructions("zed", "zed\n", targets=["zed", "jetbrains"])
    answer = shell.json("plan")
    assert answer["data"]["targets"] == ["codex"] and len(answer["data"]["changes"]) == 2
    assert answer["warnings"] == [
        "target jetbrains is not supported here and is skipped",
        "target zed is not supported here and is skipped",
    ]
    lab.targets = {"codex": CODEX, "claude-code": CODEX}
    lab.save()
    error = shell.refusal("plan")
    assert error["code"] == "E_TARGET_UNSUPPORTED"
    assert "did you mean claude_code?" in error["message"]


def test_a_module_that_one_target_cannot_take_stops_that_target_alone(shell: Shell) -> None:
    lab = shell.lab
    lab.targets = ALL_TARGETS
    lab.command("go")
    shell("deploy", "--apply", "--yes")
    deployed = lab.user / ".claude/commands/go.md"
    lab.source("modules/commands/go.md", "no front matter\n")
    lab.source("modules/instructions/base/AGENTS.md", "next\n")
    answer = shell.json("deploy", "--apply", "--yes", status=1, ok=True)
    assert answer["data"]["applied"] and answer["data"]["targets"] == ["codex", "cursor", "vscode"]
    (left_out,) = answer["data"]["target_errors"]
    assert left_out["target"] == "claude_code" and "command:go" in left_out["message"]
    assert any(text.startswith("claude_code is left out: ") for text in answer["warnings"])
    assert len(answer["warnings"]) == 1
    assert texts(lab) == ("next\n", "next\n") and deployed.exists()
    error = shell.refusal("plan", "--target", "claude_code")
    assert error["details"]["reason_code"] == "module_invalid"


def test_no_empty_directories_stay_behind(shell: Shell) -> None:
    lab = shell.lab
    lab.skill("tidy", {"a/b/c.txt": "deep\n"})
    lab.skill("mine")
    shell("deploy", "--apply", "--yes")
    lab.write("user/.codex/skills/mine/notes.txt", "mine\n")
    lab.drop("skill:tidy")
    lab.drop("skill:mine")
    shell("deploy", "--apply", "--yes", "--allow-mass-delete")
    for top in (lab.user, lab.project):
        assert not (top / ".codex/skills/tidy").exists()
    assert [path.name for path in (lab.user / ".codex/skills/mine").iterdir()] == ["notes.txt"]


# One project inside another, and projects and homes that are gone.


def test_a_project_inside_another_is_not_left_behind(shell: Shell) -> None:
    lab = shell.lab
    inner = lab.project / "vendor/inner"
    inner.mkdir(parents=True)
    lab.git("init", "--quiet", cwd=inner)
    here = Shell(lab, inner)
    lab.skill("tidy")
    for place in (here, shell):
        place.json(*APPLY)
    for place in (here, shell):
        assert place.json("status")["warnings"] == []
    shell.json("uninstall", "--project", "--yes")
    assert not (lab.project / "AGENTS.md").exists()
    assert (inner / "AGENTS.md").exists() and (inner / ".codex/skills/tidy/SKILL.md").exists()
    here.json("uninstall", "--project", "--yes")
    assert not (inner / "AGENTS.md").exists()


@pytest.mark.parametrize("top", ["user", "project"])
def test_what_was_replaced_in_a_place_that_moved_is_not_forgotten(shell: Shell, top: str) -> None:
    lab = shell.lab
    lab.skill("tidy")
    name = "AGENTS.md" if top == "project" else ".codex/AGENTS.md"
    lab.write(f"{top}/{name}", "mine\n", 0o640)
    shell.json(*APPLY, "--adopt")
    place, moved = lab.root / top, lab.root / "moved"
    place.rename(moved)
    elsewhere = Shell(lab, lab.root)
    answer = elsewhere.json("uninstall", "--yes", HOME=str(lab.root / "other"))
    assert not place.exists()
    assert str(place / name) in "\n".join(answer["warnings"])
    elsewhere.json("snapshots", "prune", "--keep", "1", "--yes")
    moved.rename(place)
    shell.json("uninstall", "--yes")
    assert (place / name).read_text() == "mine\n"
