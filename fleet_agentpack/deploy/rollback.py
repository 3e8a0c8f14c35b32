"""A rollback to a snapshot: the files are again as they were right after it.

What the snapshot lists comes from its copies. Any other path that was changed since goes back to
what it was before the first such change. Files of other packs and projects are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fleet_agentpack.deploy.disk import NotOursError
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.event import EventRow, first_rows, last_rows, load_event
from fleet_agentpack.deploy.hashes import hash_at, may_execute
from fleet_agentpack.deploy.model import Blob, Output, Root
from fleet_agentpack.deploy.ownership import Entry, Holder
from fleet_agentpack.deploy.recorded import manifest_bytes
from fleet_agentpack.deploy.restoring import (
    Past,
    Restoration,
    RootReader,
    ends_as_it_began,
    is_exactly,
)
from fleet_agentpack.deploy.runs import runs_of
from fleet_agentpack.deploy.snapshots import (
    History,
    ManagedFile,
    Snapshot,
    now_text,
)
from fleet_agentpack.deploy.undo import entry_before, holder_of, relevant, state_before
from fleet_agentpack.kit.disk import State


def choose(past: Past, snapshot_id: str) -> Snapshot:
    """The snapshot to go back to. Raises `DeployError`, which lists those that can be chosen."""
    history, store = past.history, past.store
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


def prepare_rollback(past: Past, to: Snapshot) -> Restoration:
    """Compare the disk with what it was after a snapshot. Raises `DeployError`; writes nothing."""
    return _Rollback(past, to).prepared()


class _Rollback:
    def __init__(self, past: Past, to: Snapshot) -> None:
        self._store = past.store
        self._to = to
        self._chosen = chosen = load_event(past.store, to)
        self._since = past.history.since(to.id)
        later = [load_event(past.store, each) for each in self._since]
        events = relevant(later, chosen)
        self._first, self._last = first_rows(events), last_rows(events)
        self._record = past.ownership.record
        self._roots = RootReader(past.reader)
        self._back = Restoration(
            past.home, past.ownership, "rollback", chosen.pack, chosen.project, to.id, like=to
        )
        self._left: set[Holder] = set()  # whose files could not all be restored

    def prepared(self) -> Restoration:
        listed = {file.path for file in self._to.managed_files}
        for file in self._to.managed_files:
            holder = self._holder(file)
            if holder is not None:
                self._back.roots[holder] = None
                with self._guarded(holder):
                    self._restore_listed(holder, file)
        for path, row in self._first.items():
            holder = holder_of(self._record, row)
            self._back.roots[holder] = None
            if path not in listed and not row.is_manifest:
                with self._guarded(holder):
                    self._restore_other(holder, row)
        for holder in list(self._back.roots):
            with self._guarded(holder):
                self._restore_manifest(holder)
        self._back.warnings = list(dict.fromkeys(self._back.warnings))
        return self._back

    @contextmanager
    def _guarded(self, holder: Holder) -> Iterator[None]:
        try:
            yield
        except NotOursError as error:
            self._left.add(holder)
            self._back.warnings.append(error.warning)

    def _holder(self, file: ManagedFile) -> Holder | None:
        root = self._to.root_of(file.target, file.path)
        if root is None:
            return None
        scopes = {(target, place): scope for target, place, scope in self._chosen.roots}
        holder = Holder(self._chosen.pack, file.target, root, scopes.get((file.target, root), ""))
        if self._chosen.is_ours or holder in self._record.by_holder:
            return holder
        known = [each.holder for each in self._record.of_root(file.target, root)]
        return known[0] if len(known) == 1 else holder

    def _restore_listed(self, holder: Holder, file: ManagedFile) -> None:
        """A file of the snapshot; one that is not ours by now is left alone, and named."""
        found, held = self._roots.at(holder, file.path), self._entry(holder, file.path)
        blob = self._stored(file)
        executable = blob is not None and blob.executable
        right = found is not None and found.sha256 == file.sha256 and found.link is None
        if right and found is not None and (may_execute(found.mode) or not executable):
            self._put(holder, file, held)
            return
        if blob is None:
            raise _lost(self._to.id, file.path)
        if found is not None and held is None:
            self._left.add(holder)
            self._back.warnings.append(
                f"{file.path} is not managed by agentpack and was left alone; move it away and"
                " roll back again to restore the deployed file"
            )
            return
        mode = self._chosen.modes.get(file.path, 0o755 if blob.executable else 0o644)
        wanted = State("file", file.sha256, mode, exact=False)
        step = self._back.restore(holder, file.path, found, wanted, source=blob.path, held=held)
        if found is not None and held is not None and not _is_as_written(found, held):
            self._back.edited.append(step)
        self._put(holder, file, held)

    def _put(self, holder: Holder, file: ManagedFile, held: Entry | None) -> None:
        row = self._first.get(file.path)
        entry = held or (row.held if row else None) or Entry(file.sha256, self._to.id)
        self._back.entries.append((holder, file.path, entry._replace(sha256=file.sha256)))

    def _restore_other(self, holder: Holder, row: EventRow) -> None:
        """A path that the snapshot does not list and that was changed since."""
        found, held = self._roots.at(holder, row.path), self._entry(holder, row.path)
        if ends_as_it_began(row, self._last[row.path], held):
            self._back.entries.append((holder, row.path, row.held))
            return
        wanted, source = state_before(row, held)
        if is_exactly(found, wanted):
            self._back.entries.append((holder, row.path, entry_before(row, held)))
            return
        if held is None and found is not None:
            return  # whatever it is, it is not ours
        if wanted is not None and wanted.link is None and not self._has(wanted, source):
            self._back.warnings.append(
                f"the original {row.path} cannot be restored: its copy is missing"
            )
            wanted = None
        step = self._back.restore(holder, row.path, found, wanted, source=source, held=held)
        if found is not None and held is not None and not _is_as_written(found, held):
            self._back.edited.append(step)
        self._back.entries.append((holder, row.path, entry_before(row, held)))

    def _has(self, wanted: State, source: str) -> bool:
        place = source or self._back.ownership.sources.get(wanted.sha256, "")
        return os.path.isfile(place or f"{self._back.home.contents}/{wanted.sha256}")

    def _restore_manifest(self, holder: Holder) -> None:
        root = Root(holder.target, holder.root, True)
        path = root.manifest_path
        found = self._roots.at(holder, path)
        row = self._first.get(path)
        held = self._manifest(holder)
        blob = None if holder in self._left else self._manifest_then(holder, path, row)
        if blob is None and (row is None or row.before is not None or holder in self._left):
            blob = Blob.of(_manifest_of(root, self._to, self._files_of(holder)))
        if blob is None:
            if found is not None and row is not None and row.is_known:
                self._back.restore(holder, path, found, None, held=held, is_manifest=True)
                self._back.manifests.append((holder, entry_before(row, held)))
            return
        since = held or Entry("", self._to.id)
        self._back.manifests.append((holder, since._replace(sha256=blob.sha256)))
        if found is None or found.sha256 != blob.sha256:
            step = self._back.restore(
                holder,
                path,
                found,
                State("file", blob.sha256, 0o644, exact=False),
                held=held,
                is_manifest=True,
            )
            self._back.steps[-1] = step._replace(blob=blob)

    def _manifest_then(self, holder: Holder, path: str, row: EventRow | None) -> Blob | None:
        """The manifest as it was: the snapshot's own copy, or the one that was replaced since."""
        change = self._to.change_of(holder.target, path)
        if change is not None and change.after_sha256:
            found = self._stored(ManagedFile(holder.target, path, change.after_sha256))
            if found is not None:
                return found
        if row is not None and row.before is not None and os.path.isfile(row.source):
            return Blob(row.before.sha256, False, row.source)
        return None

    def _files_of(self, holder: Holder) -> list[tuple[str, str]]:
        after = self._back.record("", (), ()).by_holder.get(holder)
        entries = after.by_path.items() if after else ()
        return sorted((path, entry.sha256) for path, entry in entries)

    def _entry(self, holder: Holder, path: str) -> Entry | None:
        holding = self._record.by_holder.get(holder)
        return holding.by_path.get(path) if holding else None

    def _manifest(self, holder: Holder) -> Entry | None:
        holding = self._record.by_holder.get(holder)
        return holding.manifest if holding else None

    def _stored(self, file: ManagedFile) -> Blob | None:
        """A file as it was at the snapshot: its copy there, or a backup from when it was replaced.

        The first versions of agentpack kept no copies, only backups.
        """
        for place in self._copies(file):
            if os.path.isfile(place) and hash_at(place) == file.sha256:
                executable = self._chosen.modes.get(file.path, 0) & 0o100 != 0
                if not self._chosen.is_ours:
                    executable = may_execute(os.stat(place).st_mode)
                return Blob(file.sha256, executable, place)
        return None

    def _copies(self, file: ManagedFile) -> Iterator[str]:
        yield str(self._store.state_file(self._to.id, file.target, file.path))
        yield f"{self._back.home.contents}/{file.sha256}"
        for later in self._since:
            change = later.change_of(file.target, file.path)
            if change is not None and change.backup_path is not None:
                yield change.backup_path


def _is_as_written(found: State, held: Entry) -> bool:
    return found.link is None and found.sha256 == held.sha256


def _lost(snapshot_id: str, path: str) -> DeployError:
    message = f"snapshot {snapshot_id} has lost its copy of {path}; choose another snapshot"
    actions = ("choose_other_snapshot",)
    return DeployError.because("snapshot_corrupt", message, next_actions=actions, path=path)


def _manifest_of(root: Root, to: Snapshot, files: Sequence[tuple[str, str]]) -> bytes:
    """A manifest for files whose modules are no longer known."""
    outputs = [Output(root, path, Blob(sha256, False, ""), ()) for path, sha256 in files]
    return manifest_bytes(root, runs_of(outputs), to.id, now_text())


def _refused(reason: str, problem: str, history: History) -> DeployError:
    return DeployError.because(reason, problem, snapshots=history.deploys[:100])
