"""The copies that agentpack finds in a snapshot: below `state`, a name for every managed content.

agentpack looks them up by path, in one flat directory per target, so that a snapshot needs a name
for each file, whether it changed or not. Twelve thousand links take half as long as the whole
deploy of one file, so where there are very many, the newest snapshot takes them over from the one
before, and only those that differ are made. agentpack still gets to an earlier
snapshot: it undoes what came after it, from the backups. Nothing here needs these copies.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from fleet_agentpack.deploy.batch import Batch, Kept
from fleet_agentpack.deploy.event import stored_kind
from fleet_agentpack.deploy.model import copy_name
from fleet_agentpack.deploy.snapshots import ManagedFile, Snapshot, SnapshotStore
from fleet_agentpack.kit.disk import Disk

MANY = 2000  # a snapshot of no more files than these has all its copies for good

_WHOLE, _CHANGED, _MOVING = "state", "changed", "moving"  # directories of a snapshot


@dataclass(frozen=True)
class Copies:
    """The copies of a new snapshot: all, or in what they differ from those of the one before."""

    made: Sequence[Kept]
    source: str = ""  # the directory that they are taken over from
    gone: Sequence[str] = ()  # names in it that are not needed any longer

    @property
    def directory(self) -> str:
        """Where the new ones are made, below the snapshot's directory."""
        return _CHANGED if self.source else _WHOLE

    def take_over(self, disk: Disk, snapshot: str) -> None:
        """Complete a snapshot that has taken place. A kill leaves one without copies, no harm."""
        if not self.source:
            return
        changed, moving = f"{snapshot}/{_CHANGED}", f"{snapshot}/{_MOVING}"
        with suppress(OSError):
            disk.rename(self.source, moving)
            for target in os.listdir(changed):
                if not os.path.isdir(f"{moving}/{target}"):
                    disk.make_directory(f"{moving}/{target}", 0o700)
                for name in os.listdir(f"{changed}/{target}"):
                    disk.rename(f"{changed}/{target}/{name}", f"{moving}/{target}/{name}")
            for name in self.gone:
                disk.remove(f"{moving}/{name}")
            disk.remove_tree(changed)
            disk.rename(moving, f"{snapshot}/{_WHOLE}")


def copies_of(batch: Batch, store: SnapshotStore) -> Copies:
    """The copies that the snapshot of a batch needs."""
    before = _last_deploy(store) if len(batch.kept) > MANY else None
    if before is None:
        return Copies(batch.kept)
    old, new = _differing(before.managed_files, batch.snapshot.managed_files)
    differ = {(file.target, file.path) for file in new - old}
    paths = {path for _, path in differ}
    made = [kept for kept in batch.kept if kept[1] in paths and kept[:2] in differ]
    gone = {(file.target, file.path) for file in old - new} - {kept[:2] for kept in made}
    gone |= {(root.target, root.manifest_path) for root in before.roots}
    gone -= {(step.target, step.path) for step in batch.steps if step.is_manifest}
    source = str(store.directory(before.id) / _WHOLE)
    return Copies(made, source, [copy_name(*place) for place in sorted(gone)])


def _differing(
    old: Sequence[ManagedFile], new: Sequence[ManagedFile]
) -> tuple[set[ManagedFile], set[ManagedFile]]:
    """The files of both, without most of those that are the same; there are very many."""
    if len(old) == len(new):
        pairs = [
            (one, other)
            for one, other in zip(old, new, strict=True)
            if one is not other and one != other
        ]
        old, new = [one for one, _ in pairs], [other for _, other in pairs]
    return set(old), set(new)


def _last_deploy(store: SnapshotStore) -> Snapshot | None:
    """The last snapshot, if it is a deploy of ours that has all its copies."""
    try:
        last = store.load(store.ids()[-1])
    except (IndexError, ValueError):
        return None
    has_copies = (store.directory(last.id) / _WHOLE).is_dir()
    return last if has_copies and stored_kind(store, last.id) == "deploy" else None
