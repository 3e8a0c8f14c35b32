"""Homes as people have them: linked dotfiles, shared directories, private files, odd things."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.lab import CODEX, Lab, files, tree
from tests.deploy.shell import QuickShell

APPLY = ("deploy", "--apply", "--yes", "--allow-mass-delete")
ADOPT = (*APPLY, "--adopt")


@pytest.fixture
def shell(tmp_path: Path) -> QuickShell:
    lab = Lab(tmp_path / "lab", git=False)
    lab.furnish()
    return QuickShell(lab)


def settled(shell: QuickShell) -> None:
    """Nothing is left to do."""
    shell.json("plan", "--check")
    shell.json("status", "--check", "--only", "missing,modified")
    assert shell.json(*APPLY)["data"]["reason"] == "no_changes"


def lived_in(lab: Lab) -> dict[str, Any]:
    """What Claude Code, Codex, Cursor and Copilot leave in a home and a project."""
    for name, mode in {
        "user/.claude/settings.json": 0o600,
        "user/.claude/.credentials.json": 0o600,
        "user/.claude/CLAUDE.md": 0o644,
        "user/.claude/commands/mine.md": 0o644,
        "user/.claude/commands/go.md": 0o600,
        "user/.claude/projects/x/1.jsonl": 0o600,
        "user/.codex/auth.json": 0o600,
        "user/.codex/config.toml": 0o600,
        "user/.codex/sessions/2026/11/18/rollout.jsonl": 0o644,
        "user/dotfiles/AGENTS.md": 0o644,
        "user/dotfiles/hello.md": 0o444,
        "project/AGENTS.md": 0o664,
        "project/.cursor/rules/mine.mdc": 0o644,
        "project/.github/workflows/ci.yml": 0o644,
        "project/.codex/skills/tidy/SKILL.md": 0o644,
        "project/README.md": 0o644,
    }.items():
        lab.write(name, f"what is in {name}\r\n", mode)
    (lab.user / ".codex/AGENTS.md").symlink_to("../dotfiles/AGENTS.md")
    (lab.user / ".codex/prompts").mkdir()
    (lab.user / ".codex/prompts/hello.md").symlink_to(lab.user / "dotfiles/hello.md")
    (lab.project / "CLAUDE.md").symlink_to("AGENTS.md")
    (lab.project / ".github/copilot-instructions.md").symlink_to("../AGENTS.md")
    (lab.project / ".github/prompts").mkdir()
    (lab.user / ".claude/skills").mkdir()
    (lab.user / ".claude/skills/broken").symlink_to("nowhere")
    return lab.outside()


@pytest.mark.parametrize("end", ["undo", "uninstall"])
def test_a_home_that_is_lived_in_is_given_back(shell: QuickShell, end: str) -> None:
    lab = shell.lab
    before = lived_in(lab)
    assert shell.refusal(*APPLY)["code"] == "E_ADOPT_CONFIRM_REQUIRED"
    assert lab.outside() == before
    shell.json(*ADOPT)
    settled(shell)
    assert (lab.user / "dotfiles/AGENTS.md").read_text().startswith("what is in")
    if end == "uninstall":
        lab.source("modules/instructions/base/AGENTS.md", "# Two\n")
        lab.skill("fresh")
        lab.drop("command:go")
        shell.json(*ADOPT)
        settled(shell)
    shell.json(end, "--yes")
    assert lab.outside() == before


@pytest.mark.parametrize("inside", [True, False])
def test_directories_that_are_linked_to_dotfiles(shell: QuickShell, inside: bool) -> None:
    lab = shell.lab
    dotfiles = (lab.user if inside else lab.root) / "dotfiles"
    for name in (".codex", ".claude"):
        (dotfiles / name).mkdir(parents=True)
        (lab.user / name).symlink_to(os.path.relpath(dotfiles / name, lab.user))
    lab.write(f"{os.path.relpath(dotfiles, lab.root)}/.codex/AGENTS.md", "mine\n", 0o600)
    before, linked = lab.outside(), tree(dotfiles)
    shell.json(*ADOPT)
    assert (dotfiles / ".codex/AGENTS.md").read_text() == "# Base\n"
    settled(shell)
    shell.json("uninstall", "--yes")
    assert (lab.outside(), tree(dotfiles)) == (before, linked)


def test_one_skills_directory_for_two_programs(shell: QuickShell) -> None:
    lab = shell.lab
    lab.write("user/.codex/skills/mine/SKILL.md", "mine\n")
    (lab.user / ".claude").mkdir()
    (lab.user / ".claude/skills").symlink_to("../.codex/skills")
    before = lab.outside()
    shell.json(*APPLY)
    settled(shell)
    skill = lab.user / ".codex/skills/tidy/SKILL.md"
    next(row for row in lab.modules if row["id"] == "skill:tidy")["targets"] = ["codex"]
    lab.save()
    shell.json(*APPLY)
    assert skill.exists()  # the other one still wants it
    settled(shell)
    shell.json("uninstall", "--yes")
    assert lab.outside() == before


def test_a_home_under_another_name_is_the_same_home(shell: QuickShell) -> None:
    lab = shell.lab
    lab.write("user/.codex/AGENTS.md", "mine\n", 0o600)
    before = lab.outside()
    shell.json(*ADOPT)
    alias = lab.root.parent / "alias"
    alias.symlink_to(lab.root)
    there = QuickShell(_same_lab(lab, alias))
    lab.source("modules/instructions/base/AGENTS.md", "# Two\n")
    lab.drop("prompt:hello")
    answer = there.json(*APPLY)
    assert answer["warnings"] == [] and answer["data"]["summary"]["delete"] == 2
    assert (lab.user / ".codex/AGENTS.md").read_text() == "# Two\n"
    settled(shell)
    settled(there)
    there.json("uninstall", "--yes")
    assert lab.outside() == before


def _same_lab(lab: Lab, root: Path) -> Lab:
    """The same lab by another name."""
    other = Lab(root, git=False)
    other.targets, other.modules = lab.targets, lab.modules
    return other


@pytest.mark.parametrize("what", ["directory", "pipe"])
def test_what_is_no_file_is_never_replaced(shell: QuickShell, what: str) -> None:
    lab = shell.lab
    place = lab.project / "AGENTS.md"
    if what == "directory":
        lab.write("project/AGENTS.md/notes.txt", "mine\n")
    else:
        os.mkfifo(place)
    error = shell.refusal(*ADOPT)
    assert str(place) in error["message"]
    assert place.is_dir() if what == "directory" else place.is_fifo()
    assert files(tree(lab.user)) == {}


def test_odd_names_and_special_files_are_nobodys_business(shell: QuickShell) -> None:
    lab = shell.lab
    odd = lab.user / ".codex/skills/odd"
    odd.mkdir(parents=True)
    (odd / "a\nb 'c\" ü.md").write_text("mine\n")
    Path(os.fsdecode(os.fsencode(odd) + b"/\xff\xfe.md")).write_text("mine\n")
    (odd / "loop").symlink_to("loop")
    before = lab.outside()
    shell.json(*APPLY)
    settled(shell)
    shell.json("status")
    shell.json("uninstall", "--yes")
    assert lab.outside() == before


def test_a_file_that_is_hard_linked_elsewhere(shell: QuickShell) -> None:
    lab = shell.lab
    kept = lab.write("dotfiles/AGENTS.md", "mine\n", 0o640)
    mine = lab.project / "AGENTS.md"
    os.link(kept, mine)
    shell.json(*ADOPT)
    assert kept.read_text() == "mine\n"
    shell.json("undo", "--yes")
    assert (mine.read_text(), mine.stat().st_mode & 0o777) == ("mine\n", 0o640)


def test_only_a_part_is_uninstalled(shell: QuickShell) -> None:
    lab = shell.lab
    before = lived_in(lab)
    shell.json(*ADOPT)
    deployed = lab.outside()
    shell.json("uninstall", "--user", "--yes")
    now = lab.outside()
    assert {k: v for k, v in now.items() if k.startswith("user/")} == {
        k: v for k, v in before.items() if k.startswith("user/")
    }
    assert {k: v for k, v in now.items() if k.startswith("project/")} == {
        k: v for k, v in deployed.items() if k.startswith("project/")
    }
    shell.json("uninstall", "--target", "codex", "--yes")
    assert (lab.project / "AGENTS.md").read_text().startswith("what is in")
    assert (lab.project / ".claude/commands/go.md").exists()
    shell.json("uninstall", "--project", "--yes")
    assert lab.outside() == before
    assert shell.json("uninstall", "--yes", "--dry-run")["ok"]


def test_uninstall_shows_before_it_writes(shell: QuickShell) -> None:
    lab = shell.lab
    lived_in(lab)
    shell.json(*ADOPT)
    before = tree(lab.root)
    preview = shell.json("uninstall", "--dry-run")
    assert str(lab.project / "AGENTS.md") in str(preview["data"])
    assert shell.refusal("uninstall")["code"] == "E_CONFIRM_REQUIRED"
    assert tree(lab.root) == before


def test_the_state_can_be_deleted_after_an_uninstall(shell: QuickShell) -> None:
    lab = shell.lab
    before = lived_in(lab)
    shell.json(*ADOPT)
    shell.json("uninstall", "--yes")
    for path in sorted((lab.home_dir / "state").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert lab.outside() == before
    shell.json(*ADOPT)
    settled(shell)
    shell.json("uninstall", "--yes")
    assert lab.outside() == before


def test_two_people_share_a_skill_but_not_a_home(shell: QuickShell) -> None:
    """CODEX_HOME and CLAUDE_CONFIG_DIR name other places; what was deployed before stays ours."""
    lab = shell.lab
    lab.targets = {"codex": {**CODEX, "scope": "user"}}
    lab.save()
    shell.json(*APPLY)
    moved = {"CODEX_HOME": str(lab.root / "codex")}
    answer = shell.json(*APPLY, **moved)
    assert any("left behind" in text for text in answer["warnings"])
    assert (lab.user / ".codex/AGENTS.md").exists() and (lab.root / "codex/AGENTS.md").exists()
    shell.json("uninstall", "--yes", **moved)
    assert files(tree(lab.user)) == {} and files(tree(lab.root / "codex")) == {}


def test_a_project_that_is_gone_stays_gone(shell: QuickShell) -> None:
    lab = shell.lab
    before = lived_in(lab)
    shell.json(*ADOPT)
    shutil.rmtree(lab.project)
    elsewhere = lab.root / "elsewhere"
    elsewhere.mkdir()
    QuickShell(lab, elsewhere).json("uninstall", "--yes")
    assert not lab.project.exists()
    assert tree(lab.user, "user") == {k: v for k, v in before.items() if k.startswith("user/")}


def test_a_project_that_moved_goes_on(shell: QuickShell) -> None:
    lab = shell.lab
    shell.json(*APPLY)
    moved = lab.root / "moved"
    lab.project.rename(moved)
    there = QuickShell(lab, moved)
    lab.source("modules/instructions/base/AGENTS.md", "# Two\n")
    there.json(*APPLY)
    assert (moved / "AGENTS.md").read_text() == "# Two\n"
    settled(there)
    assert not lab.project.exists()
