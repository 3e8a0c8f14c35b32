"""The list of snapshots, with their sizes, and when it is worth removing old ones."""

from __future__ import annotations

from fleet_agentpack.deploy.event import stored_event
from fleet_agentpack.deploy.prune import is_worth_it, size_of
from fleet_agentpack.deploy.results import SnapshotRow, SnapshotsData
from fleet_agentpack.deploy.snapshots import Snapshot, SnapshotStore
from fleet_agentpack.kit.results import UNKNOWN


def listed(store: SnapshotStore, limit: int | None = None) -> tuple[SnapshotsData, list[str]]:
    """The snapshots, newest first, and what there is to say about them."""
    history = store.history()
    found = [_row(store, snapshot) for snapshot in reversed(history.snapshots)]
    total = sum(row.bytes for row in found)
    advice = is_worth_it(len(found), total)
    return SnapshotsData(found[:limit], total), [*history.warnings, *([advice] if advice else [])]


def pruning_advice(store: SnapshotStore) -> list[str]:
    """The advice to prune, if there is any."""
    data, _ = listed(store)
    advice = is_worth_it(len(data.snapshots), data.bytes)
    return [advice] if advice else []


def _row(store: SnapshotStore, snapshot: Snapshot) -> SnapshotRow:
    event = stored_event(store, snapshot.id)
    return SnapshotRow(
        size_of(store, snapshot, event),
        sum(not change.is_manifest for change in snapshot.changes),
        snapshot.created_at,
        len(snapshot.managed_files),
        snapshot.id,
        event.kind if event else snapshot.kind,
        snapshot.rolled_back_to,
        snapshot.targets,
        (event.undo_id if event else None) or UNKNOWN,
    )
