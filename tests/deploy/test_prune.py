"""Sizes of snapshots, and pruning: nothing that can be given back is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from fleet_agentpack.deploy import prune
from fleet_agentpack.deploy.prune import PruneRequest
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.uninstall import UninstallRequest
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.server import build_server
from tests.deploy.lab import CODEX, Lab, files
from tests.deploy.shell import Shell
from tests.deploy.test_compatibility import OLD_ID, Original

HELLO = "user/.codex/prompts/hello.md"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path, git=False)
    lab.targets = {"codex": {**CODEX, "scope": "user"}}
    lab.prompt("hello", "zero\n")
    return lab


def deploys(lab: Lab, count: int = 5) -> list[str]:
    ids = []
    for number in range(count):
        lab.source("modules/prompts/hello.md", f"version {number}\n" * 1000)
        ids.append(str(lab.deploy(adopt=True).data.snapshot_id))
    return ids


def state_files(lab: Lab) -> dict[int, int]:
    state = lab.home_dir / "state"
    found = [path.stat() for path in state.rglob("*") if path.is_file()]
    return {each.st_ino: each.st_size for each in found}


def test_old_snapshots_go_and_the_origin_stays(lab: Lab) -> None:
    lab.write(HELLO, "mine\n", 0o600)
    before = lab.outside()
    ids = deploys(lab)
    planned = lab.service().back.prune(PruneRequest(keep=2), dry_run=True).data
    untouched = state_files(lab)
    done = lab.service().back.prune(PruneRequest(keep=2)).data
    assert planned.snapshots == done.snapshots == tuple(ids[:3])
    assert (planned.applied, done.applied, planned.bytes) == (False, True, done.bytes)
    left = state_files(lab)
    assert done.bytes == sum(untouched.values()) - sum(left.values()) > 20_000
    assert [row.id for row in lab.service().snapshots().data.snapshots] == ids[:2:-1]
    lab.service().rollback(ids[3])
    assert (lab.root / HELLO).read_text() == "version 3\n" * 1000
    lab.service().back.uninstall(UninstallRequest())
    assert files(lab.outside()) == files(before)


def test_the_newest_one_always_stays_and_age_is_respected(lab: Lab) -> None:
    ids = deploys(lab, 3)
    old = lab.home_dir / f"state/snapshots/{ids[0]}.json"
    text = old.read_text()
    old.write_text(text.replace(json.loads(text)["created_at"], "2020-01-01T00:00:00Z"))
    shell = Shell(lab)
    words = ("snapshots", "prune", "--older-than", "30d")
    assert shell.json(*words, "--dry-run")["data"]["snapshots"] == [ids[0]]
    assert shell.json(*words, "--yes")["data"]["snapshots"] == [ids[0]]
    assert shell.refusal("snapshots", "prune", "--keep", "1")["code"] == "E_CONFIRM_REQUIRED"
    assert shell.json("snapshots", "prune", "--keep", "1", "--yes")["data"]["applied"]
    assert [row["id"] for row in shell.json("snapshots")["data"]["snapshots"]] == [ids[2]]
    shell("snapshots", "prune", "--keep", "0", status=2)


def test_what_is_left_of_a_prune_cut_short_goes_with_the_next(lab: Lab) -> None:
    ids = deploys(lab, 3)
    (lab.home_dir / f"state/snapshots/{ids[0]}.json").unlink()
    lab.service().back.prune(PruneRequest())
    assert not (lab.home_dir / f"state/snapshots/{ids[0]}").exists()
    assert (lab.home_dir / f"state/snapshots/{ids[1]}").exists()


def test_pruning_a_home_of_the_original_keeps_what_it_knows(tmp_path: Path) -> None:
    lab = Lab(tmp_path, git=False)
    lab.targets = {"codex": {**CODEX, "scope": "user"}}
    lab.prompt("hello", "one\n")
    Original(lab).deploy(OLD_ID, {"hello.md": "one\n", "gone.md": "old\n"})
    Original(lab).deploy(str(int(OLD_ID) + 1), {"hello.md": "one\n", "gone.md": "old\n"})
    lab.service().back.prune(PruneRequest(keep=1))
    assert lab.changes() == [("delete", "codex", "user/.codex/prompts/gone.md")]


def test_it_says_when_pruning_is_worth_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    deploys(lab, 2)
    assert lab.service().snapshots().warnings == ()
    monkeypatch.setattr(prune, "WORTH_COUNT", 1)
    for answer in (lab.service().snapshots(), lab.service().doctor(Request())):
        assert any("2 snapshots take" in text and "prune" in text for text in answer.warnings)


async def test_the_tool_lists_what_undoes_each(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = deploys(lab, 2)
    for name, value in lab.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(lab.project)
    async with Client(build_server(Settings.read())) as client:
        answer: Any = (await client.call_tool("snapshots", {"limit": 1})).structured_content
        (row,) = answer["data"]["snapshots"]
        assert (row["id"], row["kind"], row["changes"]) == (second, "deploy", 1)
        assert row["bytes"] > 10_000 and row["created_at"]
        to = {"to": row["undo_snapshot_id"], "yes": True}
        await client.call_tool("rollback", to)
    assert (lab.root / HELLO).read_text() == "version 0\n" * 1000
    assert os.listdir(lab.home_dir / "state/snapshots")
    assert first in {row.id for row in lab.service().snapshots().data.snapshots}
