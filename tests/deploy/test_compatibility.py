"""A home written by agentpack 0.9.1 is read here, and what is written here has its form."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import ChangeCounts
from fleet_agentpack.kit.results import UNKNOWN
from tests.deploy.lab import CODEX, Lab

OLD_ID = "1769212800000000001"
TIME = "2026-01-24T00:00:00.000000001Z"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def key16(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:16]


class Original:
    """Writes what agentpack 0.9.1 leaves after a deploy of prompts to codex: files of mode 0600."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.root = lab.user / ".codex/prompts"
        self.state = lab.home_dir / "state/snapshots"

    def deploy(self, snapshot_id: str, prompts: dict[str, str]) -> None:
        manifest = {
            "schema_version": 1,
            "generated_at": TIME,
            "tool": "codex",
            "snapshot_id": snapshot_id,
            "managed_files": [
                {"path": name, "sha256": sha(text), "module_ids": [f"prompt:{name[:-3]}"]}
                for name, text in sorted(prompts.items())
            ],
        }
        listing = self.root / ".agentpack.manifest.codex.json"
        written = {self.root / name: text for name, text in prompts.items()}
        written[listing] = json.dumps(manifest, indent=2) + "\n"
        changes = []
        for path, text in written.items():
            self._file(path, text)
            self._file(self.state / snapshot_id / "state/codex" / key16(path), text)
            changes.append(
                {"target": "codex", "op": "create", "path": str(path), "after_sha256": sha(text)}
            )
        record = {
            "kind": "deploy",
            "id": snapshot_id,
            "created_at": TIME,
            "targets": ["codex"],
            "managed_files": [
                {"target": "codex", "path": str(self.root / name), "sha256": sha(text)}
                for name, text in prompts.items()
            ],
            "changes": changes,
            "lockfile_sha256": None,
            "backup_root": str(self.state / snapshot_id / "backup"),
        }
        self._file(self.state / f"{snapshot_id}.json", json.dumps(record, indent=2) + "\n")
        (self.state / snapshot_id / "backup").mkdir(parents=True, exist_ok=True)

    @staticmethod
    def _file(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    lab.targets = {"codex": {**CODEX, "scope": "user"}}
    lab.prompt("hello", "one\n")
    lab.prompt("gone", "old\n")
    return lab


def test_a_home_of_the_original_is_clean_here(lab: Lab) -> None:
    Original(lab).deploy(OLD_ID, {"hello.md": "one\n", "gone.md": "old\n"})
    assert lab.changes() == []
    answer = lab.service().status(Request())
    assert answer.data.drift == [] and answer.warnings == ()
    assert lab.deploy().data.reason == "no_changes"


def test_going_on_from_the_original_and_back(lab: Lab) -> None:
    Original(lab).deploy(OLD_ID, {"hello.md": "one\n", "gone.md": "old\n"})
    lab.drop("prompt:gone")
    lab.source("modules/prompts/hello.md", "two\n")
    (gone, hello) = lab.plan().changes
    assert (gone.op, hello.update_kind) == ("delete", "managed_update")
    lab.deploy()
    assert stat.S_IMODE((lab.user / ".codex/prompts/hello.md").stat().st_mode) == 0o600
    lab.service().rollback(OLD_ID)
    assert (lab.user / ".codex/prompts/hello.md").read_text() == "one\n"
    assert (lab.user / ".codex/prompts/gone.md").read_text() == "old\n"
    listed = json.loads((lab.user / ".codex/prompts/.agentpack.manifest.codex.json").read_text())
    assert listed["snapshot_id"] == OLD_ID


def test_a_lost_manifest_falls_back_to_the_originals_snapshot(lab: Lab) -> None:
    original = Original(lab)
    original.deploy(OLD_ID, {"hello.md": "one\n", "gone.md": "old\n"})
    (original.root / ".agentpack.manifest.codex.json").unlink()
    lab.drop("prompt:gone")
    lab.source("modules/prompts/hello.md", "two\n")
    assert lab.changes() == [
        ("delete", "codex", "user/.codex/prompts/gone.md"),
        ("update", "codex", "user/.codex/prompts/hello.md"),
    ]
    assert {row.update_kind for row in lab.plan().changes} == {UNKNOWN, "managed_update"}


def test_a_moved_root_of_the_originals_is_left_alone(lab: Lab) -> None:
    Original(lab).deploy(OLD_ID, {"hello.md": "one\n", "gone.md": "old\n"})
    lab.targets["codex"]["options"] = {"codex_home": str(lab.root / "moved")}
    lab.save()
    answer = lab.service().plan(Request())
    assert answer.data.summary == ChangeCounts(create=2, delete=0, update=0)
    assert any("left behind" in text for text in answer.warnings)


def test_a_rollback_record_of_the_original(lab: Lab) -> None:
    """It names no backups and has no directory of its own."""
    original = Original(lab)
    original.deploy(OLD_ID, {"hello.md": "one\n", "gone.md": "old\n"})
    event: dict[str, Any] = json.loads((original.state / f"{OLD_ID}.json").read_text())
    number = str(int(OLD_ID) + 5)
    event |= {"kind": "rollback", "id": number, "rolled_back_to": OLD_ID, "backup_root": ""}
    for change in event["changes"]:
        change["op"] = "rollback_restore"
    (original.state / f"{number}.json").write_text(json.dumps(event))
    lab.source("modules/prompts/hello.md", "two\n")
    lab.deploy()
    lab.service().rollback(OLD_ID)
    assert (lab.user / ".codex/prompts/hello.md").read_text() == "one\n"


def test_the_form_of_what_is_written(lab: Lab) -> None:
    lab.deploy()
    lab.source("modules/prompts/hello.md", "two\n")
    lab.drop("prompt:gone")
    snapshot_id = lab.deploy().data.snapshot_id
    assert re.fullmatch(r"\d{19}", snapshot_id)
    state = lab.home_dir / "state/snapshots"
    text = (state / f"{snapshot_id}.json").read_text()
    record = json.loads(text)
    assert text == json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    assert list(record) == [
        "kind",
        "id",
        "created_at",
        "targets",
        "managed_files",
        "changes",
        "lockfile_sha256",
        "backup_root",
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", record["created_at"])
    prompts = lab.user / ".codex/prompts"
    backup = state / snapshot_id / "backup"
    assert record["backup_root"] == str(backup)
    assert record["managed_files"] == [
        {"target": "codex", "path": str(prompts / "hello.md"), "sha256": sha("two\n")}
    ]
    gone, hello, listing = record["changes"]
    assert gone == {
        "target": "codex",
        "op": "delete",
        "path": str(prompts / "gone.md"),
        "backup_path": str(backup / "codex" / key16(prompts / "gone.md")),
        "before_sha256": sha("old\n"),
    }
    assert hello["op"] == "update" and Path(hello["backup_path"]).read_text() == "one\n"
    assert listing["path"] == str(prompts / ".agentpack.manifest.codex.json")
    stored = state / snapshot_id / "state/codex"
    assert (stored / key16(prompts / "hello.md")).read_text() == "two\n"
    manifest = json.loads((stored / key16(Path(listing["path"]))).read_text())
    assert list(manifest) == [
        "schema_version",
        "generated_at",
        "tool",
        "snapshot_id",
        "managed_files",
    ]
    assert manifest["managed_files"] == [
        {"path": "hello.md", "sha256": sha("two\n"), "module_ids": ["prompt:hello"]}
    ]
    strangers = [path.name for path in state.iterdir() if path.suffix == ".json"]
    assert all(re.fullmatch(r"\d+\.json", name) for name in strangers)
