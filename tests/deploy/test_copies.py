"""The copies in snapshots, for agentpack to find: all in each, or with the newest where many."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from fleet_agentpack.deploy import copies
from fleet_agentpack.deploy.model import copy_name
from fleet_agentpack.deploy.prune import PruneRequest
from tests.deploy.lab import Lab

HELLO = "modules/prompts/hello.md"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.furnish()
    return lab


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "MANY", 0)


def deploys(lab: Lab, *texts: str) -> list[str]:
    """The snapshots of deploys, each of one changed file."""
    ids = []
    for text in texts:
        lab.source(HELLO, text)
        ids.append(str(lab.deploy().data.snapshot_id))
    return ids


def with_copies(lab: Lab) -> list[str]:
    """The snapshots that have copies; they must be what agentpack looks for."""
    found = []
    for record in sorted((lab.home_dir / "state/snapshots").glob("*.json")):
        place, document = record.with_suffix("") / "state", json.loads(record.read_text())
        if document["kind"] == "rollback" or not place.exists():
            continue
        found.append(record.stem)
        expected = {
            copy_name(row["target"], row["path"]): row["sha256"]
            for row in document["managed_files"]
        }
        expected |= {
            copy_name(row["target"], row["path"]): row["after_sha256"]
            for row in document["changes"]
            if ".agentpack.manifest." in row["path"] and row["op"] in ("create", "update")
        }
        actual = {
            str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in place.rglob("*")
            if path.is_file()
        }
        assert actual == expected
    return found


def test_few_files_stay_in_every_snapshot(lab: Lab) -> None:
    ids = deploys(lab, "one\n", "two\n", "three\n")
    assert with_copies(lab) == ids


@pytest.mark.usefixtures("many")
def test_many_files_go_on_with_the_newest_snapshot(lab: Lab) -> None:
    lab.prompt("old", "old\n")
    ids = deploys(lab, "one\n", "two\n")
    lab.drop("prompt:old")
    lab.skill("added", {"more.md": "more\n"})
    ids += deploys(lab, "three\n")
    assert with_copies(lab) == ids[-1:]
    hello = lab.user / ".codex/prompts/hello.md"
    for number, text in ((0, "one\n"), (2, "three\n"), (1, "two\n")):
        lab.service().rollback(ids[number])
        assert hello.read_text() == text
        assert (lab.user / ".codex/prompts/old.md").exists() == (number < 2)


@pytest.mark.usefixtures("many")
def test_a_snapshot_that_was_left_behind_keeps_its_copies(lab: Lab) -> None:
    """After a rollback, agentpack could not get to it by undoing anything."""
    first, second = deploys(lab, "one\n", "two\n")
    lab.service().rollback(first)
    (third,) = deploys(lab, "three\n")
    assert with_copies(lab) == [second, third]


@pytest.mark.usefixtures("many")
def test_what_agentpack_made_stays_as_it_is(lab: Lab) -> None:
    (first,) = deploys(lab, "one\n")
    (lab.home_dir / "state/snapshots" / first / "event.json").unlink()  # as if it were its own
    (second,) = deploys(lab, "two\n")
    assert with_copies(lab) == [first, second]


@pytest.mark.usefixtures("many")
def test_a_content_that_was_lost_is_stored_again(lab: Lab) -> None:
    deploys(lab, "one\n")
    store = lab.home_dir / "state/ownership/contents"
    stored = {path.name for path in store.iterdir()}
    lost = hashlib.sha256((lab.project / "AGENTS.md").read_bytes()).hexdigest()
    (store / lost).unlink()
    deploys(lab, "two\n")
    assert stored <= {path.name for path in store.iterdir()}


@pytest.mark.usefixtures("many")
def test_pruning_leaves_the_newest_its_copies(lab: Lab) -> None:
    ids = deploys(lab, "one\n", "two\n", "three\n")
    answer = lab.service().back.prune(PruneRequest(keep=1))
    assert tuple(answer.data.snapshots) == tuple(ids[:2])
    assert with_copies(lab) == ids[-1:]
