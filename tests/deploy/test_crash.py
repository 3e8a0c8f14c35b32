"""A kill, a full disk, a refusal at every step of an apply or a rollback: old or new."""

from __future__ import annotations

import errno
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.deploy import copies
from fleet_agentpack.deploy.disk import Disk
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import HashCache
from fleet_agentpack.deploy.ownership import FILE_NAME, RecordFile
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.service import DeployService
from fleet_agentpack.deploy.snapshots import SnapshotStore
from fleet_agentpack.deploy.takeover import OwnershipReader
from fleet_agentpack.deploy.transaction import Transaction
from fleet_agentpack.deploy.uninstall import UninstallRequest
from tests.deploy.lab import Lab, files
from tests.deploy.mortal import CountingDisk, FailingDisk, MortalDisk, in_child
from tests.deploy.playground import Playground, deploying

APPLY = Request(adopt=True)


def eventful(root: Path) -> tuple[Lab, str]:
    """A lab whose next apply creates, updates, deletes and adopts; and its first snapshot."""
    lab = Lab(root, git=False)
    lab.targets = {"codex": {"mode": "files", "scope": "user", "options": {}}}
    lab.instructions("base", "one\n")
    lab.prompt("old", "to be deleted\n")
    lab.skill("tidy", {"run.sh": "echo one\n"})
    first = lab.deploy().data.snapshot_id
    lab.drop("prompt:old")
    lab.source("modules/instructions/base/AGENTS.md", "two\n")
    lab.source("modules/skills/tidy/run.sh", "echo two\n", 0o755)
    lab.prompt("new", "created\n")
    lab.prompt("mine", "ours now\n")
    lab.prompt("linked", "ours now, too\n")
    lab.skill("fresh")
    lab.write("user/.codex/prompts/mine.md", "the user's own\n", 0o640)
    lab.write("user/elsewhere.md", "behind a link\n")
    (lab.user / ".codex/prompts/linked.md").symlink_to(lab.user / "elsewhere.md")
    lab.write("user/.codex/skills/tidy/SKILL.md", "edited by hand", 0o600)
    return lab, first


def steps_of(lab: Lab, act: Callable[[DeployService], Any]) -> list[str]:
    disks: list[CountingDisk] = []

    def disk(hashes: Any) -> CountingDisk:
        disks.append(CountingDisk(hashes))
        return disks[-1]

    act(lab.service(disk=disk))
    return [step for disk in disks for step in disk.steps]


class Trial:
    """Copies of one prepared world, so that every step can be tried from the same start."""

    def __init__(self, tmp_path: Path, act: Callable[[DeployService], Any]) -> None:
        self.tmp_path = tmp_path
        self.act = act
        self.live = tmp_path / "live"
        self.frozen = tmp_path / "frozen"

    def prepare(self, lab: Lab) -> None:
        self.before, self.held_before = lab.outside(), held(lab)
        shutil.copytree(self.live, self.frozen, symlinks=True)
        self.steps = steps_of(lab, self.act)
        self.after, self.held_after = lab.outside(), held(lab)
        assert self.before != self.after

    def fresh(self) -> Lab:
        shutil.rmtree(self.live)
        shutil.copytree(self.frozen, self.live, symlinks=True)
        return Lab(self.live, git=False)

    def looks_whole(self, lab: Lab) -> str:
        """Which of the two states the world is in."""
        found = lab.outside()
        # A manifest carries the time and the id of its snapshot; those differ between two runs.
        if _stable(found) == _stable(self.before):
            assert {k: v for k, v in found.items() if k in self.before} == self.before
            assert held(lab) == self.held_before
            return "old"
        assert _stable(found) == _stable(self.after)
        assert held(lab) == self.held_after
        return "new"


def held(lab: Lab) -> dict[str, Any]:
    """What the record says of each path, and of what stood there before."""
    place = lab.home_dir / "state/ownership/record.json"
    document = json.loads(place.read_text()) if place.exists() else {"holdings": []}
    return {
        f"{holding['root']}/{name}": (holding["pack"], sha256, origin)
        for holding in document["holdings"]
        for name, (sha256, _since, origin) in holding["files"].items()
    }


def _stable(found: dict[str, Any]) -> dict[str, Any]:
    return {
        name: entry[:1] if ".agentpack.manifest" in name else entry for name, entry in found.items()
    }


def leftovers(lab: Lab) -> list[str]:
    state = lab.home_dir / "state"
    strays = [str(path) for path in lab.user.rglob(".agentpack-tmp-*")]
    strays += [str(path) for path in state.rglob("*.tmp")]
    staging = state / "staging"
    strays += [str(path) for path in staging.iterdir()] if staging.exists() else []
    ids = {path.stem for path in (state / "snapshots").glob("*.json")}
    strays += [str(p) for p in (state / "snapshots").iterdir() if p.is_dir() and p.name not in ids]
    return strays + ([str(state / "journal.json")] if (state / "journal.json").exists() else [])


def apply(service: DeployService) -> Any:
    return service.deploy(APPLY)


@pytest.fixture
def trial(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Trial:
    kind = request.param
    if kind == "apply, many":
        monkeypatch.setattr(copies, "MANY", 0)
    lab, first = eventful(tmp_path / "live")
    if kind.startswith("apply"):
        trial = Trial(tmp_path, apply)
    else:
        undo_id = str(lab.deploy(adopt=True).data.undo_snapshot_id)
        ways: dict[str, Callable[[DeployService], Any]] = {
            "rollback": lambda service: service.rollback(first),
            "undo": lambda service: service.rollback(undo_id),
            "uninstall": lambda service: service.back.uninstall(UninstallRequest()),
        }
        trial = Trial(tmp_path, ways[kind])
    trial.prepare(lab)
    return trial


@pytest.mark.parametrize(
    ("trial", "halfway"),
    [
        ("apply", False),
        ("apply", True),
        ("apply, many", False),
        ("rollback", False),
        ("undo", False),
        ("uninstall", False),
        ("uninstall", True),
    ],
    indirect=["trial"],
)
def test_a_kill_at_any_step_leaves_old_or_new(trial: Trial, halfway: bool) -> None:
    seen = set()
    for number, name in enumerate(trial.steps):
        if halfway and name != "create":
            continue
        lab = trial.fresh()
        service = lab.service(disk=lambda h, n=number: MortalDisk(h, n, halfway=halfway))
        assert in_child(lambda s=service: trial.act(s)) == -signal.SIGKILL
        reader = lab.service()
        plan = reader.plan(Request())  # a reading command answers, and changes nothing
        pending = (lab.home_dir / "state/journal.json").exists()
        assert any("interrupted" in text for text in plan.warnings) == pending
        recover(lab)
        seen.add(trial.looks_whole(lab))
        assert leftovers(lab) == []
    assert seen == {"old", "new"} or halfway


def recover(lab: Lab) -> list[str]:
    """What every writing command does first."""
    home = lab.home()
    known = OwnershipReader(RecordFile(home.ownership / FILE_NAME), SnapshotStore(home))
    return Transaction(home, Disk(HashCache(None)), lambda *_: None, known).recover()


@pytest.mark.parametrize("trial", ["apply"], indirect=True)
def test_a_kill_during_recovery_is_recovered_from(trial: Trial) -> None:
    middle = trial.steps.index("rename") + 4
    lab = trial.fresh()
    service = lab.service(disk=lambda h: MortalDisk(h, middle))
    assert in_child(lambda: trial.act(service)) == -signal.SIGKILL
    number = 0
    while True:
        again = lab.service(disk=lambda h, n=number: MortalDisk(h, n))
        status = in_child(lambda s=again: trial.act(s))
        if status == 0:
            break
        assert status == -signal.SIGKILL
        number += 1
    assert number > 3
    assert trial.looks_whole(lab) == "new"
    assert leftovers(lab) == []


@pytest.mark.parametrize(
    ("trial", "code", "lasting"),
    [
        ("apply", errno.ENOSPC, True),
        ("apply", errno.EACCES, False),
        ("rollback", errno.ENOSPC, True),
        ("undo", errno.EACCES, False),
        ("uninstall", errno.ENOSPC, True),
    ],
    indirect=["trial"],
)
def test_an_error_at_any_step_goes_back_at_once(trial: Trial, code: int, lasting: bool) -> None:
    for number, name in enumerate(trial.steps):
        if name == "remove_tree":
            continue
        lab = trial.fresh()
        service = lab.service(disk=lambda h, n=number: FailingDisk(h, n, code, lasting=lasting))
        try:
            trial.act(service)
        except DeployError as error:
            reason = {errno.ENOSPC: "disk_full", errno.EACCES: "io_permission_denied"}[code]
            assert error.details["reason_code"] == reason, (number, name)
            assert trial.looks_whole(lab) == "old", (number, name)
            assert not (lab.home_dir / "state/journal.json").exists()
        else:
            if name == "remove_directory":  # an empty one that cannot be removed stays
                assert files(_stable(lab.outside())) == files(_stable(trial.after))
                continue
            # a link that cannot be made is replaced by a copy
            assert name == "link" and code == errno.EACCES, (number, name)
            assert trial.looks_whole(lab) == "new"
        recover(lab)
        assert leftovers(lab) == []


def test_a_file_changed_after_a_kill_is_left_alone_and_kept(tmp_path: Path) -> None:
    lab, _ = eventful(tmp_path / "live")
    steps = steps_of(copy_of(lab, tmp_path / "count"), apply)
    last_rename = max(i for i, name in enumerate(steps) if name == "rename") - 3
    service = lab.service(disk=lambda h: MortalDisk(h, last_rename))
    assert in_child(lambda: apply(service)) == -signal.SIGKILL
    lab.write("user/.codex/AGENTS.md", "neither old nor new\n")
    answer = lab.service().deploy(Request(dry_run=True))
    assert any("interrupted" in text for text in answer.warnings)
    assert (lab.user / ".codex/AGENTS.md").read_text() == "neither old nor new\n"
    warnings = recover(lab)
    assert any("AGENTS.md was changed by another program" in text for text in warnings)
    assert (lab.user / ".codex/AGENTS.md").read_text() == "neither old nor new\n"
    assert (lab.user / ".codex/prompts/new.md").read_text() == "created\n"
    kept = list((lab.home_dir / "state/snapshots").rglob("*.found"))
    assert [path.read_text() for path in kept] == ["neither old nor new\n"]


def copy_of(lab: Lab, root: Path) -> Lab:
    shutil.copytree(lab.root, root, symlinks=True)
    return Lab(root, git=False)


def test_a_full_disk_in_the_staging_area_touches_nothing(tmp_path: Path) -> None:
    lab, _ = eventful(tmp_path / "live")
    before = files(lab.outside())
    service = lab.service(disk=lambda h: FailingDisk(h, 5, errno.ENOSPC, lasting=True))
    with pytest.raises(DeployError) as raised:
        apply(service)
    assert raised.value.details["reason_code"] == "disk_full"
    assert files(lab.outside()) == before
    assert leftovers(lab) == []


def test_an_uninstall_after_a_kill_takes_everything_back(tmp_path: Path) -> None:
    place = Playground(tmp_path)
    place.put("first", "prompt:hello", 0)
    words = deploying(place, "first", adopt=False)
    for effect in range(0, 60, 4):
        status = place.killed("project", words, effect)
        place.shell().json("uninstall", "--yes")
        assert (place.disk(), place.manifests()) == ({}, []), effect
    assert status == 0
