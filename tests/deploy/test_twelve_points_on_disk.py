"""Twelve ways in which deploy once hurt a home: edits, modes, links and space (5, 7, 8 and 12)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.lab import ALL_TARGETS, CODEX, Lab, files
from tests.deploy.shell import QuickShell

APPLY = ("deploy", "--apply", "--yes")
ADOPT = (*APPLY, "--adopt")
GONE = (*APPLY, "--allow-mass-delete")


@pytest.fixture
def shell(tmp_path: Path) -> QuickShell:
    lab = Lab(tmp_path / "lab", git=False)
    lab.targets = {"codex": CODEX}
    lab.instructions("base", "the pack's\n")
    return QuickShell(lab)


def warned(answer: dict[str, Any]) -> str:
    return "\n".join(answer["warnings"])


# 5. What a hand edited is overwritten only with consent, and comes back.


def test_an_overwritten_edit_comes_back(shell: QuickShell) -> None:
    lab = shell.lab
    shell.json(*APPLY)
    edited = lab.write("project/AGENTS.md", "my edit\n", 0o600)
    assert shell.refusal(*APPLY)["details"]["reason"] == "edited_by_hand"
    shell.json(*ADOPT)
    assert edited.read_text() == "the pack's\n"
    shell.json("undo", "--yes")
    assert (edited.read_text(), edited.stat().st_mode & 0o777) == ("my edit\n", 0o600)


# 7. Modes.


def test_what_only_its_owner_may_read_stays_so(shell: QuickShell) -> None:
    lab = shell.lab
    lab.skill("keys")
    lab.source("modules/skills/keys/token.txt", "secret\n", 0o600)
    lab.source("modules/skills/keys/get.sh", "#!/bin/sh\n", 0o700)
    mine = lab.write("project/AGENTS.md", "mine, and secret\n", 0o600)
    shell.json(*ADOPT)
    for top in (lab.user, lab.project):
        skill = top / ".codex/skills/keys"
        found = {path.name: path.stat().st_mode & 0o777 for path in skill.iterdir()}
        assert found == {"SKILL.md": 0o644, "get.sh": 0o700, "token.txt": 0o600}
    lab.source("modules/skills/keys/token.txt", "another\n", 0o600)
    shell.json(*APPLY)
    assert (lab.user / ".codex/skills/keys/token.txt").stat().st_mode & 0o777 == 0o600
    shell.json("uninstall", "--yes")
    assert (mine.read_text(), mine.stat().st_mode & 0o777) == ("mine, and secret\n", 0o600)


def test_copies_in_our_state_are_for_the_owner_alone(shell: QuickShell) -> None:
    lab = shell.lab
    lab.write("project/AGENTS.md", "mine\n", 0o644)
    lab.skill("keys", {"run.sh": "#!/bin/sh\n"})
    lab.source("modules/skills/keys/run.sh", "#!/bin/sh\n", 0o755)
    for text in ("one\n", "two\n"):
        lab.source("modules/instructions/base/AGENTS.md", text)
        shell.json(*ADOPT)
    state = lab.home_dir / "state"
    copies = [path for path in state.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert len(copies) > 5
    open_to_others = {
        str(path.relative_to(state)): oct(path.stat().st_mode & 0o777)
        for path in copies
        if path.stat().st_mode & 0o177
    }
    assert open_to_others == {}


# 8. Links.


def test_a_link_from_one_targets_file_to_anothers(shell: QuickShell) -> None:
    lab = shell.lab
    lab.targets = ALL_TARGETS
    lab.save()
    (lab.project / ".github").mkdir()
    link = lab.project / ".github/copilot-instructions.md"
    link.symlink_to("../AGENTS.md")
    lab.write("project/AGENTS.md", "mine\n")
    before = lab.outside()
    shell.json(*ADOPT)
    for text in ("second\n", "third\n"):
        lab.source("modules/instructions/base/AGENTS.md", text)
        shell.json(*APPLY)
        assert link.read_text() == (lab.project / "AGENTS.md").read_text() == text
        shell.json("status", "--check", "--only", "missing,modified")
        assert shell.json(*APPLY)["data"]["reason"] == "no_changes"
    shell.json("uninstall", "--yes")
    assert lab.outside() == before


@pytest.mark.parametrize("end", ["undo", "uninstall", "drop"])
@pytest.mark.parametrize("to", ["../../notes.md", "nowhere.md", "/absolute/nowhere"])
def test_an_adopted_link_comes_back_as_a_link(shell: QuickShell, end: str, to: str) -> None:
    lab = shell.lab
    lab.prompt("linked", "the pack's\n")
    lab.write("user/notes.md", "behind the link\n")
    (lab.user / ".codex/prompts").mkdir(parents=True)
    link = lab.user / ".codex/prompts/linked.md"
    link.symlink_to(to)
    shell.json(*ADOPT)
    assert link.read_text() == "the pack's\n" and not link.is_symlink()
    assert (lab.user / "notes.md").read_text() == "behind the link\n"
    if end == "drop":
        lab.drop("prompt:linked")
        shell.json(*GONE)
    else:
        shell.json(end, "--yes")
    assert os.readlink(link) == to
    assert (lab.user / "notes.md").read_text() == "behind the link\n"


# 12. Snapshots take the space of what changed, and can be pruned.


def occupied(folder: Path) -> int:
    """The bytes of all files, hard links once, without the records that the format needs."""
    found = {
        path.stat().st_ino: path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".json"
    }
    return sum(found.values())


def test_a_large_skill_is_kept_once(shell: QuickShell) -> None:
    lab = shell.lab
    lab.skill("large")
    lab.source("modules/skills/large/model.bin", os.urandom(1_000_000))
    shell.json(*APPLY)
    state = lab.home_dir / "state"
    once = occupied(state)
    for number in range(5):
        lab.source("modules/instructions/base/AGENTS.md", f"{number}\n")
        shell.json(*APPLY)
    assert occupied(state) <= 1.3 * once < 1_400_000


@pytest.fixture
def before(shell: QuickShell) -> dict[str, Any]:
    """A home that has a file already."""
    shell.lab.write("project/AGENTS.md", "mine\n", 0o640)
    return shell.lab.outside()


@pytest.fixture
def pruned(shell: QuickShell, before: dict[str, Any]) -> Callable[..., list[str]]:
    """Prunes after five applies; gives the ids that are left, newest first."""
    assert before
    for number in range(5):
        shell.lab.source("modules/instructions/base/AGENTS.md", f"{number}\n")
        shell.json(*ADOPT)

    def prune(*words: str) -> list[str]:
        shell.json("snapshots", "prune", *words, "--yes")
        return [row["id"] for row in shell.json("snapshots")["data"]["snapshots"]]

    return prune


def test_pruning_keeps_what_gives_back(
    shell: QuickShell, pruned: Callable[..., list[str]], before: dict[str, Any]
) -> None:
    lab = shell.lab
    known = [row["id"] for row in shell.json("snapshots")["data"]["snapshots"]]
    assert pruned("--keep", "2", "--dry-run") == known
    assert pruned("--older-than", "1d") == known
    assert pruned("--keep", "2") == known[:2]
    shell.json("rollback", "--to", known[1], "--yes")
    assert (lab.project / "AGENTS.md").read_text() == "3\n"
    shell.refusal("rollback", "--to", known[-1], "--yes")
    assert (lab.project / "AGENTS.md").read_text() == "3\n"
    pruned("--keep", "1")
    shell.json("uninstall", "--yes")
    assert lab.outside() == before


def test_snapshots_say_how_large_they_are(shell: QuickShell) -> None:
    shell.lab.skill("large")
    shell.lab.source("modules/skills/large/data.bin", os.urandom(300_000))
    shell.json(*APPLY)
    (row,) = shell.json("snapshots")["data"]["snapshots"]
    sizes = [value for name, value in row.items() if "size" in name or "bytes" in name]
    assert sizes and max(sizes) >= 300_000
    assert "kB" in shell("snapshots").stdout or "KB" in shell("snapshots").stdout


def test_emptied_directories_go_and_the_users_own_stay(shell: QuickShell) -> None:
    lab = shell.lab
    (lab.user / ".codex/skills").mkdir(parents=True)
    before = lab.outside()
    lab.skill("tidy", {"a/b/c.txt": "deep\n"})
    shell.json(*APPLY)
    lab.drop("skill:tidy")
    shell.json(*GONE)
    assert not (lab.project / ".codex/skills/tidy").exists()
    shell.json("uninstall", "--yes")
    assert lab.outside() == before


def test_what_the_user_does_to_a_shared_file_stays_done(shell: QuickShell) -> None:
    lab = shell.lab
    mine = lab.write("project/AGENTS.md", "the pack's\n", 0o644)
    also = lab.write("user/.codex/AGENTS.md", "the pack's\n", 0o644)
    shell.json(*APPLY)
    mine.chmod(0o600)
    also.unlink()
    shell.json("uninstall", "--yes")
    assert mine.stat().st_mode & 0o777 == 0o600 and not also.exists()


def test_a_directory_that_was_replaced_by_a_link_keeps_no_other(shell: QuickShell) -> None:
    lab = shell.lab
    lab.skill("tidy")
    shell.json(*APPLY)
    (lab.project / ".codex").rename(lab.project / "dotfiles")
    (lab.project / ".codex").symlink_to("dotfiles")
    shell.json("uninstall", "--yes")
    assert files(lab.outside()) == {"project/.codex": ("link", "dotfiles")}
    assert not (lab.user / ".codex").exists()


# What a user put in the place of a deployed file stays there, and stops nothing.


def a_directory(place: Path) -> None:
    place.mkdir()
    (place / "mine.txt").write_text("mine\n")


@pytest.mark.parametrize("put", [a_directory, os.mkfifo])
@pytest.mark.parametrize("end", ["undo", "uninstall", "rollback", "drop"])
def test_what_is_no_file_is_left_alone(
    shell: QuickShell, put: Callable[[Path], None], end: str
) -> None:
    lab = shell.lab
    lab.drop("instructions:base")
    lab.prompt("other", "other\n")
    first = shell.json(*APPLY)["data"]["snapshot_id"]
    lab.prompt("hello", "hello\n")
    shell.json(*APPLY)
    place = lab.user / ".codex/prompts/hello.md"
    place.unlink()
    put(place)
    if end == "drop":
        lab.drop("prompt:hello")
        lab.drop("prompt:other")
        answer = shell.json(*GONE)
    else:
        to = ("--to", first) if end == "rollback" else ()
        answer = shell.json(end, *to, "--yes")
    assert place.is_dir() or place.is_fifo()
    assert str(place) in warned(answer)
    assert (lab.user / ".codex/prompts/other.md").exists() == (end in ("undo", "rollback"))


@pytest.mark.parametrize("end", ["undo", "uninstall", "drop"])
def test_a_file_in_the_place_of_a_directory_is_left_alone(shell: QuickShell, end: str) -> None:
    lab = shell.lab
    lab.skill("tidy", {"a/b.txt": "deep\n"}, scope="user")
    shell.json(*APPLY)
    place = lab.user / ".codex/skills/tidy"
    shutil.rmtree(place)
    place.write_text("mine\n")
    if end == "drop":
        lab.drop("skill:tidy")
        answer = shell.json(*GONE)
        shell.json("status")
    else:
        answer = shell.json(end, "--yes")
        assert not (lab.project / "AGENTS.md").exists()
    assert place.read_text() == "mine\n" and str(place) in warned(answer)
