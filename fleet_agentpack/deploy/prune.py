"""Old snapshots: how large they are, and how to be rid of them.

Nothing is pruned by itself. What the record needs to give back stays until an uninstall.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleet_agentpack.deploy.content_store import ContentStore, stored_contents
from fleet_agentpack.deploy.disk import Disk
from fleet_agentpack.deploy.event import Event, stored_event
from fleet_agentpack.deploy.model import Blob, names_in
from fleet_agentpack.deploy.ownership import FILE_NAME
from fleet_agentpack.deploy.restoring import Past
from fleet_agentpack.deploy.snapshots import Snapshot, SnapshotStore
from fleet_agentpack.kit.files import write_atomic

KEEP = 20  # unless told otherwise
WORTH_COUNT = 100
WORTH_BYTES = 500_000_000


@dataclass(frozen=True)
class PruneRequest:
    """Which snapshots may go: all but the newest few, if they are old enough."""

    keep: int = KEEP
    older_than: timedelta | None = None

    def choose(self, snapshots: Sequence[Snapshot], now: datetime) -> list[Snapshot]:
        """The snapshots that go, oldest first; the newest one never does."""
        old = snapshots[: -max(self.keep, 1)]
        if self.older_than is None:
            return list(old)
        limit = now - self.older_than
        return [each for each in old if (made_at(each) or now) < limit]


@dataclass(frozen=True)
class Pruned:
    """What a prune removed, or would remove."""

    ids: tuple[str, ...]
    bytes: int


def made_at(snapshot: Snapshot) -> datetime | None:
    """When a snapshot was made, None if it does not say."""
    try:
        found = datetime.fromisoformat(snapshot.created_at)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def size_of(store: SnapshotStore, snapshot: Snapshot, event: Event | None) -> int:
    """The bytes that a snapshot added to the state; agentpack copies everything every time."""
    own = _size(store.home.snapshots / f"{snapshot.id}.json")
    if event is not None:
        return own + event.bytes + _size(store.directory(snapshot.id) / "event.json")
    return own + sum(map(_size, _files_below(store.directory(snapshot.id))))


def is_worth_it(count: int, total: int) -> str:
    """The advice to prune, empty while there is no need."""
    if count <= WORTH_COUNT and total <= WORTH_BYTES:
        return ""
    size = f"{total / 1e6:,.0f} MB"
    return f"{count} snapshots take {size}; `fleet-agentpack snapshots prune` removes old ones"


def would_prune(past: Past, asked: PruneRequest) -> Pruned:
    """What a prune would remove; writes nothing."""
    chosen = asked.choose(past.history.snapshots, datetime.now(UTC))
    ids = {snapshot.id for snapshot in chosen}
    unneeded = _unneeded(past, ids)
    own = sum(_own_bytes(past.store, each) for each in ids)
    return Pruned(tuple(each.id for each in chosen), own + sum(unneeded.values()))


def prune(past: Past, asked: PruneRequest, disk: Disk) -> Pruned:
    """Remove old snapshots and contents that nothing needs any longer. The caller holds the lock.

    The record is brought up to date first: it must not depend on what goes.
    """
    found = would_prune(past, asked)
    _save(past, disk)
    contents = ContentStore(past.home.contents, disk)
    unneeded = _unneeded(past, set(found.ids))
    for snapshot_id in found.ids:
        # Without its record the rest is rubbish, which the next prune would remove.
        disk.remove(str(past.home.snapshots / f"{snapshot_id}.json"))
    for stray in _strays(past.store):
        disk.remove_tree(str(stray))
    for sha256 in unneeded:
        disk.remove(contents.path(sha256))
    return found


def _save(past: Past, disk: Disk) -> None:
    """Store what was learnt from agentpack's own snapshots, with the contents that it needs."""
    place, ownership = past.home.ownership / FILE_NAME, past.ownership
    if ownership.is_stored:
        return
    for directory in (past.home.ownership, Path(past.home.contents)):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = ContentStore(past.home.contents, disk)
    store.add(Blob(sha256, False, path) for sha256, path in ownership.sources.items())
    write_atomic(place, ownership.record.encode(), mode=0o600, durable=disk.durable)


def _unneeded(past: Past, going: set[str]) -> dict[str, int]:
    """The contents that only these snapshots need, with their sizes."""
    needed = set(past.ownership.record.contents)
    for snapshot in past.history.snapshots:
        event = stored_event(past.store, snapshot.id) if snapshot.id not in going else None
        for row in event.rows if event else ():
            needed |= {state.sha256 for state in (row.before, row.after) if state}
            if row.held is not None and row.held.origin is not None:
                needed.add(row.held.origin.sha256)
        if snapshot.id not in going:
            needed |= {file.sha256 for file in snapshot.managed_files}
    found = stored_contents(past.home.contents)
    return {name: status.st_size for name, status in found if name not in needed}


def _own_bytes(store: SnapshotStore, snapshot_id: str) -> int:
    """The bytes of a snapshot's files that have no other name."""
    paths = [store.home.snapshots / f"{snapshot_id}.json"]
    return sum(map(_size, paths)) + sum(
        status.st_size
        for path in _files_below(store.directory(snapshot_id))
        if (status := path.lstat()).st_nlink == 1
    )


def _strays(store: SnapshotStore) -> Iterator[Path]:
    """Directories of snapshots that have no record."""
    known = set(store.ids())
    for name in names_in(store.home.snapshots):
        path = store.home.snapshots / name
        if name not in known and path.is_dir():
            yield path


def _files_below(directory: Path) -> Iterator[Path]:
    for place, _, names in os.walk(directory):
        yield from (Path(place, name) for name in names)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
