"""A person, two packs, two projects and accidents, in any order: the promises hold.

FLEET_AGENTPACK_WORLDS says how many worlds the slow run makes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    rule,
    run_state_machine_as_test,
)

from fleet_agentpack.deploy import copies
from tests.deploy.person import Person, pack
from tests.deploy.playground import (
    PROJECTS,
    deploying,
    repo,
    scope,
    texts,
    uninstalling,
)
from tests.deploy.promise import Applied, Entry, File, Promise, Refused

KINDS = st.sampled_from(["deploy", "adopt", "undo", "uninstall", "rollback", "prune"])
NO_PRUNE = ("snapshots", "prune", "--keep", "1000000", "--yes")
USUAL_MANY = copies.MANY
WORLDS = int(os.environ.get("FLEET_AGENTPACK_WORLDS", "300"))  # a test has no such variables
project, number = st.sampled_from(PROJECTS), st.integers(0, 9)


class World(Person):
    """What deploy does to it."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Applied] = []
        self.last: Applied | None = None  # the last command that wrote, if it was an apply
        self.earlier: list[Applied] = []  # the applies just before it, which can be undone next

    @initialize(many=st.booleans())
    def size(self, many: bool) -> None:
        """Whether its files count as many, so that snapshots hand their copies on."""
        copies.MANY = 0 if many else USUAL_MANY

    def teardown(self) -> None:
        """Every world ends as it began, apart from what the user did."""
        try:
            if sys.exc_info()[0] is None:
                self._uninstall("", "project")
        finally:
            copies.MANY = USUAL_MANY
            shutil.rmtree(self.root, ignore_errors=True)

    @rule(where=project)
    def deploy(self, where: str) -> None:
        self._deploy("first", where, adopt=False)

    @rule(where=project)
    def adopt(self, where: str) -> None:
        self._deploy("first", where, adopt=True)

    @rule(where=project, adopt=st.booleans())
    def second_pack(self, where: str, adopt: bool) -> None:
        self._deploy("second", where, adopt=adopt)

    @rule(adopt=st.booleans())
    def second_project(self, adopt: bool) -> None:
        self._deploy("first", "other", adopt=adopt)

    # No rule has a precondition: whether a kill hit or came too late depends on the machine, and
    # which rules there are must not.

    @rule(by_id=st.booleans())
    def undo(self, by_id: bool) -> None:
        if self.last is None:
            return
        words = _undoing(self.last) if by_id else ("undo", "--yes")
        self._run(words, self.now.undo(self.last))
        self.history = [each for each in self.history if each is not self.last]
        self.last = self.earlier.pop() if self.earlier else None

    @rule(number=number)
    def rollback(self, number: int) -> None:
        if not self.history:
            return
        to = self.history[number % len(self.history)]
        self._run(("rollback", "--to", to.snapshot_id, "--yes"), self.now.rollback(to))
        self.last = None

    @rule(which=st.sampled_from(["", "--user", "--project", "codex", "claude_code"]), where=project)
    def uninstall(self, which: str, where: str) -> None:
        self._uninstall(which, where)

    def _uninstall(self, which: str, where: str) -> None:
        words, inside = uninstalling(which, where)
        self._run(words, self.now.uninstall(inside), where)
        self.history, self.last = [], None
        self._nothing_is_left(inside)

    @rule(keep=st.integers(1, 4))
    def prune(self, keep: int) -> None:
        before = self._snapshots()
        self._run(("snapshots", "prune", "--keep", str(keep), "--yes"), self.now.next())
        after = self._snapshots()
        assert after == before[:keep]
        self._pruned(after)

    @rule(kind=KINDS, where=project, which=pack, effect=st.integers(0, 70), number=number)
    def kill(self, kind: str, where: str, which: str, effect: int, number: int) -> None:
        """A command is killed before its n-th effect; the next one that writes recovers."""
        found = self._command(kind, where, which, number)
        if found is None:
            return
        words, expected, applied = found
        before, known, folders = self.now.next(), self._snapshots(), self.place.folders()
        status = self.place.killed(where, words, effect)
        found_as_is = self.place.disk()
        self.place.shell(where).attempt("status", *repo(self.place, which))
        assert self.place.disk() == found_as_is
        if status == -9:
            self.place.shell(where).json(*NO_PRUNE)
        actual = self.place.disk()
        outcomes = {"new": expected} if status == 0 else {"old": before, "new": expected}
        good = [name for name, each in outcomes.items() if not each.differs(actual)]
        assert good, {name: each.differs(actual) for name, each in outcomes.items()}
        if len(good) == 2 and not before.knows_as_much(expected):  # only the record can tell
            again = words if kind != "undo" or not self.last else _undoing(self.last)
            self.place.shell(where).json(*again)
            good = ["new"]
        if good[0] == "old":  # a directory may have been made for nothing
            self.visited |= self.place.folders() - folders
        self.last = None if status == 0 or "new" in good else self.last
        if good[0] == "new":
            self._becomes(expected, actual)
            new = [each for each in self._snapshots() if each not in known]
            if applied and new:
                self.history.append(applied._replace(snapshot_id=new[-1], after=self.now.next()))
            if kind in ("undo", "uninstall"):
                self.history = []
        if kind == "prune":
            self._pruned(self._snapshots())
            self._may_be_gone()
        self._nothing_is_lost()

    def _pruned(self, left: list[str]) -> None:
        """What was pruned can no longer be gone back to."""
        self.history = [each for each in self.history if each.snapshot_id in left]
        if self.last and self.last.snapshot_id not in left:
            self.last = None
        if not all(each.snapshot_id in left for each in self.earlier):
            self.earlier = []

    # How it is done and checked.

    def _command(
        self, kind: str, where: str, which: str, number: int
    ) -> tuple[tuple[str, ...], Promise, Applied | None] | None:
        """The words of a command, and what it leads to; None where it makes no sense."""
        if kind in ("deploy", "adopt"):
            if self.now.is_open(which, self.place.wanted(which, where)):
                return None
            try:
                expected = self._expected(which, where, adopt=kind == "adopt")
            except Refused:
                return None
            applied = self._applied(which, where, expected, "", "")
            return deploying(self.place, which, adopt=kind == "adopt"), expected, applied
        if kind == "undo" and self.last:
            return ("undo", "--yes"), self.now.undo(self.last), None
        if kind == "rollback" and self.history:
            to = self.history[number % len(self.history)]
            return ("rollback", "--to", to.snapshot_id, "--yes"), self.now.rollback(to), None
        if kind == "uninstall":
            return ("uninstall", "--yes"), self.now.uninstall(lambda _: True), None
        if kind == "prune":
            return ("snapshots", "prune", "--keep", "1", "--yes"), self.now.next(), None
        return None

    def _expected(self, which: str, where: str, *, adopt: bool) -> Promise:
        wanted = self.place.wanted(which, where)
        return self.now.deploy(which, wanted, scope(where), adopt=adopt)

    def _applied(self, which: str, where: str, after: Promise, one: str, two: str) -> Applied:
        return Applied(which, scope(where), one, two, self.now.next(), after)

    def _deploy(self, which: str, where: str, *, adopt: bool) -> None:
        shell, words = self.place.shell(where), deploying(self.place, which, adopt=adopt)
        if self.now.is_open(which, self.place.wanted(which, where)):
            return
        try:
            expected = self._expected(which, where, adopt=adopt)
        except Refused as refused:
            error = shell.refusal(*words)
            assert (error["code"] == "E_ADOPT_CONFIRM_REQUIRED") == (refused.code != "conflict")
            assert all(name in str(error) for name in refused.paths), (refused.paths, error)
            assert self.now.differs(self.place.disk()) == {}
            return
        begun = self._applied(which, where, expected, "", "")
        planned = {
            row["path"] for row in shell.json("plan", *repo(self.place, which))["data"]["changes"]
        }
        changed = {p for p in begun.touched() if expected.found(p) != self.now.found(p)}
        assert {os.path.relpath(p, self.root) for p in planned} == changed
        answer = self._run(words, expected, where)
        data = answer["data"]
        if data["applied"]:
            ids = data["snapshot_id"], data["undo_snapshot_id"]
            self.earlier = [*self.earlier, self.last] if self.last else []
            self.last = begun._replace(snapshot_id=ids[0], undo_id=ids[1], after=self.now.next())
            self.history.append(self.last)
        self._is_settled(shell, words, which, answer["warnings"])

    def _is_settled(self, shell: Any, words: tuple[str, ...], which: str, told: list[str]) -> None:
        """Status is clean, and a second apply changes nothing."""
        status = shell.json("status", *repo(self.place, which))
        named = "\n".join([*told, *status["warnings"]])
        for row in status["data"]["drift"]:
            assert row["kind"] == "extra" or row["path"] in named, row
        disk, state = self.place.disk(), self.place.kept()
        assert shell.json(*words)["data"]["reason"] == "no_changes"
        assert self.place.disk() == disk
        assert self.place.kept() == state

    def _run(self, words: tuple[str, ...], expected: Promise, where: str = "project") -> Any:
        answer = self.place.shell(where).json(*words)
        actual = self.place.disk()
        wrong = expected.differs(actual)
        assert not wrong, (words, wrong)
        told = "\n".join(answer["warnings"])
        for name in expected.named:
            assert name in told, (name, told)
        self._becomes(expected, actual)
        if "prune" in words:
            self._may_be_gone()
        self._nothing_is_lost()
        return answer

    def _becomes(self, expected: Promise, actual: dict[str, Entry]) -> None:
        self.now = expected.settled(actual)
        self.made |= self.place.folders() - self.folders

    def _snapshots(self) -> list[str]:
        rows = self.place.shell().json("snapshots")["data"]["snapshots"]
        return [row["id"] for row in rows]

    def _nothing_is_lost(self) -> None:
        """What the user wrote is on the disk, or can be found in our state."""
        missing = self.mine - texts(self.place.disk())
        assert missing <= self.place.kept()

    def _may_be_gone(self) -> None:
        """Pruning may forget edits that were overwritten, but no origin."""
        claims = [*self.now.claims.values(), *self.now.left.values()]
        origins = {each.origin.data for each in claims if isinstance(each.origin, File)}
        here = texts(self.place.disk()) | origins | self.place.kept()
        self.mine &= here

    def _nothing_is_left(self, inside: Callable[[str], bool]) -> None:
        """After an uninstall of everything: no file of ours, no directory that we made."""
        if inside("user/x") and inside("other/x") and inside("project/.claude/x"):
            assert self.place.manifests() == []
            there, needed = self.place.folders(), _above(self.place.disk())
            assert not self.folders - there and not there - self.folders - self.visited - needed


def _undoing(last: Applied) -> tuple[str, ...]:
    return ("rollback", "--to", last.undo_id, "--yes")


def _above(disk: dict[str, Entry]) -> set[str]:
    """The directories that files are in."""
    return {str(above) for name in disk for above in Path(name).parents}


def _play(worlds: int, steps: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    chosen = settings(
        max_examples=worlds,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=checks,
        print_blob=True,
    )
    run_state_machine_as_test(World, settings=chosen)


def test_whatever_happens_in_a_few_worlds() -> None:
    _play(8, 15)


@pytest.mark.slow
def test_whatever_happens_in_many_worlds() -> None:
    _play(WORLDS, 30)
