"""Beside the original, agentpack 0.9.1: the same answers, and one home for both.

Runs when AGENTPACK_BIN names its binary.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.deploy import copies
from fleet_agentpack.deploy.actions import doctor_as_commands
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.kit import process
from fleet_agentpack.kit.results import jsonable
from tests.deploy.lab import Lab, files
from tests.deploy.shell import QuickShell

PROGRAM = os.environ.get("AGENTPACK_BIN", "")

pytestmark = pytest.mark.skipif(
    not PROGRAM, reason="AGENTPACK_BIN does not name the original agentpack binary"
)


class Both(Lab):
    """A lab in which the original works as well."""

    def original(self, *arguments: str) -> dict[str, Any]:
        command = [PROGRAM, *arguments, "--json"]
        done = process.run(command, cwd=self.project, env=self.environ)
        answer: dict[str, Any] = json.loads(done.text)
        assert answer["ok"], answer["errors"]
        return answer

    def original_deploy(self) -> str:
        data = self.original("deploy", "--apply", "--yes")["data"]
        return str(data["snapshot_id"])

    def original_deploy_is_needless(self) -> None:
        data = self.original("deploy", "--apply", "--yes")["data"]
        assert data["reason"] == "no_changes"

    @property
    def shell(self) -> QuickShell:
        return QuickShell(self)

    def our_deploy(self) -> str:
        return str(self.deploy(allow_mass_delete=True).data.snapshot_id)

    def agree(self) -> dict[str, int]:
        """Both see the same; gives the plan's counts."""
        for command in ("plan", "diff", "deploy"):
            ours = self.ours(command, dry_run=command == "deploy")
            assert self.original(command)["data"] == ours
        theirs, ours = self.original("status")["data"], self.ours("status")
        for name in ("profile", "targets", "summary", "summary_by_root"):
            assert theirs[name] == ours[name]
        assert sorted(theirs["drift"], key=str) == sorted(ours["drift"], key=str)
        assert self.original("doctor")["data"]["roots"] == self.ours("doctor")["roots"]
        return vars(self.plan().summary)

    def contents(self) -> dict[str, Any]:
        """What is deployed, without modes: the original gives every file it writes 0600."""
        return {name: entry[-1] for name, entry in files(self.outside()).items()}

    def ours(self, command: str, **request: Any) -> Any:
        service = self.service()
        place = service.upkeep if command in ("lock", "fetch", "update") else service
        data = getattr(place, command)(Request(**request)).data
        return without_ours(jsonable(doctor_as_commands(data) if command == "doctor" else data))


APPLY = ("deploy", "--apply", "--yes", "--allow-mass-delete")
CLEAN = {"create": 0, "delete": 0, "update": 0}
OURS = {"adopts", "cause", "edited_by_hand", "layer", "module_ids", "plan_id", "text"}


def without_ours(data: Any) -> Any:
    """An answer without the keys that only we have."""
    if isinstance(data, list):
        return [without_ours(each) for each in data]
    if not isinstance(data, dict):
        return data
    return {name: without_ours(value) for name, value in data.items() if name not in OURS}


def without_manifests(found: dict[str, Any]) -> dict[str, Any]:
    """What is deployed, without the lists of it; they name their snapshot."""
    return {name: entry for name, entry in found.items() if ".agentpack.manifest" not in name}


@pytest.fixture(params=["few files", "many files"])
def lab(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Both:
    if request.param == "many files":
        monkeypatch.setattr(copies, "MANY", 0)
    lab = Both(tmp_path)
    lab.furnish()
    lab.source("modules/skills/tidy/scripts/run.sh", "echo tidy\n", 0o644)
    lab.instructions("more", "# No newline at the end")
    lab.prompt("Zed é", "Ü\n")
    lab.skill("a-b", {"x y/z.md": "x", "a-b/y": "1", "a/y": "2", "a.b/y": "3"})
    return lab


def test_before_anything_is_deployed(lab: Both) -> None:
    lab.write("project/AGENTS.md", "mine\n")
    assert lab.agree()["update"] == 1
    theirs, ours = lab.original("doctor")["data"], lab.ours("doctor")
    renamed = [
        line.replace("agentpack doctor", "fleet-agentpack doctor", 1)
        for line in theirs["next_actions"]
    ]
    assert renamed == ours["next_actions"]


def test_a_home_of_the_original_here(lab: Both) -> None:
    first = lab.original_deploy()
    deployed = lab.contents()
    assert lab.agree() == CLEAN
    assert lab.deploy().data.reason == "no_changes"
    lab.source("modules/prompts/hello.md", "two\n")
    lab.drop("skill:a-b")
    assert lab.agree()["delete"] > 0
    lab.our_deploy()
    assert lab.agree() == CLEAN
    lab.service().rollback(first)
    assert lab.contents() == deployed


def test_a_home_of_ours_there(lab: Both) -> None:
    lab.our_deploy()
    deployed = lab.contents()
    assert lab.agree() == CLEAN
    lab.source("modules/prompts/hello.md", "two\n")
    lab.drop("skill:a-b")
    first = lab.service().snapshots().data.snapshots[0].id
    lab.original_deploy()
    assert lab.agree() == CLEAN
    lab.original("rollback", "--to", first, "--yes")
    assert lab.contents() == deployed


def test_taking_turns_and_going_back(lab: Both) -> None:
    ids = []
    for number in range(4):
        lab.source("modules/prompts/hello.md", f"version {number}\n")
        ids.append(lab.original_deploy() if number % 2 else lab.our_deploy())
        assert lab.agree() == CLEAN
    hello = lab.user / ".codex/prompts/hello.md"
    for number in (1, 2, 0, 3):
        if number % 2:
            lab.service().rollback(ids[number])
        else:
            lab.original("rollback", "--to", ids[number], "--yes")
        assert hello.read_text() == f"version {number}\n"
        lab.source("modules/prompts/hello.md", f"version {number}\n")
        assert lab.agree() == CLEAN


def test_snapshots_of_versions_that_kept_only_backups(lab: Both) -> None:
    first = lab.original_deploy()
    deployed = lab.contents()
    lab.source("modules/prompts/hello.md", "two\n")
    second = lab.original_deploy()
    lab.drop("skill:a-b")
    lab.prompt("new", "new\n")
    third = lab.original_deploy()
    for snapshot_id in (first, second, third):
        shutil.rmtree(lab.home_dir / "state/snapshots" / snapshot_id / "state")
    lab.service().rollback(first)
    assert lab.contents() == deployed


def test_overlays_made_by_the_original(lab: Both) -> None:
    for scope in ("global", "machine"):
        words = ("overlay", "edit", "instructions:base", "--scope", scope, "--sparse", "--yes")
        place = Path(lab.original(*words)["data"]["overlay_dir"])
        (place / "AGENTS.md").write_text(f"# {scope}\n")
        lab.agree()
    words = ("overlay", "edit", "prompt:hello", "--kind", "patch", "--yes")
    place = Path(lab.original(*words)["data"]["patches_dir"])
    patch = "--- a/hello.md\n+++ b/hello.md\n@@ -1 +1 @@\n-Say hello.\n+Say HELLO.\n"
    (place / "hello.md.patch").write_text(patch)
    lab.agree()
    lab.deploy()
    assert (lab.project / "AGENTS.md").read_text().count("# machine") == 1
    assert (lab.user / ".codex/prompts/hello.md").read_text() == "Say HELLO.\n"
    assert lab.agree() == CLEAN
    words = ("overlay", "edit", "instructions:base", "--scope", "project", "--sparse", "--yes")
    place = Path(lab.original(*words)["data"]["overlay_dir"])
    (place / "AGENTS.md").write_text("# project\n")
    theirs = {row["path"] for row in lab.original("plan")["data"]["changes"]}
    ours = {row["path"] for row in lab.ours("plan")["changes"]}
    assert theirs - ours == {str(lab.user / ".codex/AGENTS.md")}  # the user's file is left alone


def test_pins_and_checkouts(lab: Both) -> None:
    upstream = lab.root / "upstream"
    lab.write("upstream/skill/SKILL.md", "---\nname: g\ndescription: d\n---\n")
    lab.git("init", "--quiet", "--initial-branch=main", cwd=upstream)
    lab.git("add", "--all", cwd=upstream)
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    lab.git(*who, "commit", "--quiet", "--message=x", cwd=upstream)
    source = {"git": {"url": str(upstream), "ref": "main", "subdir": "skill"}}
    lab.module("skill", "g", "", source=source)
    lab.original("plan")  # fetches it
    assert lab.agree()["create"] > 0
    lockfile, pins = lab.repo / "agentpack.lock.json", []
    for lock in (lambda: lab.original("lock", "--yes")["data"], lambda: lab.ours("lock")):
        data = lock()
        document = json.loads(lockfile.read_text())
        pins.append((data, document["modules"]))
        git = next(row for row in document["modules"] if row["id"] == "skill:g")
        git["resolved_source"]["git"].pop("ref", None)
    assert pins[0] == pins[1]
    shutil.rmtree(lab.home_dir / "cache")
    assert lab.agree()["create"] > 0
    for command in ("fetch", "update"):
        ours = lab.ours(command)
        assert lab.original(command, "--yes")["data"] == ours
    lab.our_deploy()
    assert lab.agree() == CLEAN


def test_operator_assets_of_the_original(lab: Both) -> None:
    bootstrap = lab.original("bootstrap", "--yes")["data"]["snapshot_id"]
    before = lab.contents()
    for command in ("plan", "diff"):
        assert lab.original(command)["data"] == lab.ours(command)
    lab.our_deploy()
    assert lab.agree() == CLEAN
    lab.service().rollback(str(bootstrap))
    assert lab.contents() == before


# What the original made is taken over, and given back.


def test_its_home_is_taken_over_without_loss(lab: Both) -> None:
    lab.write("user/.codex/config.toml", "model = 'x'\n")
    before = lab.contents()
    lab.original_deploy()
    deployed = lab.contents()
    lab.source("modules/prompts/hello.md", "two\n")
    lab.drop("skill:a-b")
    data = lab.shell.json(*APPLY)["data"]  # its files are ours: no adopt is needed
    assert lab.agree() == CLEAN
    lab.shell.json("rollback", "--to", data["undo_snapshot_id"], "--yes")
    assert without_manifests(lab.contents()) == without_manifests(deployed)
    lab.shell.json(*APPLY)
    lab.shell.json("uninstall", "--yes")
    assert lab.contents() == before


def test_what_it_replaced_is_not_lost(lab: Both) -> None:
    """Its snapshots have what an adopt replaced."""
    mine = lab.write("project/AGENTS.md", "mine\n")
    lab.original("deploy", "--apply", "--yes", "--adopt")
    lab.source("modules/instructions/base/AGENTS.md", "# Two\n")
    lab.shell.json(*APPLY)
    answer = lab.shell.json("uninstall", "--yes")
    kept = [path.read_bytes() for path in (lab.home_dir / "state").rglob("*") if path.is_file()]
    assert mine.exists() or b"mine\n" in kept, answer
    assert not mine.exists() or mine.read_text() == "mine\n"


def test_a_file_that_it_only_found_is_not_deleted(lab: Both) -> None:
    """Where the bytes were the same, it counts the file as its own."""
    lab.write("user/.codex/prompts/hello.md", "Say hello.\n")
    lab.original_deploy()
    assert lab.agree() == CLEAN
    lab.shell.json(*APPLY)
    lab.source("modules/prompts/hello.md", "two\n")
    lab.shell.json(*APPLY, "--adopt")
    lab.shell.json("undo", "--yes")
    assert (lab.user / ".codex/prompts/hello.md").read_text() == "Say hello.\n"


def test_it_works_on_a_home_with_our_records(lab: Both) -> None:
    mine = lab.write("project/AGENTS.md", "mine\n", 0o640)
    before = files(lab.outside())
    first = lab.shell.json(*APPLY, "--adopt")["data"]
    deployed = lab.contents()
    lab.source("modules/prompts/hello.md", "two\n")
    lab.original_deploy()
    lab.source("modules/prompts/hello.md", "three\n")
    lab.shell.json(*APPLY)
    assert lab.agree() == CLEAN
    lab.original("rollback", "--to", str(first["snapshot_id"]), "--yes")
    assert without_manifests(lab.contents()) == without_manifests(deployed)
    lab.shell.json("uninstall", "--yes")
    assert mine.read_text() == "mine\n"
    assert lab.contents() == {name: entry[-1] for name, entry in before.items()}


def test_it_reads_what_undo_prune_and_uninstall_leave(lab: Both) -> None:
    lab.shell.json(*APPLY)
    for number in range(3):
        lab.source("modules/prompts/hello.md", f"{number}\n")
        lab.shell.json(*APPLY)
        assert lab.agree() == CLEAN
    lab.shell.json("undo", "--yes")
    lab.source("modules/prompts/hello.md", "1\n")
    assert lab.agree() == CLEAN
    lab.shell.json("snapshots", "prune", "--keep", "2", "--yes")
    assert lab.agree() == CLEAN
    newest = lab.shell.json("snapshots")["data"]["snapshots"][0]
    lab.original_deploy_is_needless()
    lab.shell.json("uninstall", "--yes")
    assert lab.agree()["create"] > 0
    lab.original_deploy()
    assert lab.agree() == CLEAN and newest["id"]


def test_its_link_from_one_target_to_another(lab: Both) -> None:
    (lab.project / ".github").mkdir()
    link = lab.project / ".github/copilot-instructions.md"
    link.symlink_to("../AGENTS.md")
    lab.original("deploy", "--apply", "--yes", "--adopt")
    lab.source("modules/instructions/base/AGENTS.md", "# Two\n")
    lab.shell.json(*APPLY, "--adopt")
    assert link.read_text() == (lab.project / "AGENTS.md").read_text()
    assert lab.agree() == CLEAN


@pytest.mark.parametrize("between", ["a deploy of its own", "a rollback of its own"])
def test_undo_takes_back_what_it_did_since(lab: Both, between: str) -> None:
    mine = lab.write("project/AGENTS.md", "mine\n", 0o640)
    before = lab.contents()
    states, ids = [], []
    for number in range(3):
        lab.source("modules/prompts/hello.md", f"version {number}\n")
        ids.append(lab.shell.json(*APPLY, "--adopt")["data"]["snapshot_id"])
        states.append(without_manifests(lab.contents()))
    lab.shell.json("rollback", "--to", ids[1], "--yes")
    if between == "a deploy of its own":
        lab.source("modules/skills/a-b/x y/z.md", "moved on\n")
        lab.original_deploy()
    else:
        lab.original("rollback", "--to", ids[0], "--yes")
    for number in (2, 1, 0):
        lab.shell.json("undo", "--yes")
        assert without_manifests(lab.contents()) == states[number]
    lab.shell.json("uninstall", "--yes")
    assert lab.contents() == before
    assert mine.stat().st_mode & 0o777 == 0o640
