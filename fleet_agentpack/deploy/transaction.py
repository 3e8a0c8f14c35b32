"""Carries out a batch as one swap that leaves a snapshot; see `kit.swap` for what a kill leaves.

The stage becomes the snapshot's directory: copies of every output in `state`, what was replaced in
`backup`. The snapshot's record is the last thing to be put in place.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fleet_agentpack.deploy.batch import Batch, Step, new_state
from fleet_agentpack.deploy.disk import Disk, find
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.indented_json import indented
from fleet_agentpack.deploy.model import Blob, copy_name
from fleet_agentpack.deploy.snapshots import SnapshotChange
from fleet_agentpack.kit.disk import State
from fleet_agentpack.kit.journal import Journal, Row, SwapError, changed
from fleet_agentpack.kit.swap import Area, Swap

Report = Callable[[float, float | None, str], None]


def silent(_done: float, _total: float | None, _text: str) -> None:
    """Progress without a listener."""


class Transaction:
    """Runs batches on a disk. The caller holds the home's lock."""

    def __init__(self, home: Home, disk: Disk, report: Report) -> None:
        self._home = home
        self._disk = disk
        self._report = report
        self._swap = Swap(Area(home.journal, home.staging, home.snapshots), disk, self._swapped)
        self._kept = self._steps = 0  # how much there is to do

    def run(self, batch: Batch) -> None:
        """Carry a batch out, or leave everything as it was. Raises `DeployError`."""
        name = batch.snapshot.id
        with _told(self._home.staging / name):
            with self._swap.staging(name) as stage:
                rows = self._stage(batch, stage)
                rows.append(self._record(batch, rows, stage))
            self._swap.run(name, rows, keep=True)

    def recover(self) -> list[str]:
        """Finish or undo what an interrupted command left, and say so. Raises `DeployError`."""
        with _told(self._home.journal):
            recovered = self._swap.recover()
        if recovered is None:
            return []
        outcome = "finished" if recovered.finished else "undone"
        return [f"an interrupted deploy ({recovered.id}) was {outcome}", *recovered.left]

    def _stage(self, batch: Batch, stage: str) -> list[Row]:
        self._swap.make(f"{stage}/backup")
        self._swap.make(f"{stage}/state")
        self._disk.create(f"{stage}/origin.json", json.dumps(batch.origin).encode(), 0o644)
        self._kept, self._steps = len(batch.kept), len(batch.steps)
        tick = max(1, (self._kept + self._steps) // 100)
        first_copy: dict[tuple[str, bool], str] = {}
        staged: dict[tuple[str, str], str] = {}
        kept = [((output.root.target, output.path), output.blob) for output in batch.kept]
        kept += [((step.target, step.path), step.blob) for step in batch.steps if step.blob]
        for number, (place, blob) in enumerate(kept):
            if place not in staged:
                staged[place] = f"state/{copy_name(*place)}"
                self._keep(f"{stage}/{staged[place]}", blob, first_copy)
            if number % tick == 0:
                total = self._kept + 2 * self._steps
                self._report(number, total, "keeping a copy of every file")
        return [self._row(step, stage, staged) for step in batch.steps]

    def _keep(self, place: str, blob: Blob, first_copy: dict[tuple[str, bool], str]) -> None:
        """Store a copy; the same content twice is one file with two names."""
        self._swap.make(os.path.dirname(place))
        key = (blob.sha256, blob.executable)
        if key in first_copy and self._swap.linked(first_copy[key], place):
            return
        self._disk.create(place, blob.read(), 0o755 if blob.executable else 0o644)
        first_copy[key] = place

    def _row(self, step: Step, stage: str, staged: dict[tuple[str, str], str]) -> Row:
        before, backup = None, None
        if step.before_sha256 is not None:
            before = find(step.path)
            if before is None or before.sha256 != step.before_sha256:
                raise changed(step.path)
            backup = f"backup/{copy_name(step.target, step.path)}"
            self._swap.back_up(step.path, before, f"{stage}/{backup}")
        if step.blob is None:
            return Row(step.path, before, None, backup)
        after = new_state(step, step.blob, before)
        return Row(step.path, before, after, backup, staged[step.target, step.path])

    def _record(self, batch: Batch, rows: list[Row], stage: str) -> Row:
        """The snapshot's record, which names where the backups will be."""
        backups = f"{self._home.snapshots}/{batch.snapshot.id}"
        changes = [
            SnapshotChange(
                step.target,
                step.op,
                step.path,
                f"{backups}/{row.backup}" if row.backup else None,
                row.before.sha256 if row.before else None,
                row.after.sha256 if row.after else None,
            )
            for step, row in zip(batch.steps, rows, strict=True)
        ]
        listed = {change.path for change in changes}
        changes += [change for change in batch.snapshot.changes if change.path not in listed]
        done = replace(batch.snapshot, changes=tuple(changes), backup_root=f"{backups}/backup")
        record = indented(done.document())
        self._disk.create(f"{stage}/record.json", record, 0o644)
        after = State("file", hashlib.sha256(record).hexdigest(), 0o644, exact=False)
        return Row(f"{backups}.json", None, after, None, "record.json", moved=True)

    def _swapped(self, number: int) -> None:
        if number % max(1, self._steps // 100) == 0:
            done = self._kept + self._steps
            self._report(done + number, done + self._steps, "writing the files")


def pending(home: Home) -> str | None:
    """The id of a transaction that is under way or was cut short. Raises `DeployError`."""
    with _told(home.journal):
        journal = Journal.load(home.journal)
    return journal.id if journal else None


@contextmanager
def _told(place: Path) -> Iterator[None]:
    """The errors of the system and of a swap as errors of deploy."""
    try:
        yield
    except OSError as error:
        raise DeployError.io(error.filename or place, error) from error
    except SwapError as error:
        raise _failure(error) from error


def _failure(error: SwapError) -> DeployError:
    if error.kind == "changed":
        return DeployError.because("changed_meanwhile", str(error), path=error.path)
    if error.kind == "stuck":
        return DeployError.because(
            "recovery_pending",
            f"an interrupted deploy could be neither finished nor undone: {error};"
            " remove the cause, the next deploy or rollback tries again",
            journal=error.path,
        )
    if error.kind == "undone_in_part":
        message = f"the deploy failed and was undone, but {error}"
        return DeployError.because("undone_in_part", message, left=list(error.left))
    return DeployError.because(
        "journal_unreadable",
        f"the journal of an interrupted deploy cannot be read: {error.path}; move it away to go on,"
        f" the backups are under {os.path.dirname(error.path)}",
        path=error.path,
    )
