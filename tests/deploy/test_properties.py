"""Random repos, edits and sequences of commands against what must always hold."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.kit.stamps import Remembered
from tests.deploy.lab import ALL_TARGETS, SKILL, Lab, files

NAMES = ("alpha", "beta", "gamma")
TEXTS = ("one\n", "two\n", "three without newline", "", "ünïcode\n")
MANIFEST = ".agentpack.manifest"

put = st.tuples(
    st.just("put"),
    st.sampled_from(("instructions", "prompt", "command", "skill")),
    st.sampled_from(NAMES),
    st.sampled_from(TEXTS),
)
drop = st.tuples(st.just("drop"), st.integers(0, 20))
overlay = st.tuples(
    st.just("overlay"),
    st.sampled_from(("global", "machine", "project")),
    st.sampled_from(NAMES),
    st.sampled_from(TEXTS),
)
apply = st.tuples(st.just("apply"), st.sampled_from(("all", *ALL_TARGETS)), st.booleans())
edit = st.tuples(st.just("edit"), st.integers(0, 50), st.sampled_from(TEXTS))
remove = st.tuples(st.just("remove"), st.integers(0, 50))
stray = st.tuples(
    st.just("stray"),
    st.sampled_from(
        (
            "user/.codex/prompts/alpha.md",
            "user/.codex/prompts/own.md",
            "user/.codex/AGENTS.md",
            "project/AGENTS.md",
            "project/.claude/commands/beta.md",
            "project/.github/prompts/gamma.prompt.md",
            "project/notes.md",
        )
    ),
    st.sampled_from(TEXTS),
)
rollback = st.tuples(st.just("rollback"), st.integers(0, 10))
steps = st.lists(
    st.one_of(put, put, drop, overlay, apply, apply, edit, remove, stray, rollback), max_size=14
)


class World:
    """A lab and what we know about it: the snapshots, and whose each file is."""

    def __init__(self, root: Path) -> None:
        self.lab = Lab(root, git=False)
        self.service = self.lab.service()
        self.lab.save()
        self.snapshots: list[tuple[str, dict[str, Any], set[str]]] = []
        self.present: dict[str, Any] = {}

    def managed(self) -> set[str]:
        """Every file that a manifest on disk lists."""
        found = set()
        for top in (self.lab.user, self.lab.project):
            for manifest in top.rglob(f"{MANIFEST}*"):
                import json

                for row in json.loads(manifest.read_bytes())["managed_files"]:
                    found.add(os.path.relpath(manifest.parent / row["path"], self.lab.root))
        return found

    def outputs(self) -> dict[str, Any]:
        return {k: v for k, v in files(self.lab.outside()).items() if MANIFEST not in k}

    def unmanaged(self) -> dict[str, Any]:
        managed = self.managed()
        return {name: entry for name, entry in self.outputs().items() if name not in managed}

    # What can happen.

    def put(self, kind: str, name: str, text: str) -> None:
        lab = self.lab
        lab.drop(f"{kind}:{name}")
        if kind == "instructions":
            lab.instructions(name, text)
        elif kind == "prompt":
            lab.prompt(name, text)
        elif kind == "command":
            lab.command(name)
        else:
            lab.skill(name, {"data.txt": text})

    def drop(self, number: int) -> None:
        if self.lab.modules:
            self.lab.drop(self.lab.modules[number % len(self.lab.modules)]["id"])

    def overlay(self, scope: str, name: str, text: str) -> None:
        from fleet_agentpack.deploy.model import module_fs_key
        from fleet_agentpack.deploy.project import find_project

        key = module_fs_key(f"skill:{name}")
        project = find_project(self.lab.home(), Remembered()).id
        base = {
            "global": "overlays",
            "machine": "overlays/machines/test-machine",
            "project": f"projects/{project}/overlays",
        }[scope]
        self.lab.source(f"{base}/{key}/SKILL.md", SKILL.format(name=f"over {name}") + text)

    def edit(self, number: int, text: str) -> None:
        if managed := sorted(self.managed()):
            self.lab.write(managed[number % len(managed)], text)

    def remove(self, number: int) -> None:
        if managed := sorted(self.managed()):
            (self.lab.root / managed[number % len(managed)]).unlink(missing_ok=True)

    def stray(self, path: str, text: str) -> None:
        if path not in self.managed():
            self.lab.write(path, text)

    def apply(self, target: str, adopt: bool) -> None:
        unmanaged, outside = self.unmanaged(), self.bystanders()
        request = Request(target=target, adopt=adopt, allow_mass_delete=True)
        try:
            answer = self.service.deploy(request)
        except DeployError as error:
            assert error.code == "E_ADOPT_CONFIRM_REQUIRED" and not adopt, error
            assert self.unmanaged() == unmanaged
            return
        if not adopt:
            assert {k: v for k, v in self.outputs().items() if k in unmanaged} == unmanaged
        assert self.bystanders() == outside
        again = self.service.plan(request).data
        assert again.changes == []
        status = self.service.status(request).data.summary
        assert (status.missing, status.modified) == (0, 0)
        assert self.service.deploy(request).data.reason == "no_changes"
        if answer.data.applied:
            outputs = self.outputs()
            kept = {name: outputs[name] for name in self.managed() if name in outputs}
            self.snapshots.append((answer.data.snapshot_id, kept, set(self.managed())))

    def rollback(self, number: int) -> None:
        if not self.snapshots:
            return
        unmanaged, outside = self.unmanaged(), self.bystanders()
        snapshot_id, kept, managed = self.snapshots[number % len(self.snapshots)]
        answer = self.service.rollback(snapshot_id)
        left = {name for name in kept if any(f"/{name} is not" in w for w in answer.warnings)}
        now = self.outputs()
        for name, entry in kept.items():
            if name not in left:
                assert now[name][1] == entry[1], name
        assert self.managed() == managed - left
        assert {name: entry for name, entry in now.items() if name in unmanaged} == unmanaged
        assert self.bystanders() == outside

    def bystanders(self) -> dict[str, Any]:
        """What no command may touch: everything that is not a place for outputs."""
        places = (".codex", ".claude", ".cursor", ".github", "AGENTS.md", MANIFEST)
        return {
            name: entry
            for name, entry in files(self.lab.outside()).items()
            if not any(place in name for place in places)
        } | {f"repo/{k}": v for k, v in files(_tree(self.lab.repo)).items()}


def _tree(root: Path) -> dict[str, Any]:
    from tests.deploy.lab import tree

    return tree(root)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps)
def test_whatever_happens_the_promises_hold(happening: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        world = World(Path(scratch))
        for name, *arguments in happening:
            getattr(world, name)(*arguments)
