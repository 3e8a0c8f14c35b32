"""Twelve ways in which deploy once hurt a home that had files already: none of them does now.

Here are points 1 to 4, whose a file is; 5, 7, 8 and 12 are in `test_twelve_points_on_disk`. The
others are with what they belong to: slips (6) in `test_planning`, the lock (9) in `test_sources`
and `test_locks`, overlays, profiles, the project's root (10, 11) and the rest of 12 in
`test_places`.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.server import build_server
from tests.deploy.lab import CODEX, Lab, files, tree
from tests.deploy.shell import QuickShell
from tests.deploy.test_tools import call

APPLY = ("deploy", "--apply", "--yes")
ADOPT = (*APPLY, "--adopt")
GONE = (*APPLY, "--allow-mass-delete")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path / "lab", git=False)
    lab.targets = {"codex": CODEX}
    lab.instructions("base", "the pack's\n")
    return lab


@pytest.fixture
def shell(lab: Lab) -> QuickShell:
    return QuickShell(lab)


@pytest.fixture
async def client(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client[Any]]:
    lab.enter(monkeypatch)
    async with Client(build_server(Settings.read())) as client:
        yield client


def warned(answer: dict[str, Any]) -> str:
    return "\n".join(answer["warnings"])


# 1. The first adopt can be undone.


@pytest.fixture
def before(lab: Lab) -> dict[str, Any]:
    """A home that has files already."""
    lab.write("project/AGENTS.md", "mine\n", 0o640)
    lab.write("user/.codex/AGENTS.md", "mine, for all projects\n", 0o600)
    lab.write("user/.codex/config.toml", "model = 'x'\n", 0o600)
    (lab.user / ".codex/prompts").mkdir()
    return lab.outside()


@pytest.mark.parametrize("way", ["undo", "rollback"])
def test_the_first_adopt_is_undone(shell: QuickShell, before: dict[str, Any], way: str) -> None:
    lab = shell.lab
    lab.prompt("hello", "hello\n")
    data = shell.json(*ADOPT)["data"]
    assert (lab.project / "AGENTS.md").read_text() == "the pack's\n"
    to = ("undo",) if way == "undo" else ("rollback", "--to", data["undo_snapshot_id"])
    shell.json(*to, "--yes")
    assert lab.outside() == before
    assert shell.refusal(*APPLY)["code"] == "E_ADOPT_CONFIRM_REQUIRED"
    shell.json("rollback", "--to", data["snapshot_id"], "--yes")  # still means: after that apply


async def test_an_agent_undoes_the_first_adopt(
    client: Client[Any], lab: Lab, before: dict[str, Any]
) -> None:
    data = (await call(client, "deploy_apply", yes=True, adopt=True))["data"]
    assert files(lab.outside()) != files(before)
    await call(client, "rollback", to=data["undo_snapshot_id"], yes=True)
    assert lab.outside() == before
    tools = {tool.name: tool for tool in await client.list_tools()}
    assert "undo_snapshot_id" in (tools["rollback"].description or "")


def test_undoing_keeps_what_was_edited_since(shell: QuickShell, before: dict[str, Any]) -> None:
    lab = shell.lab
    shell.json(*ADOPT)
    edited = lab.write("user/.codex/AGENTS.md", "edited since\n")
    answer = shell.json("undo", "--yes")
    assert edited.read_text() == "edited since\n" and str(edited) in warned(answer)
    assert (lab.project / "AGENTS.md").read_text() == "mine\n"
    told = next(text for text in answer["warnings"] if str(edited) in text)
    assert Path(told.rsplit(" ", 1)[-1]).read_text() == "mine, for all projects\n"


def test_an_older_apply_is_undone_with_all_that_followed(
    shell: QuickShell, before: dict[str, Any]
) -> None:
    lab = shell.lab
    first = shell.json(*ADOPT)["data"]["undo_snapshot_id"]
    lab.source("modules/instructions/base/AGENTS.md", "the pack's second\n")
    lab.prompt("hello", "hello\n")
    between = files(lab.outside())
    shell.json(*APPLY)
    shell.json("undo", "--yes")
    assert {k: v for k, v in files(lab.outside()).items() if "manifest" not in k} == {
        k: v for k, v in between.items() if "manifest" not in k
    }
    shell.json(*APPLY)
    shell.json("rollback", "--to", first, "--yes")
    assert lab.outside() == before


# 2. A file that deploy never wrote is never deleted.


@pytest.mark.parametrize("end", ["drop", "undo", "uninstall", "rollback"])
def test_a_file_with_the_same_bytes_stays(shell: QuickShell, end: str) -> None:
    lab = shell.lab
    lab.targets = {"codex": {**CODEX, "scope": "user"}}
    lab.drop("instructions:base")
    lab.prompt("first", "first\n")
    first = shell.json(*APPLY)["data"]["snapshot_id"]
    mine = lab.write("user/.codex/prompts/same.md", "same\n", 0o600)
    lab.prompt("same", "same\n")
    lab.prompt("other", "other\n")
    assert [Path(row["path"]).name for row in shell.json("plan")["data"]["changes"]] == ["other.md"]
    shell.json(*APPLY)
    if end == "drop":
        lab.drop("prompt:same")
        lab.drop("prompt:other")
        shell.json(*GONE)
    elif end == "rollback":
        shell.json("rollback", "--to", first, "--yes")
    else:
        shell.json(end, "--yes")
    assert (mine.read_text(), mine.stat().st_mode & 0o777) == ("same\n", 0o600)
    assert not (lab.user / ".codex/prompts/other.md").exists()


def test_a_shared_file_is_the_users_when_the_pack_moves_on(shell: QuickShell) -> None:
    lab = shell.lab
    mine = lab.write("project/AGENTS.md", "the pack's\n")
    shell.json(*APPLY)
    lab.source("modules/instructions/base/AGENTS.md", "moved on\n")
    assert shell.refusal(*APPLY)["code"] == "E_ADOPT_CONFIRM_REQUIRED"
    shell.json(*ADOPT)
    shell.json("uninstall", "--yes")
    assert mine.read_text() == "the pack's\n"


# 3. A committed manifest gives nobody else's pack the right to delete.


def another_person(lab: Lab, root: Path, *, same_pack: bool) -> Lab:
    """Somebody who pulls the project, with a home of their own."""
    other = Lab(root, git=False)
    other.targets, other.modules = lab.targets, list(lab.modules) if same_pack else []
    shutil.copytree(lab.project, other.project, dirs_exist_ok=True, symlinks=True)
    if same_pack:
        shutil.copytree(lab.repo, other.repo, dirs_exist_ok=True)
    return other


def test_another_persons_files_are_left_alone(shell: QuickShell, tmp_path: Path) -> None:
    lab = shell.lab
    lab.skill("theirs", {"data.txt": "theirs\n"})
    shell.json(*APPLY)
    other = another_person(lab, tmp_path / "other", same_pack=False)
    other.skill("mine")
    pulled = files(tree(other.project))
    here = QuickShell(other)
    assert {row["op"] for row in here.json("plan")["data"]["changes"]} == {"create"}
    here.json(*GONE)
    now = files(tree(other.project))
    assert {k: v for k, v in now.items() if k in pulled and "manifest" not in k} == {
        k: v for k, v in pulled.items() if "manifest" not in k
    }
    here.json("uninstall", "--yes")
    now = files(tree(other.project))
    assert {k: v for k, v in now.items() if "manifest" not in k} == {
        k: v for k, v in pulled.items() if "manifest" not in k
    }


def test_the_same_pack_goes_on_where_a_colleague_deployed(
    shell: QuickShell, tmp_path: Path
) -> None:
    lab = shell.lab
    shell.json(*APPLY)
    other = another_person(lab, tmp_path / "other", same_pack=True)
    other.source("modules/instructions/base/AGENTS.md", "the pack's second\n")
    here, path = QuickShell(other), other.project / "AGENTS.md"
    here.json(*APPLY)  # no adopt is needed: it is this pack's file, and nobody edited it
    assert path.read_text() == "the pack's second\n"
    here.json("undo", "--yes")
    assert path.read_text() == "the pack's\n"
    path.write_text("edited by the colleague\n")
    assert here.refusal(*APPLY)["code"] == "E_ADOPT_CONFIRM_REQUIRED"


def test_a_manifest_that_lists_a_strangers_file_is_not_believed(shell: QuickShell) -> None:
    lab = shell.lab
    shell.json(*APPLY)
    manifest = lab.project / ".agentpack.manifest.codex.json"
    text = manifest.read_text()
    assert '"AGENTS.md"' in text
    mine = lab.write("project/README.md", "the pack's\n")
    manifest.write_text(text.replace('"AGENTS.md"', '"README.md"'))
    shell.json(*GONE)
    lab.drop("instructions:base")
    shell.json(*GONE)
    assert mine.read_text() == "the pack's\n"


# 4. Several packs on one home.


@pytest.fixture
def second(lab: Lab) -> tuple[str, str]:
    """Another pack on the same home, as arguments."""
    other = Lab(lab.root / "second", git=False)
    other.targets = lab.targets
    other.prompt("other", "the second pack's\n")
    return ("--repo", str(other.repo))


def test_each_pack_changes_its_own_files(shell: QuickShell, second: tuple[str, str]) -> None:
    lab = shell.lab
    lab.prompt("own", "the first pack's\n")
    shell.json(*APPLY)
    once = files(lab.outside())
    answer = shell.json(*APPLY, *second)
    assert warned(answer) == "" and answer["data"]["summary"]["delete"] == 0
    both = files(lab.outside())
    assert {k for k in once if "manifest" not in k} < set(both)
    for words in (("plan",), ("plan", *second), ("status",), ("status", *second)):
        answer = shell.json(*words, "--check")
        assert warned(answer) == ""
    shell.json("undo", "--yes", *second)
    assert {k for k in files(lab.outside()) if "manifest" not in k} == {
        k for k in once if "manifest" not in k
    }


def test_two_packs_that_want_one_path_are_told_so(
    shell: QuickShell, second: tuple[str, str]
) -> None:
    lab = shell.lab
    shell.json(*APPLY, *second)
    lab.prompt("other", "the first pack's\n")
    before = tree(lab.root)
    for words in (APPLY, ADOPT):
        error = shell.refusal(*words)
        assert error["code"] != "E_ADOPT_CONFIRM_REQUIRED"
        assert str(lab.user / ".codex/prompts/other.md") in str(error)
        assert second[1] in str(error)
    assert {k: v for k, v in tree(lab.root).items() if "cache" not in k} == {
        k: v for k, v in before.items() if "cache" not in k
    }


def test_a_pack_that_moved_is_the_same_pack(shell: QuickShell) -> None:
    lab = shell.lab
    lab.prompt("gone", "gone\n")
    shell.json(*APPLY)
    moved = lab.root / "elsewhere/pack"
    shutil.copytree(lab.repo, moved)
    shutil.rmtree(lab.repo)
    lab.repo.symlink_to(moved)
    lab.drop("prompt:gone")
    shell.json(*APPLY)
    assert not (lab.user / ".codex/prompts/gone.md").exists()
    lab.repo.unlink()
    there = ("--repo", str(moved))
    (moved / "modules/instructions/base/AGENTS.md").write_text("moved\n")
    shell.json(*APPLY, *there)
    assert (lab.project / "AGENTS.md").read_text() == "moved\n"
    shell.json("status", "--check", *there)


def test_an_uninstall_of_two_packs_is_undone(shell: QuickShell, second: tuple[str, str]) -> None:
    lab = shell.lab
    lab.prompt("own", "the first pack's\n")
    shell.json(*APPLY)
    shell.json(*APPLY, *second)
    deployed = files(lab.outside())
    shell.json("uninstall", "--yes")
    assert files(lab.outside()) == {}
    shell.json("undo", "--yes")
    assert files(lab.outside()) == deployed
    for words in ((), second):
        assert shell.json(*APPLY, *words)["data"]["reason"] == "no_changes"
    shell.json("uninstall", "--yes", *second)
    assert (lab.user / ".codex/prompts/own.md").exists()
    assert not (lab.user / ".codex/prompts/other.md").exists()


def test_an_uninstall_of_nothing_writes_nothing(shell: QuickShell) -> None:
    lab = shell.lab
    state = lab.home_dir / "state"
    assert "Nothing to uninstall" in shell("uninstall", "--yes").stdout
    assert not state.exists()
    shell.json(*APPLY)
    shell.json("uninstall", "--yes")
    before = tree(state)
    assert shell.json("uninstall", "--yes")["data"] == {"files_deleted": 0, "files_restored": 0}
    assert tree(state) == before
    shell.json("undo", "--yes")
    assert (lab.project / "AGENTS.md").read_text() == "the pack's\n"


def test_a_lost_record_is_made_again_from_the_snapshots(
    shell: QuickShell, before: dict[str, Any]
) -> None:
    lab = shell.lab
    lab.targets = {"codex": {**CODEX, "scope": "user"}}
    lab.prompt("linked", "the pack's\n")
    link = lab.user / ".codex/prompts/linked.md"
    link.symlink_to("nowhere.md")
    state = files(lab.outside())
    shell.json(*ADOPT)
    record = lab.home_dir / "state/ownership/record.json"
    record.write_text("{")
    assert "snapshots tell" in shell.refusal("plan")["message"]
    record.unlink()
    assert shell.json("plan", "--check")["warnings"] == []
    shell.json("uninstall", "--yes")
    assert files(lab.outside()) == state
