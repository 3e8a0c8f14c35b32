"""Rollback: content, manifests, what an adopt had replaced, each target for itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request
from tests.deploy.lab import CODEX, Lab, files, tree


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.furnish()
    return lab


def deploy(lab: Lab, **request: object) -> str:
    return str(lab.deploy(**request).data.snapshot_id)


def test_everything_is_as_it_was_at_the_snapshot(lab: Lab) -> None:
    first = deploy(lab)
    before = lab.outside()
    lab.source("modules/prompts/hello.md", "two\n")
    lab.skill("fresh")
    lab.drop("command:go")
    deploy(lab)
    answer = lab.service().rollback(first)
    assert files(lab.outside()) == files(before)
    assert answer.data.rolled_back_to == first
    event = json.loads(
        (lab.home_dir / f"state/snapshots/{answer.data.event_snapshot_id}.json").read_text()
    )
    assert (event["kind"], event["rolled_back_to"]) == ("rollback", first)
    assert {change["op"] for change in event["changes"]} == {"rollback_restore", "rollback_delete"}


def test_rolling_forward_again(lab: Lab) -> None:
    first = deploy(lab)
    lab.source("modules/prompts/hello.md", "two\n")
    second = deploy(lab)
    after = files(lab.outside())
    lab.service().rollback(first)
    lab.service().rollback(second)
    assert files(lab.outside()) == after
    assert lab.drift() == []


def test_an_adopted_file_comes_back_with_its_mode(lab: Lab) -> None:
    lab.drop("prompt:hello")
    first = deploy(lab)
    mine = lab.write("user/.codex/prompts/hello.md", "mine\n", 0o640)
    before = files(lab.outside())
    lab.prompt("hello", "ours\n")
    deploy(lab, adopt=True)
    assert mine.read_text() == "ours\n"
    lab.service().rollback(first)
    assert files(lab.outside()) == before
    mine.write_text("mine, second version\n")
    deploy(lab, adopt=True)
    lab.service().rollback(first)
    assert mine.read_text() == "mine, second version\n"


def test_each_target_keeps_what_it_managed(lab: Lab) -> None:
    deploy(lab, target="codex")
    codex = files(tree(lab.user / ".codex"))
    second = deploy(lab, target="cursor")
    lab.source("modules/prompts/hello.md", "two\n")
    deploy(lab, target="codex")
    lab.service().rollback(second)
    assert files(tree(lab.user / ".codex")) == codex
    assert list((lab.project / ".cursor/rules").glob("*.mdc"))
    lab.source("modules/prompts/hello.md", "Say hello.\n")
    assert lab.drift(target="codex") == [] and lab.drift(target="cursor") == []


def test_a_target_deployed_later_goes_away_with_its_manifest(lab: Lab) -> None:
    first = deploy(lab, target="codex")
    deploy(lab, target="cursor")
    lab.service().rollback(first)
    assert files(tree(lab.project / ".cursor")) == {}


def test_another_projects_files_are_left_alone(lab: Lab) -> None:
    lab.targets = {"codex": {**CODEX, "scope": "project"}}
    lab.save()
    first = deploy(lab)
    other = lab.root / "other"
    other.mkdir()
    lab.service(other).deploy(Request())
    theirs = files(tree(other))
    lab.source("modules/instructions/base/AGENTS.md", "two\n")
    deploy(lab)
    lab.service().rollback(first)
    assert files(tree(other)) == theirs
    assert (lab.project / "AGENTS.md").read_text() == "# Base\n"


def test_a_hand_edit_is_kept_and_named(lab: Lab) -> None:
    first = deploy(lab)
    path = lab.write("user/.codex/prompts/hello.md", "edit\n")
    answer = lab.service().rollback(first)
    (warning,) = answer.warnings
    assert str(path) in warning and Path(warning.rpartition(" ")[2]).read_text() == "edit\n"
    assert path.read_text() == "Say hello.\n"


def test_an_unmanaged_file_in_the_way_is_left_alone_and_named(lab: Lab) -> None:
    first = deploy(lab)
    lab.drop("prompt:hello")
    deploy(lab)
    mine = lab.write("user/.codex/prompts/hello.md", "mine\n")
    answer = lab.service().rollback(first)
    assert mine.read_text() == "mine\n"
    assert any(str(mine) in text and "not managed" in text for text in answer.warnings)
    lab.prompt("hello", "Say hello.\n")
    with pytest.raises(DeployError) as raised:
        lab.deploy()
    assert raised.value.code == "E_ADOPT_CONFIRM_REQUIRED"


def test_ids_that_cannot_be_used(lab: Lab) -> None:
    first = deploy(lab)
    event = lab.service().rollback(first).data.event_snapshot_id
    before = tree(lab.root)
    for bad in ("nope", "../../x", "", f"../{first}", "\x00", event):
        with pytest.raises(DeployError) as raised:
            lab.service().rollback(bad)
        assert raised.value.code == "E_UNEXPECTED"
        assert first in raised.value.message
        assert raised.value.details["snapshots"] == [first]
        assert raised.value.payload()["command"] == "rollback"
    assert tree(lab.root) == before


def test_without_any_snapshot(lab: Lab) -> None:
    with pytest.raises(DeployError) as raised:
        lab.service().rollback("1")
    assert "there are no snapshots yet" in raised.value.message


def test_a_dry_run_writes_nothing(lab: Lab) -> None:
    first = deploy(lab)
    lab.source("modules/prompts/hello.md", "two\n")
    deploy(lab)
    before = {k: v for k, v in tree(lab.root).items() if not k.startswith("cache")}
    answer = lab.service().back.preview(first)
    assert answer.data.applied is False and answer.data.changes
    assert {k: v for k, v in tree(lab.root).items() if not k.startswith("cache")} == before


def spoil(directory: Path) -> None:
    for copy in directory.rglob("*"):
        if copy.is_file():
            copy.unlink()
            copy.write_text("rotten")


def test_a_snapshot_without_copies_is_served_from_the_backups(lab: Lab) -> None:
    first = deploy(lab)
    before = files(lab.outside())
    lab.source("modules/prompts/hello.md", "two\n")
    deploy(lab)
    spoil(lab.home_dir / f"state/snapshots/{first}/state")
    lab.service().rollback(first)
    assert files(lab.outside()) == before


def test_a_snapshot_that_lost_its_files_is_refused_before_anything_is_written(lab: Lab) -> None:
    first = deploy(lab)
    lab.source("modules/prompts/hello.md", "two\n")
    second = deploy(lab)
    before = files(lab.outside())
    spoil(lab.home_dir / f"state/snapshots/{first}/state")
    spoil(lab.home_dir / f"state/snapshots/{second}/backup")
    spoil(lab.home_dir / "state/ownership/contents")
    with pytest.raises(DeployError) as raised:
        lab.service().rollback(first)
    assert raised.value.details["reason_code"] == "snapshot_corrupt"
    assert files(lab.outside()) == before


def test_a_record_that_does_not_list_its_files_and_kept_none_is_refused(lab: Lab) -> None:
    first = deploy(lab)
    record = lab.home_dir / f"state/snapshots/{first}.json"
    document = json.loads(record.read_text())
    del document["managed_files"]
    record.write_text(json.dumps(document))
    shutil.rmtree(record.with_suffix("") / "state")
    with pytest.raises(DeployError) as raised:
        lab.service().rollback(first)
    assert raised.value.details["reason_code"] == "snapshot_incomplete"


def test_a_corrupt_snapshot_is_skipped_and_named(lab: Lab) -> None:
    first = deploy(lab)
    bad = lab.home_dir / "state/snapshots/1.json"
    bad.write_text("{")
    answer = lab.service().rollback(first)
    assert any("snapshot 1" in text for text in answer.warnings)
    listed = lab.service().snapshots()
    assert any("snapshot 1" in text for text in listed.warnings)
    assert lab.drift() == []


def test_a_shared_copy_in_the_snapshot_is_not_the_deployed_file(lab: Lab) -> None:
    """An edit in place must not reach what the snapshot keeps."""
    first = deploy(lab)
    for name in ("user/.codex/skills/tidy/SKILL.md", "project/.codex/skills/tidy/SKILL.md"):
        with (lab.root / name).open("a") as stream:
            stream.write("edited in place\n")
    lab.service().rollback(first)
    assert lab.drift() == []
