"""Takes over what agentpack deployed: its snapshots say what this home wrote, and over what.

Both programs may take turns on one home, so every snapshot that is newer than the record is
accounted for, once. Where the record itself was lost, these are all of them, ours too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet_agentpack.deploy.event import Event, EventRow, stored_event
from fleet_agentpack.deploy.model import Root
from fleet_agentpack.deploy.ownership import Draft, Entry, Holder, Origin, Record, RecordFile
from fleet_agentpack.deploy.snapshots import Snapshot, SnapshotChange, SnapshotStore
from fleet_agentpack.kit.stamps import Remembered


@dataclass(frozen=True)
class Ownership:
    """The record as of now, with places of contents that are in old snapshots only."""

    record: Record
    sources: Mapping[str, str] = field(default_factory=dict)  # by hash
    is_stored: bool = True  # whether it is in its file just so


@dataclass
class OwnershipReader:
    """Reads the record and brings it up to date with the snapshots; writes nothing."""

    file: RecordFile
    snapshots: SnapshotStore
    _caught_up: Remembered[Ownership] = field(default_factory=Remembered)

    def now(self) -> Ownership:
        """The record as of now. Raises `DeployError`."""
        record = self.file.load()
        newer = self.snapshots.after(record.through)
        if not newer:
            return Ownership(record)
        paths = [self.snapshots.home.snapshots / f"{each}.json" for each in newer]
        return self._caught_up.get(lambda: self._account(record, newer), self.file.path, *paths)

    def _account(self, record: Record, newer: list[str]) -> Ownership:
        sources: dict[str, str] = {}
        for snapshot_id in newer:
            try:
                snapshot = self.snapshots.load(snapshot_id)
            except ValueError:
                continue
            if snapshot.kind in ("deploy", "bootstrap", "rollback"):
                event = stored_event(self.snapshots, snapshot_id)
                record = _with(record, snapshot, event or Event(), sources)
        return Ownership(record, sources, is_stored=False)


def _with(record: Record, snapshot: Snapshot, event: Event, sources: dict[str, str]) -> Record:
    """The record after one more snapshot."""
    draft, rows = Draft(record), {row.path: row for row in event.rows}
    for root in snapshot.roots:
        holder = _holder(record, root, event)
        files = {file.path: file.sha256 for file in snapshot.files_of(root.target, root.dir)}
        known = record.by_holder.get(holder)
        for path in known.by_path if known else ():
            if path not in files:
                draft.put(holder, path, None)
        for path, sha256 in files.items():
            entry = draft.entry(holder, path)
            if entry is None:
                change = snapshot.change_of(root.target, path)
                row = rows.get(path)
                entry = Entry(sha256, snapshot.id, _origin(change, row, sha256, sources))
            draft.put(holder, path, entry._replace(sha256=sha256))
        manifest = known.manifest if known else None
        row = rows.get(root.manifest_path)
        draft.put_manifest(holder, _manifest(snapshot, root, row, manifest, sources))
    for root in snapshot.emptied:
        for holding in record.of_root(root.target, root.dir):
            draft.put_manifest(holding.holder, None)
            for path in holding.by_path:
                draft.put(holding.holder, path, None)
    return draft.done(snapshot.id, made=_directories(snapshot))


def _directories(snapshot: Snapshot) -> list[str]:
    """The directories below the roots that hold files; whoever made them, they were for these."""
    found: dict[str, None] = {}
    for root in snapshot.roots:
        for file in snapshot.files_of(root.target, root.dir):
            directory = os.path.dirname(file.path)
            while len(directory) > len(root.dir) and directory not in found:
                found[directory] = None
                directory = os.path.dirname(directory)
    return list(found)


def _holder(record: Record, root: Root, event: Event) -> Holder:
    """Whoever holds a root alone; agentpack does not say for which pack it deployed."""
    for target, directory, scope in event.roots if event.pack else ():
        if (target, directory) == root[:2]:
            return Holder(event.pack, target, directory, scope)
    known = [holding.holder for holding in record.of_root(root.target, root.dir)]
    return known[0] if len(known) == 1 else Holder("", root.target, root.dir, "")


def _manifest(
    snapshot: Snapshot,
    root: Root,
    row: EventRow | None,
    known: Entry | None,
    sources: dict[str, str],
) -> Entry:
    change = snapshot.change_of(root.target, root.manifest_path)
    sha256 = (change.after_sha256 if change else None) or ""
    if known is not None:
        return known._replace(sha256=sha256)
    return Entry(sha256, snapshot.id, _origin(change, row, sha256, sources) if change else None)


def _origin(
    change: SnapshotChange | None, row: EventRow | None, sha256: str, sources: dict[str, str]
) -> Origin | None:
    """What a snapshot replaced when it took a path; no change means that it was there already."""
    if row is not None and row.held is not None:
        return row.held.origin
    if row is not None:
        if row.before is not None and change is not None and change.backup_path is not None:
            sources[row.before.sha256] = change.backup_path
        return Origin.of(row.before)
    if change is None:
        return Origin("file", sha256, 0o644)
    if change.op != "update" or change.backup_path is None or change.before_sha256 is None:
        return None
    try:
        mode = stat.S_IMODE(os.stat(change.backup_path).st_mode)
    except OSError:
        return None
    sources[change.before_sha256] = change.backup_path
    return Origin("file", change.before_sha256, mode)
