"""A rollback as a batch: an apply whose desired files are those of an earlier snapshot.

Each root goes back to what it held when that snapshot was made, whichever snapshot had written it.
A file that an adopt had replaced since comes back. Roots of other projects are left alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet_agentpack.deploy.batch import Batch, Step
from fleet_agentpack.deploy.disk import Reader
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import hash_at, may_execute
from fleet_agentpack.deploy.model import Blob, FileState, Output, Root
from fleet_agentpack.deploy.recorded import manifest_bytes, read_manifest
from fleet_agentpack.deploy.snapshots import (
    History,
    ManagedFile,
    Snapshot,
    SnapshotChange,
    SnapshotStore,
    now_text,
)

RootKey = tuple[str, str]  # target, directory


@dataclass(frozen=True)
class RootRollback:
    """What it takes to bring one root back to a snapshot."""

    steps: Sequence[Step]
    managed: Sequence[ManagedFile]
    edited: Sequence[Step]
    manifest: SnapshotChange | None  # None when the root held nothing then
    warnings: Sequence[str]


@dataclass(frozen=True)
class Rollback:
    """What it takes to go back to a snapshot."""

    to: Snapshot
    roots: Sequence[RootRollback]
    project_root: str | None

    @property
    def steps(self) -> list[Step]:
        """Every file to restore or delete."""
        return [step for root in self.roots for step in root.steps]

    @property
    def warnings(self) -> list[str]:
        """What is left as it is, and why."""
        return [warning for root in self.roots for warning in root.warnings]

    @property
    def edited(self) -> list[Step]:
        """The steps that overwrite edits made by hand."""
        return [step for root in self.roots for step in root.edited]

    def batch(self, event_id: str) -> Batch:
        """The transaction that carries it out."""
        event = replace(
            self.to,
            kind="rollback",
            id=event_id,
            created_at=now_text(),
            managed_files=tuple(file for root in self.roots for file in root.managed),
            changes=tuple(root.manifest for root in self.roots if root.manifest),
            rolled_back_to=self.to.id,
        )
        origin = {"project_root": self.project_root} if self.project_root else {}
        return Batch(event, self.steps, (), origin)


def choose(history: History, store: SnapshotStore, snapshot_id: str) -> Snapshot:
    """The snapshot to go back to. Raises `DeployError`, which lists those that can be chosen."""
    found = history.by_id.get(snapshot_id)
    if found is None:
        raise not_found(snapshot_id, history)
    if found.kind == "rollback":
        problem = f"{snapshot_id} records a rollback; roll back to {found.rolled_back_to} instead"
        raise _refused("snapshot_is_rollback", problem, history)
    if not found.lists_files and not (store.directory(snapshot_id) / "state").is_dir():
        problem = f"snapshot {snapshot_id} does not list its files and cannot be restored"
        raise _refused("snapshot_incomplete", problem, history)
    return found


def not_found(snapshot_id: str, history: History) -> DeployError:
    """The error for an unknown id; it lists the known ones."""
    ids = history.deploys[:20]
    known = f"choose from {', '.join(ids)}" if ids else "there are no snapshots yet"
    problem = f"snapshot {snapshot_id[:100]!r} does not exist; {known}"
    return _refused("snapshot_not_found", problem, history)


def prepare(history: History, store: SnapshotStore, to: Snapshot, reader: Reader) -> Rollback:
    """Compare the disk with what it was at a snapshot. Raises `DeployError`; writes nothing."""
    then, now = _root_states(history, to.id)
    past = _Past(history, store, to, reader)
    roots = [
        past.compare(Root(*key, scan_extras=True), then.get(key), now.get(key))
        for key in sorted({*then, *now})
        if not past.is_foreign(then.get(key), now.get(key))
    ]
    return Rollback(to, roots, store.project_of(to.id))


def _root_states(
    history: History, snapshot_id: str
) -> tuple[dict[RootKey, str], dict[RootKey, str]]:
    """Which snapshot last wrote each root: right after the given one, and now."""
    now: dict[RootKey, str] = {}
    at: dict[str, dict[RootKey, str]] = {}
    for snapshot in history.snapshots:
        keys = [(root.target, root.dir) for root in snapshot.roots]
        if snapshot.kind == "rollback":
            base = at.get(snapshot.rolled_back_to or "", {})
            now |= {key: base[key] for key in keys if key in base}
            for root in snapshot.emptied:
                now.pop((root.target, root.dir), None)
        else:
            now |= dict.fromkeys(keys, snapshot.id)
        at[snapshot.id] = dict(now)
    return at[snapshot_id], now


@dataclass(frozen=True)
class _Past:
    """What the snapshots tell about the time of one of them."""

    history: History
    store: SnapshotStore
    to: Snapshot
    reader: Reader

    def is_foreign(self, then: str | None, now: str | None) -> bool:
        """Whether a root belongs to another project, and the snapshot did not write it."""
        if then == self.to.id:
            return False
        ours, theirs = self.store.project_of(self.to.id), self.store.project_of(now or then or "")
        return ours is not None and theirs is not None and ours != theirs

    def compare(self, root: Root, then: str | None, now: str | None) -> RootRollback:
        """A root as it is now against how the snapshot `then` left it; `now` wrote it last."""
        by_id = self.history.by_id
        files = by_id[then].files_of(root.target, root.dir) if then else []
        managed = _managed_now(root, by_id[now] if now else None)
        known: dict[str, bool] = {}
        steps: list[Step] = []
        warnings: list[str] = []
        left: set[str] = set()
        for file in files:
            before = _look(self.reader, root, file.path, known)
            step = self._restored(then or "", file, before)
            if step is None:
                continue
            if before is not None and file.path not in managed:
                left.add(file.path)
                warnings.append(
                    f"{file.path} is not managed by agentpack and was left alone; move it away and"
                    " roll back again to restore the deployed file"
                )
            else:
                steps.append(step)
        later, wanted = self.history.since(self.to.id), {file.path for file in files}
        for path in managed:
            before = _look(self.reader, root, path, known) if path not in wanted else None
            if before is None:
                continue
            backup = _replaced_by_adopt(root, path, later)
            if backup is not None and not os.path.isfile(backup):
                warnings.append(f"the original {path} cannot be restored: {backup} is missing")
                backup = None
            steps.append(_given_back(root, path, before.sha256, backup))
        kept = [file for file in files if file.path not in left]
        return RootRollback(
            [*steps, *self._manifest_step(root, then, kept, whole=not left)],
            kept,
            [step for step in steps if _overwrites_edit(step, managed)],
            SnapshotChange(root.target, "rollback_restore", root.manifest_path) if then else None,
            warnings,
        )

    def _restored(self, then: str, file: ManagedFile, before: FileState | None) -> Step | None:
        """The step that restores a file, None when it is already right."""
        blob = self._stored(then, file)
        executable = blob is not None and blob.executable
        if before and before.sha256 == file.sha256 and (before.executable or not executable):
            return None
        if blob is None:
            raise _lost(then, file.path)
        sha256 = before.sha256 if before else None
        return Step(file.target, "rollback_restore", file.path, sha256, blob)

    def _stored(self, snapshot_id: str, file: ManagedFile) -> Blob | None:
        """A file as it was at a snapshot: its copy there, or the backup made when it was replaced.

        The first versions of agentpack kept no copies, only backups.
        """
        for place in self._copies(snapshot_id, file):
            if os.path.isfile(place) and hash_at(place) == file.sha256:
                return Blob(file.sha256, may_execute(os.stat(place).st_mode), place)
        return None

    def _copies(self, snapshot_id: str, file: ManagedFile) -> Iterator[str]:
        yield str(self.store.state_file(snapshot_id, file.target, file.path))
        for later in self.history.since(snapshot_id):
            change = later.change_of(file.target, file.path)
            if change is not None and change.backup_path is not None:
                yield change.backup_path

    def _manifest_step(
        self, root: Root, then: str | None, files: Sequence[ManagedFile], *, whole: bool
    ) -> Iterator[Step]:
        """The step for the root's manifest, if any; it is not whole when files were left alone."""
        path = root.manifest_path
        try:
            before = hash_at(path) if os.path.lexists(path) else None
        except DeployError:
            before = None
        if then is None:
            if before is not None:
                yield Step(root.target, "rollback_delete", path, before, None)
            return
        change = self.history.by_id[then].change_of(root.target, path)
        written = ManagedFile(root.target, path, (change and change.after_sha256) or "")
        blob = self._stored(then, written) if whole else None
        blob = blob or Blob.of(_manifest_of(root, then, files))
        if blob.sha256 != before:
            yield Step(root.target, "rollback_restore", path, before, blob)


def _look(reader: Reader, root: Root, path: str, known: dict[str, bool]) -> FileState | None:
    exists = reader.directory(root, path.rpartition("/")[0] or "/", known)
    return reader.state(path) if exists else None


def _overwrites_edit(step: Step, managed: Mapping[str, str]) -> bool:
    return step.path in managed and step.before_sha256 not in (None, managed[step.path])


def _managed_now(root: Root, snapshot: Snapshot | None) -> Mapping[str, str]:
    record = read_manifest(root, {})
    if record.usable or snapshot is None:
        return record.files
    return {file.path: file.sha256 for file in snapshot.files_of(root.target, root.dir)}


def _lost(snapshot_id: str, path: str) -> DeployError:
    message = f"snapshot {snapshot_id} has lost its copy of {path}; choose another snapshot"
    actions = ("choose_other_snapshot",)
    return DeployError.because("snapshot_corrupt", message, next_actions=actions, path=path)


def _given_back(root: Root, path: str, before: str, backup: str | None) -> Step:
    """Delete a file that was not managed then, or restore what an adopt had replaced."""
    if backup is None:
        return Step(root.target, "rollback_delete", path, before, None)
    blob = Blob(hash_at(backup), False, backup)
    mode = stat.S_IMODE(os.stat(backup).st_mode)
    return Step(root.target, "rollback_restore", path, before, blob, mode)


def _replaced_by_adopt(root: Root, path: str, later: Sequence[Snapshot]) -> str | None:
    """The file that a path held when it last became managed after a snapshot, if there was one."""
    backup, managed = None, False
    for snapshot in later:
        listed = (root.target, path) in snapshot.managed
        if listed and not managed:
            change = snapshot.change_of(root.target, path)
            replaced = change is not None and change.op in ("update", "rollback_restore")
            backup = change.backup_path if change and replaced else None
            managed = True
        elif not listed and (root.target, root.dir) in snapshot.root_keys:
            backup, managed = None, False
    return backup


def _manifest_of(root: Root, snapshot_id: str, files: Sequence[ManagedFile]) -> bytes:
    """A manifest for files whose modules are no longer known."""
    outputs = [
        Output(root, file.path, Blob(file.sha256, False, ""), ())
        for file in sorted(files, key=lambda file: file.path)
    ]
    return manifest_bytes(root, outputs, snapshot_id, now_text())


def _refused(reason: str, problem: str, history: History) -> DeployError:
    return DeployError.because(reason, problem, snapshots=history.deploys[:100])
