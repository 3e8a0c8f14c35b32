"""What each apply did, path by path: the state before and after, and who held the path before.

It lies beside the copies of a snapshot, in a file that is ours alone. For a snapshot of agentpack,
which has none, it is made from the snapshot's own list of changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from fleet_agentpack.deploy.hashes import hash_at
from fleet_agentpack.deploy.ownership import Entry, Holder
from fleet_agentpack.deploy.snapshots import Snapshot, SnapshotChange, SnapshotStore, check_paths
from fleet_agentpack.kit.disk import State, find

FILE_NAME = "event.json"
UNDO_PREFIX = "before-"  # and a snapshot's id: the state before it

Kind = Literal["deploy", "rollback", "undo", "uninstall"]


class EventRow(NamedTuple):
    """What happened to one path."""

    path: str
    target: str
    root: str
    scope: str
    before: State | None
    after: State | None
    held: Entry | None = None  # its entry in the record before
    is_manifest: bool = False
    is_known: bool = True  # whether the state before is known
    source: str = ""  # where its content before is, if not among the home's contents
    pack: str = ""  # whose file it is; an uninstall takes back those of several packs

    @property
    def holder(self) -> Holder:
        """Whose file it is."""
        return Holder(self.pack, self.target, self.root, self.scope)


class _OnlyKind(msgspec.Struct):
    kind: str


@dataclass(frozen=True)
class Event:
    """One apply, rollback, undo or uninstall."""

    kind: Kind = "deploy"
    pack: str = ""
    project: str | None = None
    roots: tuple[tuple[str, str, str], ...] = ()  # target, directory, scope
    rows: tuple[EventRow, ...] = ()
    modes: Mapping[str, int] = field(default_factory=dict)  # of files that are not simply 0644
    undone: tuple[str, ...] = ()  # the snapshots that this one took back
    bytes: int = 0  # that the state grew by
    id: str = ""
    is_ours: bool = True

    @property
    def undo_id(self) -> str | None:
        """What a rollback takes to bring back the state before."""
        return f"{UNDO_PREFIX}{self.id}" if self.is_ours else None


def load_event(store: SnapshotStore, snapshot: Snapshot) -> Event:
    """What a snapshot did."""
    found = stored_event(store, snapshot.id)
    return found if found is not None else _derived(store, snapshot)


def stored_event(store: SnapshotStore, snapshot_id: str) -> Event | None:
    """The event that was stored with a snapshot, if it can be read."""
    try:
        data = (store.directory(snapshot_id) / FILE_NAME).read_bytes()
        found = msgspec.json.decode(data, type=Event)
        check_paths(row.path for row in found.rows)
    except (OSError, ValueError, RecursionError):
        return None
    return found


def stored_kind(store: SnapshotStore, snapshot_id: str) -> str:
    """What kind of event was stored with a snapshot; empty where there is none."""
    try:
        data = (store.directory(snapshot_id) / FILE_NAME).read_bytes()
        return msgspec.json.decode(data, type=_OnlyKind).kind
    except (OSError, ValueError, RecursionError):
        return ""


def _derived(store: SnapshotStore, snapshot: Snapshot) -> Event:
    kind: Kind = "rollback" if snapshot.kind == "rollback" else "deploy"
    earlier = _Earlier(store, snapshot)
    rows = [row for change in snapshot.changes if (row := _row(snapshot, change, earlier))]
    roots = tuple((root.target, root.dir, "") for root in (*snapshot.roots, *snapshot.emptied))
    project = store.project_of(snapshot.id)
    return Event(kind, "", project, roots, tuple(rows), id=snapshot.id, is_ours=False)


def _row(snapshot: Snapshot, change: SnapshotChange, earlier: _Earlier) -> EventRow | None:
    root = snapshot.root_of(change.target, change.path)
    if root is None:
        return None
    removes = change.op in ("delete", "rollback_delete")
    sha256 = change.after_sha256 or snapshot.hash_of(change.target, change.path) or ""
    after = None if removes else State("file", sha256, 0o644, exact=False)
    held = earlier.entry(root, change)
    if change.op.startswith("rollback_"):  # its backup is of what it restored
        before, source = earlier.copy(root, change, held)
        known = before is not None or (held is None and not change.before_sha256)
    else:
        before, source = _backup(change.backup_path), change.backup_path or ""
        known = before is not None or change.op == "create"
    place = change.path, change.target, root, ""
    source = source if before is not None else ""
    return EventRow(*place, before, after, held, change.is_manifest, known, source)


class _Earlier:
    """What was deployed before a snapshot of agentpack, which says so only in part."""

    def __init__(self, store: SnapshotStore, snapshot: Snapshot) -> None:
        self._store = store
        ids = store.ids()
        self._ids = ids[: ids.index(snapshot.id)]
        self._newest: dict[tuple[str, str], Snapshot | None] = {}  # of each root

    def entry(self, root: str, change: SnapshotChange) -> Entry | None:
        """The entry that a path had; the record knows since when, and what stood there before."""
        found = self._of(change.target, root)
        if found is None:
            return None
        if change.is_manifest:
            written = found.change_of(change.target, change.path)
            sha256 = written.after_sha256 if written else None
        else:
            sha256 = found.hash_of(change.target, change.path)
        return Entry(sha256, found.id) if sha256 else None

    def copy(
        self, root: str, change: SnapshotChange, held: Entry | None
    ) -> tuple[State | None, str]:
        """What a path was, as far as there is a copy of it, and where that is."""
        for sha256 in filter(None, (change.before_sha256, held and held.sha256)):
            for place in self._copies(root, change, sha256):
                if os.path.isfile(place) and hash_at(place) == sha256:
                    return State("file", sha256, 0o644, exact=False), place
        return None, ""

    def _copies(self, root: str, change: SnapshotChange, sha256: str) -> Iterator[str]:
        yield f"{self._store.home.contents}/{sha256}"
        found = self._of(change.target, root)
        if found is not None:
            yield str(self._store.state_file(found.id, change.target, change.path))

    def _of(self, target: str, root: str) -> Snapshot | None:
        place = (target, root)
        if place not in self._newest:
            self._newest[place] = next(filter(_covering(place), self._loaded()), None)
        return self._newest[place]

    def _loaded(self) -> Iterator[Snapshot]:
        for snapshot_id in reversed(self._ids):
            with suppress(ValueError):
                yield self._store.load(snapshot_id)


def _covering(place: tuple[str, str]) -> Callable[[Snapshot], bool]:
    return lambda found: any(
        (root.target, root.dir) == place for root in (*found.roots, *found.emptied)
    )


def _backup(path: str | None) -> State | None:
    try:
        found = find(path) if path is not None and os.path.isfile(path) else None
    except OSError:
        return None
    return found if found is not None and found.kind == "file" else None


def undo_target(text: str) -> str | None:
    """The snapshot before which a rollback is to go, if that is what an id says."""
    return text[len(UNDO_PREFIX) :] if text.startswith(UNDO_PREFIX) else None


def first_rows(events: Sequence[Event]) -> dict[str, EventRow]:
    """For each path, what the earliest of some events did to it."""
    return last_rows(list(reversed(events)))


def last_rows(events: Sequence[Event]) -> dict[str, EventRow]:
    """For each path, what the latest of some events did to it."""
    return {row.path: row for event in events for row in event.rows}
