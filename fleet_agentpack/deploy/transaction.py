"""Carries out a batch as one swap that leaves a snapshot; see `kit.swap` for what a kill leaves.

Contents go into the home's store first. The stage's `snapshot` becomes the snapshot's directory:
in `state` a name for every managed content (see `copies`), in `backup` for what was replaced, and
what happened in `event.json`. The record of ownership and the snapshot's own record are put in
place last.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import msgspec

from fleet_agentpack.deploy import event
from fleet_agentpack.deploy.batch import Batch, Step, new_state
from fleet_agentpack.deploy.content_store import ContentStore
from fleet_agentpack.deploy.copies import Copies, copies_of
from fleet_agentpack.deploy.disk import Disk, find
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.event import EventRow
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.indented_json import indented, with_rows
from fleet_agentpack.deploy.model import Blob, copy_key, copy_name, safe_name
from fleet_agentpack.deploy.ownership import FILE_NAME
from fleet_agentpack.deploy.snapshots import SnapshotChange
from fleet_agentpack.deploy.takeover import OwnershipReader
from fleet_agentpack.kit.disk import State, read
from fleet_agentpack.kit.files import sync_directory
from fleet_agentpack.kit.journal import Journal, Row, SwapError, changed, missing_directories
from fleet_agentpack.kit.swap import Area, Swap

_PATH_OF = attrgetter("path")

Report = Callable[[float, float | None, str], None]

_KEPT = "snapshot"  # the part of the stage that is kept


def silent(_done: float, _total: float | None, _text: str) -> None:
    """Progress without a listener."""


class Transaction:
    """Runs batches on a disk. The caller holds the home's lock."""

    def __init__(self, home: Home, disk: Disk, report: Report, known: OwnershipReader) -> None:
        self._home = home
        self._disk = disk
        self._report = report
        self._known = known
        self._swap = Swap(Area(home.journal, home.staging, home.snapshots), disk, self._swapped)
        self._contents = ContentStore(home.contents, disk)
        self._kept = self._steps = 0  # how much there is to do

    def run(self, batch: Batch) -> None:
        """Carry a batch out, or leave everything as it was. Raises `DeployError`."""
        name = batch.snapshot.id
        with _told(self._home.staging / name):
            copies = copies_of(batch, self._known.snapshots)
            with self._swap.staging(name) as stage:
                self._make_private()
                rows = self._stage(batch, copies, stage)
                rows.append(self._ownership(batch, rows, stage))
                self._note(batch, rows, stage)
                rows.append(self._record(batch, rows, stage))
                if self._home.durable:
                    sync_directory(self._contents.directory)
            self._swap.run(name, rows, keep=_KEPT, emptied=batch.emptied)
            copies.take_over(self._disk, f"{self._home.snapshots}/{name}")

    def recover(self) -> list[str]:
        """Finish or undo what an interrupted command left, and say so. Raises `DeployError`."""
        with _told(self._home.journal):
            recovered = self._swap.recover()
        if recovered is None:
            return []
        outcome = "finished" if recovered.finished else "undone"
        return [f"an interrupted deploy ({recovered.id}) was {outcome}", *recovered.left]

    def _make_private(self) -> None:
        """Directories of ours that nobody else may look into."""
        for directory in (str(self._home.ownership), self._contents.directory):
            if not os.path.isdir(directory):
                self._swap.make(os.path.dirname(directory))
                self._disk.make_directory(directory, 0o700)

    def _stage(self, batch: Batch, copies: Copies, stage: str) -> list[Row]:
        kept = f"{_KEPT}/{copies.directory}"
        for directory in (_KEPT, f"{_KEPT}/backup", kept, "before"):
            self._disk.make_directory(f"{stage}/{directory}", 0o700)
        self._steps = len(batch.steps)
        self._keep_contents(batch, copies)
        staged = []
        for step in batch.steps:
            place = self._contents.path(step.blob.sha256) if step.blob else None
            if step.blob and step.is_manifest:  # as good as unique, so not among the contents
                place = f"{kept}/{copy_name(step.target, step.path)}"
                self._swap.make(os.path.dirname(f"{stage}/{place}"))
                self._disk.create(f"{stage}/{place}", step.blob.read(), 0o600)
            staged.append(place)
        self._link_copies(copies, f"{stage}/{kept}")
        return [
            self._row(step, number, place, stage)
            for number, (step, place) in enumerate(zip(batch.steps, staged, strict=True))
        ]

    def _keep_contents(self, batch: Batch, copies: Copies) -> None:
        stored = self._contents.names() if copies.source else frozenset[str]()
        blobs = [*batch.contents, *(blob for _, _, blob in copies.made)]
        if copies.source:
            blobs += [blob for _, _, blob in batch.kept if blob[0] not in stored]
        blobs += [step.blob for step in batch.steps if step.blob and not step.is_manifest]
        self._kept = len(blobs)
        total, tick = self._kept + self._steps, max(1, len(blobs) // 50)
        for start in range(0, len(blobs), tick):
            self._report(start, total, "keeping a copy of every file")
            self._contents.add(blobs[start : start + tick])

    def _link_copies(self, copies: Copies, place: str) -> None:
        """Give managed contents their names in the snapshot, for agentpack to find."""
        by_target: dict[str, list[tuple[str, str]]] = {}
        for target, path, blob in copies.made:
            by_target.setdefault(target, []).append((blob.sha256, copy_key(path)))
        for target, pairs in by_target.items():
            directory = f"{place}/{safe_name(target)}"
            self._swap.make(directory)
            self._link_all(directory, pairs)

    def _link_all(self, directory: str, pairs: Sequence[tuple[str, str]]) -> None:
        done = 0
        while done < len(pairs):
            done += self._disk.link_many(self._contents.directory, directory, pairs[done:])
            if done < len(pairs):  # it has too many names already, or there are no links here
                sha256, name = pairs[done]
                data = read(self._contents.path(sha256))
                self._disk.create(f"{directory}/{name}", data, 0o600)
                done += 1

    def _row(self, step: Step, number: int, staged: str | None, stage: str) -> Row:
        before, backup = find(step.path), None
        if not _is_expected(step, before):
            raise changed(step.path)
        if before is not None:
            backup = f"before/{number}"
            self._swap.back_up(step.path, before, f"{stage}/{backup}")
            self._keep_backup(step, before, stage)
        return Row(step.path, before, new_state(step, before), backup, staged)

    def _keep_backup(self, step: Step, before: State, stage: str) -> None:
        """The copy of what is replaced that stays in the snapshot."""
        if not before.sha256:
            return  # a link that leads nowhere
        place = f"{stage}/{_KEPT}/backup/{copy_name(step.target, step.path)}"
        self._swap.make(os.path.dirname(place))
        if step.is_manifest and step.held is not None:  # as good as unique
            self._disk.create(place, read(step.path), 0o600)
            return
        self._contents.add([Blob(before.sha256, False, step.path)])
        self._link_all(os.path.dirname(place), [(before.sha256, os.path.basename(place))])

    def _ownership(self, batch: Batch, rows: Sequence[Row], stage: str) -> Row:
        """The record of ownership, which goes with the files."""
        made = missing_directories(rows)
        found = {row.path: row.before for row in rows}
        record = batch.record(found, made)
        data = record.encode()
        self._disk.create(f"{stage}/ownership.json", data, 0o600)
        path = str(self._home.ownership / FILE_NAME)
        before = self._recorded(path)
        backup = "before/ownership" if before else None
        if before is not None:
            self._swap.back_up(path, before, f"{stage}/{backup}")
        after = State("file", hashlib.sha256(data).hexdigest(), 0o600)
        self._known.file.last.expect(after.sha256, record)
        return Row(path, before, after, backup, "ownership.json")

    def _recorded(self, path: str) -> State | None:
        """The stored record as the new one was made from it; the swap sees whether it still is."""
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return None
        known = self._known.file.last.sha256
        if known and stat.S_ISREG(status.st_mode):
            return State("file", known, stat.S_IMODE(status.st_mode))
        return find(path)

    def _note(self, batch: Batch, rows: Sequence[Row], stage: str) -> None:
        """What happens, for the one who wants it undone."""
        done = [
            EventRow(
                step.path,
                *step.holder[1:],
                row.before,
                row.after,
                step.held,
                step.is_manifest,
                source=self._backup_of(batch, step) if step.is_manifest else "",
                pack=step.holder.pack,
            )
            for step, row in zip(batch.steps, rows, strict=False)
        ]
        done += [
            EventRow(path, *holder[1:], state, state, held, pack=holder.pack)
            for holder, path, state, held in batch.claims
        ]
        noted = replace(
            batch.event, id=batch.snapshot.id, rows=tuple(done), bytes=self._contents.added
        )
        data = msgspec.json.encode(noted)
        self._disk.create(f"{stage}/{_KEPT}/{event.FILE_NAME}", data, 0o600)

    def _record(self, batch: Batch, rows: Sequence[Row], stage: str) -> Row:
        """The snapshot's record, which names where the backups will be."""
        touched = {step.path for step in batch.steps}
        managed = touched.intersection(map(_PATH_OF, batch.snapshot.managed_files))
        changes = []
        for step, row in zip(batch.steps, rows, strict=False):
            # What is given back is no longer managed, which agentpack calls a delete.
            stays = step.path in managed or step.is_manifest or batch.snapshot.kind == "rollback"
            before, after = row.before, row.after if stays else None
            changes.append(
                SnapshotChange(
                    step.target,
                    step.op if stays else "delete",
                    step.path,
                    self._backup_of(batch, step) if before and before.sha256 else None,
                    (before.sha256 or None) if before else None,
                    (after.sha256 or None) if after else None,
                )
            )
        listed = {change.path for change in changes}
        changes += [change for change in batch.snapshot.changes if change.path not in listed]
        place = f"{self._home.snapshots}/{batch.snapshot.id}"
        done = replace(batch.snapshot, changes=tuple(changes), backup_root=f"{place}/backup")
        document, rows_made = done.document(), batch.listed
        record = (
            with_rows(document, "managed_files", rows_made) if rows_made else indented(document)
        )
        self._disk.create(f"{stage}/record.json", record, 0o600)
        after = State("file", hashlib.sha256(record).hexdigest(), 0o600, exact=False)
        if done.managed_files:
            self._known.snapshots.last.expect(after.sha256, done)
        return Row(f"{place}.json", None, after, None, "record.json", moved=True)

    def _backup_of(self, batch: Batch, step: Step) -> str:
        """Where the copy of what a step replaces will be."""
        copy = copy_name(step.target, step.path)
        return f"{self._home.snapshots}/{batch.snapshot.id}/backup/{copy}"

    def _swapped(self, number: int) -> None:
        if number < self._steps and number % max(1, self._steps // 100) == 0:
            total = self._kept + self._steps
            self._report(self._kept + number, total, "writing the files")


def _is_expected(step: Step, found: State | None) -> bool:
    """Whether a path is as it was planned for; a link to nowhere was seen as nothing."""
    if step.before_sha256 is None:
        return found is None or (found.link is not None and not found.sha256)
    return found is not None and found.sha256 == step.before_sha256


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
