"""The record of ownership and origin: what is taken, shared, given back, and whose it is."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.uninstall import UninstallRequest
from tests.deploy.lab import CODEX, Lab, files, tree

HELLO = "user/.codex/prompts/hello.md"
EVERYTHING = UninstallRequest()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path, git=False)
    lab.targets = {"codex": {**CODEX, "scope": "user"}}
    lab.instructions("base", "# Base\n")
    lab.prompt("hello", "ours\n")
    return lab


@pytest.fixture
def full(tmp_path: Path) -> Lab:
    """Every target, in a home and a project that have files of their own."""
    lab = Lab(tmp_path, git=False)
    lab.furnish()
    lab.write("project/AGENTS.md", "mine\n", 0o600)
    lab.write(HELLO, "Say hello.\n", 0o640)
    lab.write("user/.codex/config.toml", "mine, too\n")
    lab.write("user/elsewhere.md", "behind a link\n")
    (lab.project / ".github").mkdir()
    (lab.project / ".github/copilot-instructions.md").symlink_to(lab.user / "elsewhere.md")
    return lab


def record(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((lab.home_dir / "state/ownership/record.json").read_text())
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def second_pack(lab: Lab) -> Lab:
    """Another pack, deployed to the same home."""
    other = Lab(lab.root, git=False)
    other.repo = lab.root / "other-repo"
    other.targets = lab.targets

    def source(name: str, text: str | bytes, mode: int | None = None) -> Path:
        return other.write(f"other-repo/{name}", text, mode)

    other.source = source  # type: ignore[method-assign]
    return other


def test_the_first_adopt_can_be_undone_byte_for_byte(full: Lab) -> None:
    before = full.outside()
    done = full.deploy(adopt=True).data
    assert (full.project / "AGENTS.md").read_text() == "# Base\n"
    assert not (full.project / ".github/copilot-instructions.md").is_symlink()
    answer = full.service().rollback(str(done.undo_snapshot_id))
    assert full.outside() == before and answer.warnings == ()
    assert answer.data.rolled_back_to == done.undo_snapshot_id
    assert record(full)["holdings"] == []


@pytest.mark.parametrize("way", ["rollback", "undo"])
def test_a_file_that_was_given_back_is_the_user_s_to_delete(lab: Lab, way: str) -> None:
    first = lab.deploy().data
    mine = lab.write("user/.codex/prompts/mine.md", "mine\n", 0o600)
    lab.prompt("mine", "ours\n")
    lab.deploy(adopt=True)
    back = lab.service()
    to = str(first.snapshot_id if way == "rollback" else first.undo_snapshot_id)
    back.rollback(str(first.snapshot_id))
    assert mine.read_text() == "mine\n"

    mine.unlink()
    answer = back.rollback(to)
    assert not mine.exists() and answer.warnings == ()


def test_uninstall_gives_everything_back_after_a_long_life(full: Lab) -> None:
    before = full.outside()
    full.deploy(adopt=True)
    full.source("modules/instructions/base/AGENTS.md", "# Two\n")
    full.skill("fresh", {"deep/er/file.md": "x\n"})
    full.deploy()
    full.drop("skill:tidy")
    full.deploy()
    answer = full.service().back.uninstall(EVERYTHING)
    assert full.outside() == before and answer.warnings == ()
    assert record(full)["holdings"] == [] and record(full)["directories"] == []
    again = full.service().back.undo()
    assert again.data.rolled_back_to == f"before-{answer.data.event_snapshot_id}"
    assert full.drift() == [("extra", "user/.codex/prompts/hello.md")] or full.drift() == []


def test_uninstall_of_one_target_or_scope_leaves_the_others(full: Lab) -> None:
    full.deploy(adopt=True)
    full.service().back.uninstall(UninstallRequest(target="cursor"))
    assert not (full.project / ".cursor").exists()
    full.service().back.uninstall(UninstallRequest(scope="project"))
    assert (full.project / "AGENTS.md").read_text() == "mine\n"
    assert not (full.project / ".claude").exists()
    assert (full.user / ".claude/commands/go.md").exists()
    full.service().back.uninstall(UninstallRequest(scope="user"))
    assert files(tree(full.user / ".claude")) == {}


def test_uninstall_keeps_what_was_edited_and_names_it(full: Lab) -> None:
    full.deploy(adopt=True)
    full.write("project/AGENTS.md", "edited\n")
    full.write("user/.claude/commands/go.md", "edited\n")
    answer = full.service().back.uninstall(EVERYTHING)
    assert (full.project / "AGENTS.md").read_text() == "edited\n"
    assert (full.user / ".claude/commands/go.md").read_text() == "edited\n"
    (one, other) = sorted(answer.warnings)
    original = Path(one.partition("before is ")[2].partition(",")[0])
    assert "AGENTS.md was edited" in one and original.read_text() == "mine\n"
    assert "go.md was edited" in other


def test_undo_keeps_what_was_edited_since_and_names_it(lab: Lab) -> None:
    lab.deploy()
    lab.source("modules/prompts/hello.md", "two\n")
    lab.source("modules/instructions/base/AGENTS.md", "# Two\n")
    lab.deploy()
    lab.write(HELLO, "edited\n")
    answer = lab.service().back.undo()
    assert (lab.root / HELLO).read_text() == "edited\n"
    assert (lab.user / ".codex/AGENTS.md").read_text() == "# Base\n"
    (warning,) = answer.warnings
    assert HELLO in warning and "kept" in warning


def test_undo_keeps_an_edit_that_an_earlier_undo_has_brought_back(lab: Lab) -> None:
    lab.deploy()
    lab.write(HELLO, "edited\n")
    lab.source("modules/prompts/hello.md", "two\n")
    lab.deploy(adopt=True)
    lab.service().back.undo()
    assert (lab.root / HELLO).read_text() == "edited\n"
    answer = lab.service().back.undo()
    assert (lab.root / HELLO).read_text() == "edited\n"
    assert not (lab.user / ".codex/AGENTS.md").exists()
    (warning,) = answer.warnings
    assert HELLO in warning and "kept" in warning


def test_undo_goes_back_one_apply_at_a_time(lab: Lab) -> None:
    states = [lab.outside()]
    for text in ("one\n", "two\n", "three\n"):
        lab.source("modules/prompts/hello.md", text)
        lab.deploy()
        states.append(files(lab.outside()))
    for state in reversed(states[:-1]):
        lab.service().back.undo()
        assert files(lab.outside()) == files(state)
    with pytest.raises(DeployError) as raised:
        lab.service().back.undo()
    assert raised.value.details["reason_code"] == "nothing_to_undo"


def test_undo_of_an_earlier_apply_takes_the_later_ones_with_it(lab: Lab) -> None:
    lab.deploy()
    before = files(lab.outside())
    lab.source("modules/prompts/hello.md", "two\n")
    undo_id = lab.deploy().data.undo_snapshot_id
    lab.prompt("more", "more\n")
    lab.deploy()
    lab.service().rollback(str(undo_id))
    assert files(lab.outside()) == before


def test_a_file_with_equal_bytes_is_shared_and_stays(lab: Lab) -> None:
    mine = lab.write(HELLO, "ours\n", 0o640)
    first = lab.deploy().data.snapshot_id
    lab.drop("prompt:hello")
    assert lab.changes() == []
    lab.deploy()
    assert mine.read_text() == "ours\n" and mode(mine) == 0o640
    lab.prompt("hello", "ours\n")
    lab.deploy()
    lab.service().rollback(first)
    lab.service().back.uninstall(EVERYTHING)
    assert mine.read_text() == "ours\n" and mode(mine) == 0o640


def test_a_shared_file_that_the_pack_changed_comes_back(lab: Lab) -> None:
    mine = lab.write(HELLO, "ours\n", 0o600)
    lab.deploy()
    lab.source("modules/prompts/hello.md", "two\n")
    with pytest.raises(DeployError, match="not managed"):  # we never wrote it
        lab.deploy()
    lab.deploy(adopt=True)
    assert mine.read_text() == "two\n" and mode(mine) == 0o600
    lab.drop("prompt:hello")
    (row,) = lab.plan().changes
    assert (row.op, row.reason) == ("update", "no longer managed: gives back what was here before")
    lab.deploy()
    assert mine.read_text() == "ours\n" and mode(mine) == 0o600


def test_dropping_a_module_gives_back_an_adopted_link(lab: Lab) -> None:
    lab.write("user/elsewhere.md", "behind\n")
    link = lab.root / HELLO
    link.parent.mkdir(parents=True)
    link.symlink_to(lab.user / "elsewhere.md")
    lab.deploy(adopt=True)
    assert not link.is_symlink() and link.read_text() == "ours\n"
    lab.drop("prompt:hello")
    lab.deploy()
    assert os.readlink(link) == str(lab.user / "elsewhere.md")


def test_a_link_to_nowhere_comes_back(lab: Lab) -> None:
    link = lab.root / HELLO
    link.parent.mkdir(parents=True)
    link.symlink_to("nowhere.md")
    undo_id = lab.deploy().data.undo_snapshot_id
    assert link.read_text() == "ours\n"
    lab.service().rollback(str(undo_id))
    assert os.readlink(link) == "nowhere.md"


def test_a_link_from_one_targets_file_to_anothers_stays(full: Lab) -> None:
    link = full.project / ".github/copilot-instructions.md"
    link.unlink()
    link.symlink_to("../AGENTS.md")
    full.deploy(adopt=True)
    full.source("modules/instructions/base/AGENTS.md", "# Two\n")
    full.deploy()
    assert link.is_symlink() and link.read_text() == "# Two\n"
    assert full.drift() == []


def test_a_link_that_somebody_made_of_our_file_is_an_edit(lab: Lab) -> None:
    lab.deploy()
    path = lab.root / HELLO
    path.rename(lab.user / "elsewhere.md")
    path.symlink_to(lab.user / "elsewhere.md")
    lab.drop("prompt:hello")
    answer = lab.deploy(allow_mass_delete=True)
    assert path.is_symlink() and any("so it stays" in text for text in answer.warnings)


def test_a_committed_manifest_lets_nobody_delete(lab: Lab, tmp_path: Path) -> None:
    """Another person's files came with a checkout, and with them the manifest that lists them."""
    lab.deploy()
    theirs = Lab(tmp_path / "theirs", git=False)
    theirs.targets = lab.targets
    shutil.copytree(lab.user / ".codex", theirs.user / ".codex")
    theirs.prompt("other", "other\n")
    assert theirs.changes() == [("create", "codex", "user/.codex/prompts/other.md")]
    theirs.deploy()
    assert (theirs.root / HELLO).read_text() == "ours\n"


def test_a_committed_manifest_vouches_for_an_update_of_the_same_pack(
    lab: Lab, tmp_path: Path
) -> None:
    lab.deploy()
    theirs = Lab(tmp_path / "theirs", git=False)
    theirs.targets = lab.targets
    shutil.copytree(lab.user / ".codex", theirs.user / ".codex")
    before = theirs.outside()
    theirs.instructions("base", "# Newer\n")
    theirs.prompt("hello", "newer\n")
    assert {row.update_kind for row in theirs.plan().changes} == {"managed_update"}
    undo_id = theirs.deploy().data.undo_snapshot_id
    theirs.service().rollback(str(undo_id))
    assert theirs.outside() == before
    theirs.write(HELLO, "edited\n")
    assert {row.adopts is True for row in theirs.plan().changes} == {True, False}


def test_two_packs_on_one_home_leave_each_other_alone(lab: Lab) -> None:
    before = lab.outside()
    other = second_pack(lab)
    other.prompt("theirs", "theirs\n")
    repo = str(other.repo)
    lab.deploy()
    other.deploy(repo=repo)
    for each, request in ((lab, {}), (other, {"repo": repo})):
        answer = each.service().status(Request(**request))
        assert answer.data.drift == [] and answer.warnings == (), request
    lab.drop("prompt:hello")
    lab.deploy()
    assert (lab.user / ".codex/prompts/theirs.md").read_text() == "theirs\n"
    lab.service().back.uninstall(UninstallRequest(repo=repo))
    assert not (lab.user / ".codex/prompts/theirs.md").exists()
    assert (lab.user / ".codex/AGENTS.md").exists()
    assert lab.service().plan(Request()).warnings == ()
    lab.service().back.uninstall(EVERYTHING)
    assert lab.outside() == before


def test_two_packs_that_want_one_path_are_a_conflict(lab: Lab) -> None:
    lab.deploy()
    other = second_pack(lab)
    other.prompt("hello", "theirs\n")
    before = without_cache(lab)
    for act in (other.service().plan, other.service().deploy):
        with pytest.raises(DeployError) as raised:
            act(Request(repo=str(other.repo), adopt=True))
        assert raised.value.code == "E_DESIRED_STATE_CONFLICT"
        assert raised.value.details["reason_code"] == "held_by_another_pack"
        assert str(lab.repo) in raised.value.message and HELLO in raised.value.message
    assert without_cache(lab) == before


def without_cache(lab: Lab) -> dict[str, Any]:
    """Everything in a lab, but not what it remembers of it."""
    return {name: found for name, found in tree(lab.root).items() if not name.startswith("cache")}


@pytest.mark.parametrize("has_id", [True, False])
def test_a_moved_repo_is_the_same_pack(lab: Lab, has_id: bool) -> None:
    if has_id:
        lab.source(".agentpack/pack-id", "0123456789abcdef\n")
    mine = lab.write(HELLO, "mine\n")
    lab.deploy(adopt=True)
    moved = lab.root / "moved"
    lab.repo.rename(moved)
    (moved / "modules/prompts/hello.md").write_text("newer\n")
    lab.deploy(repo=str(moved))
    assert mine.read_text() == "newer\n"
    lab.service().back.uninstall(EVERYTHING)
    assert mine.read_text() == "mine\n"


def test_a_cloned_repo_with_an_id_is_the_same_pack(lab: Lab) -> None:
    lab.source(".agentpack/pack-id", "0123456789abcdef\n")
    lab.deploy()
    clone = lab.root / "clone"
    shutil.copytree(lab.repo, clone)
    (clone / "modules/prompts/hello.md").write_text("newer\n")
    lab.deploy(repo=str(clone))
    assert (lab.root / HELLO).read_text() == "newer\n"


def test_private_files_stay_private(lab: Lab) -> None:
    lab.skill("secret", {"key.txt": "key\n", "run.sh": "echo\n"})
    lab.source("modules/skills/secret/key.txt", "key\n", 0o600)
    lab.source("modules/skills/secret/run.sh", "echo\n", 0o700)
    lab.write(HELLO, "mine\n", 0o600)
    lab.deploy(adopt=True)
    place = lab.user / ".codex/skills/secret"
    assert (mode(place / "key.txt"), mode(place / "run.sh")) == (0o600, 0o700)
    assert mode(place / "SKILL.md") == 0o644
    state = lab.home_dir / "state"
    for path in state.rglob("*"):
        if path.is_file() and path.name != "apply.lock":
            assert mode(path) & 0o077 == 0, path
    assert mode(state / "ownership") == mode(state / "ownership/contents") == 0o700


def test_directories_of_ours_go_with_the_last_file(lab: Lab) -> None:
    (lab.user / ".codex/skills/theirs").mkdir(parents=True)
    before = lab.outside()
    lab.skill("tidy", {"a/b/c.md": "x\n"})
    lab.deploy()
    lab.drop("skill:tidy")
    lab.deploy()
    assert not (lab.user / ".codex/skills/tidy").exists()
    assert (lab.user / ".codex/skills/theirs").is_dir()
    lab.service().back.uninstall(EVERYTHING)
    assert lab.outside() == before


def test_contents_are_stored_once(lab: Lab) -> None:
    lab.skill("large", {"data.txt": "x" * 100_000})
    sizes = []
    for text in ("one\n", "two\n", "three\n"):
        lab.source("modules/prompts/hello.md", text)
        lab.deploy()
        found = {
            (entry.st_dev, entry.st_ino): entry.st_size
            for path in (lab.home_dir / "state").rglob("*")
            if (entry := path.lstat()) and path.is_file() and path.suffix != ".json"
        }
        sizes.append(sum(found.values()))
    assert sizes[-1] < 1.3 * sizes[0]


def test_a_content_that_was_damaged_is_not_linked_again(lab: Lab) -> None:
    lab.deploy()
    for path in (lab.home_dir / "state/ownership/contents").iterdir():
        with path.open("a") as stream:
            stream.write("rotten")
    lab.source("modules/prompts/hello.md", "two\n")
    second = lab.deploy().data.snapshot_id
    lab.write("user/.codex/AGENTS.md", "edited\n")
    lab.service().rollback(second)
    assert (lab.user / ".codex/AGENTS.md").read_text() == "# Base\n"


def test_a_record_that_cannot_be_read_is_left_alone(lab: Lab) -> None:
    lab.deploy()
    place = lab.home_dir / "state/ownership/record.json"
    for text in ("{", '{"version": 99}'):
        place.write_text(text)
        with pytest.raises(DeployError) as raised:
            lab.deploy()
        assert raised.value.details["reason_code"] == "ownership_unreadable"
        assert place.read_text() == text
