"""Going back as a batch: files as they were, the record with them, and what is left alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fleet_agentpack.deploy.batch import Batch, Files, Kept, Step
from fleet_agentpack.deploy.disk import Reader, find
from fleet_agentpack.deploy.event import Event, EventRow, Kind
from fleet_agentpack.deploy.hashes import hash_at
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.model import Blob, Root
from fleet_agentpack.deploy.ownership import Draft, Entry, Holder, Record
from fleet_agentpack.deploy.snapshots import (
    History,
    ManagedFile,
    Snapshot,
    SnapshotChange,
    SnapshotStore,
    now_text,
)
from fleet_agentpack.deploy.takeover import Ownership
from fleet_agentpack.deploy.taking import left_empty
from fleet_agentpack.kit.disk import State

_OPS = {"rollback": ("rollback_restore", "rollback_restore", "rollback_delete")}
_PLAIN_OPS = ("create", "update", "delete")


@dataclass(frozen=True)
class Past:
    """Everything that a way back is found from."""

    home: Home
    history: History
    store: SnapshotStore
    ownership: Ownership
    reader: Reader


@dataclass
class Restoration:
    """What it takes to go back; filled path by path."""

    home: Home
    ownership: Ownership
    kind: Kind
    pack: str
    project: str | None
    to: str = ""  # where it goes back to
    steps: list[Step] = field(default_factory=list)
    edited: list[Step] = field(default_factory=list)  # those that overwrite edits made by hand
    warnings: list[str] = field(default_factory=list)
    entries: list[tuple[Holder, str, Entry | None]] = field(default_factory=list)
    manifests: list[tuple[Holder, Entry | None]] = field(default_factory=list)
    roots: dict[Holder, None] = field(default_factory=dict)
    undone: Sequence[str] = ()
    like: Snapshot | None = None  # the snapshot that it goes back to

    @property
    def deleted(self) -> list[str]:
        """The files that go."""
        files = (step for step in self.steps if not step.is_manifest)
        return [step.path for step in files if step.removes]

    @property
    def restored(self) -> list[str]:
        """The files and links that come back."""
        files = (step for step in self.steps if not step.is_manifest)
        return [step.path for step in files if not step.removes]

    @property
    def is_needless(self) -> bool:
        """Whether neither a file nor the record would change."""
        record = self.ownership.record
        return not self.steps and self.record(record.through, (), ()) == record

    def restore(
        self,
        holder: Holder,
        path: str,
        found: State | None,
        wanted: State | None,
        *,
        source: str = "",
        held: Entry | None = None,
        is_manifest: bool = False,
    ) -> Step:
        """Bring one path to a state."""
        blob, mode, link = None, None, None
        if wanted is not None and wanted.link is not None:
            link = wanted.link
        elif wanted is not None:
            place = source or f"{self.home.contents}/{wanted.sha256}"
            private = wanted.mode & 0o077 == 0
            blob = Blob(wanted.sha256, wanted.mode & 0o100 != 0, place, private=private)
            mode = wanted.mode if wanted.exact else None
        create, update, delete = _OPS.get(self.kind, _PLAIN_OPS)
        op = delete if wanted is None else update if found else create
        before = (found.sha256 or None) if found else None
        step = Step(holder, op, path, before, blob, mode, link, held, is_manifest)
        self.steps.append(step)
        return step

    def batch(self, event_id: str) -> Batch:
        """The transaction that carries it out, as a rollback to a snapshot or a deploy of its own.

        agentpack knows no other kinds.
        """
        let_go = [path for _, path, entry in self.entries if entry is None]
        let_go += [_manifest_path(holder) for holder, entry in self.manifests if entry is None]
        emptied = left_empty(self.steps, let_go, self.ownership.record.directories)
        like = self.like
        after = self.record(event_id, (), emptied)
        managed = list(self._managed(after))
        listed = tuple(ManagedFile(target, path, sha256) for target, path, sha256 in managed)
        snapshot = Snapshot(
            kind="rollback" if like else "deploy",
            id=event_id,
            created_at=now_text(),
            targets=like.targets
            if like
            else tuple(sorted({holder.target for holder in self.roots})),
            managed_files=listed,
            changes=tuple(self._manifest_changes(after)) if like else (),
            rolled_back_to=like.id if like else None,
            lockfile_sha256=like.lockfile_sha256 if like else None,
        )
        event = Event(
            self.kind,
            self.pack,
            self.project,
            tuple(holder[1:] for holder in self.roots),
            undone=tuple(self.undone),
        )
        kept = [] if like else list(self._kept(managed))
        sources = [Blob(sha, False, path) for sha, path in self.ownership.sources.items()]

        def record(_found: Files, made: Sequence[str]) -> Record:
            return self.record(event_id, made, emptied)

        return Batch(snapshot, self.steps, kept, event, record, (), sources, emptied)

    def record(self, through: str, made: Iterable[str], emptied: Iterable[str]) -> Record:
        """The record when it is done."""
        draft = Draft(self.ownership.record)
        for holder, path, entry in self.entries:
            draft.put(holder, path, entry)
        for holder, manifest in self.manifests:
            draft.put_manifest(holder, manifest)
        return draft.done(through, made=made, emptied=emptied)

    def _managed(self, after: Record) -> Iterator[tuple[str, str, str]]:
        for holder in self.roots:
            holding = after.by_holder.get(holder)
            for path, entry in sorted(holding.by_path.items()) if holding else ():
                yield holder.target, path, entry.sha256

    def _kept(self, managed: Iterable[tuple[str, str, str]]) -> Iterator[Kept]:
        """The managed files whose content is at hand; an edited one may have lost it."""
        written = {step.path for step in self.steps}
        for target, path, sha256 in managed:
            stored = f"{self.home.contents}/{sha256}"
            if os.path.isfile(stored):
                yield target, path, Blob(sha256, False, stored)
            elif path not in written and os.path.isfile(path) and hash_at(path) == sha256:
                yield target, path, Blob(sha256, False, path)

    def _manifest_changes(self, after: Record) -> Iterator[SnapshotChange]:
        for holder in self.roots:
            if holder in after.by_holder:
                place = _manifest_path(holder)
                yield SnapshotChange(holder.target, "rollback_restore", place)


def _manifest_path(holder: Holder) -> str:
    return Root(holder.target, holder.root, True).manifest_path


class RootReader:
    """What is at the paths of roots; what lies behind a link that leads out of one is not ours."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: dict[str, dict[str, bool]] = {}

    def at(self, holder: Holder, path: str) -> State | None:
        """The state of a path. Raises `DeployError`, `NotOursError` among them."""
        known = self._known.setdefault(f"{holder.target}\0{holder.root}", {})
        root = Root(holder.target, holder.root, True)
        exists = self._reader.directory(root, path.rpartition("/")[0] or "/", known)
        return find(path) if exists else None


def holds(found: State | None, known: State | None) -> bool:
    """Whether a path is as it was left; a mode may have been changed since."""
    if found is None or known is None:
        return found is known
    if known.link is not None or found.link is not None:
        return found.link == known.link
    return found.kind == known.kind and found.sha256 == known.sha256


def ends_as_it_began(first: EventRow, last: EventRow, held: Entry | None) -> bool:
    """Whether a path was given back since, so that what is there now is the user's business."""
    given_back = held is None and first.is_known and not first.is_manifest
    return given_back and holds(last.after, first.before)


def is_exactly(found: State | None, wanted: State | None) -> bool:
    """Whether a path is already as it should be, its mode too."""
    if not holds(found, wanted):
        return False
    if found is None or wanted is None or wanted.link is not None or not wanted.exact:
        return True
    return found.mode == wanted.mode
