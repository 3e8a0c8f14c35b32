"""Snapshots: the records of what was deployed, as agentpack 0.9.1 keeps them on disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import msgspec

from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.model import MANIFEST_PREFIX, Root, copy_name, names_in, owner
from fleet_agentpack.kit.parsed import Parsed

ORIGIN_FILE = "origin.json"  # inside <id>/: written by our own earlier versions


class ManagedFile(msgspec.Struct, frozen=True, gc=False):
    """A file that a snapshot wrote."""

    target: str
    path: str
    sha256: str


class SnapshotChange(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One write or removal of a snapshot; writes of manifests are among them."""

    target: str
    op: str
    path: str
    backup_path: str | None = None
    before_sha256: str | None = None
    after_sha256: str | None = None

    @property
    def is_manifest(self) -> bool:
        """Whether this is about a root's own manifest."""
        return os.path.basename(self.path).startswith(f"{MANIFEST_PREFIX}.")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One record: a deploy, or a rollback to an earlier one."""

    kind: str = "deploy"
    id: str
    created_at: str
    targets: tuple[str, ...]
    managed_files: tuple[ManagedFile, ...] = ()
    changes: tuple[SnapshotChange, ...]
    backup_root: str = ""
    rolled_back_to: str | None = None
    lockfile_sha256: str | None = None
    lists_files: bool = True  # whether the managed files are all that there were

    @cached_property
    def roots(self) -> tuple[Root, ...]:
        """The roots whose manifests this record wrote."""
        return self._roots(removed=False)

    @cached_property
    def emptied(self) -> tuple[Root, ...]:
        """The roots whose manifests this record removed."""
        return self._roots(removed=True)

    def _roots(self, *, removed: bool) -> tuple[Root, ...]:
        return tuple(
            Root(change.target, os.path.dirname(change.path), True)
            for change in self.changes
            if change.is_manifest and (change.op in ("delete", "rollback_delete")) == removed
        )

    def files_of(self, target: str, directory: str) -> list[ManagedFile]:
        """The files that this record put into a root."""
        return self._files_by_root.get((target, directory), [])

    @cached_property
    def _files_by_root(self) -> dict[tuple[str, str], list[ManagedFile]]:
        owners: dict[tuple[str, str], Root | None] = {}  # by target and parent directory
        found: dict[tuple[str, str], list[ManagedFile]] = {}
        for file in self.managed_files:
            place = (file.target, file.path.rpartition("/")[0])
            if place not in owners:
                owners[place] = owner(self.roots, file.target, file.path)
            root = owners[place]
            if root is not None:
                found.setdefault((root.target, root.dir), []).append(file)
        return found

    def root_of(self, target: str, path: str) -> str | None:
        """The directory of the root that a path of this record belongs to."""
        found = owner((*self.roots, *self.emptied), target, path)
        return found.dir if found else None

    def hash_of(self, target: str, path: str) -> str | None:
        """The hash of a file that this record lists."""
        return self._hashes.get((target, path))

    @cached_property
    def _hashes(self) -> dict[tuple[str, str], str]:
        return {(file.target, file.path): file.sha256 for file in self.managed_files}

    def change_of(self, target: str, path: str) -> SnapshotChange | None:
        """What this record did to a path."""
        return self._changes_by_path.get((target, path))

    @cached_property
    def _changes_by_path(self) -> dict[tuple[str, str], SnapshotChange]:
        return {(change.target, change.path): change for change in self.changes}

    def document(self) -> dict[str, object]:
        """The record as it is stored."""
        managed = self.managed_files
        return {
            "kind": self.kind,
            "id": self.id,
            "created_at": self.created_at,
            "targets": list(self.targets),
            **({"managed_files": managed} if managed else {}),
            "changes": self.changes,
            **({"rolled_back_to": self.rolled_back_to} if self.rolled_back_to else {}),
            "lockfile_sha256": self.lockfile_sha256,
            "backup_root": self.backup_root,
        }


@dataclass(frozen=True)
class History:
    """All readable records, oldest first, with warnings about the others."""

    snapshots: tuple[Snapshot, ...]
    warnings: tuple[str, ...] = ()

    @cached_property
    def by_id(self) -> dict[str, Snapshot]:
        """The records by id."""
        return {snapshot.id: snapshot for snapshot in self.snapshots}

    @property
    def deploys(self) -> list[str]:
        """The ids that a rollback can go to, newest first."""
        return [found.id for found in reversed(self.snapshots) if found.kind != "rollback"]

    def since(self, snapshot_id: str) -> list[Snapshot]:
        """The records that came after one."""
        place = [snapshot.id for snapshot in self.snapshots].index(snapshot_id)
        return list(self.snapshots[place + 1 :])


@dataclass
class SnapshotStore:
    """The snapshots of an agentpack home."""

    home: Home
    last: Parsed[Snapshot] = field(default_factory=Parsed)  # records can be large

    def ids(self) -> list[str]:
        """The ids of all records, oldest first."""
        names = names_in(self.home.snapshots)
        return sorted((name[:-5] for name in names if name.endswith(".json")), key=_age)

    def new_id(self) -> str:
        """An id later than every other."""
        newest = max((_age(snapshot_id)[0] for snapshot_id in self.ids()), default=0)
        return str(max(time.time_ns(), newest + 1))

    def load(self, snapshot_id: str) -> Snapshot:
        """One record. Raises `ValueError` when it cannot be read."""
        path = self.home.snapshots / f"{snapshot_id}.json"
        try:
            return self.last.get(path, _decode)
        except OSError as error:
            raise ValueError(f"snapshot {snapshot_id} cannot be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"snapshot {snapshot_id} is not a valid record") from error

    def history(self) -> History:
        """Every readable record, and a warning for each of the others."""
        found, warnings = [], []
        for snapshot_id in self.ids():
            try:
                found.append(self.load(snapshot_id))
            except ValueError as error:
                warnings.append(f"{error} and is skipped ({self.home.snapshots})")
        return History(tuple(found), tuple(warnings))

    def state_file(self, snapshot_id: str, target: str, path: str) -> Path:
        """Where a snapshot keeps its copy of a file that it wrote."""
        return self.directory(snapshot_id) / "state" / copy_name(target, path)

    def directory(self, snapshot_id: str) -> Path:
        """A snapshot's own directory."""
        return self.home.snapshots / snapshot_id

    def project_of(self, snapshot_id: str) -> str | None:
        """The project of a snapshot, where an earlier version of ours has noted it."""
        try:
            found = json.loads((self.directory(snapshot_id) / ORIGIN_FILE).read_bytes())
            project = found.get("project_root")
        except (OSError, ValueError, AttributeError, RecursionError):
            return None
        return project if isinstance(project, str) else None

    def after(self, snapshot_id: str) -> list[str]:
        """The ids of the records that came after one, oldest first."""
        return [each for each in self.ids() if _age(each) > _age(snapshot_id)]


def now_text() -> str:
    """The time as records write it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _age(snapshot_id: str) -> tuple[int, str]:
    digits = snapshot_id.isascii() and snapshot_id.isdigit() and len(snapshot_id) < 100
    return (int(snapshot_id) if digits else 0, snapshot_id)


def _decode(data: bytes) -> Snapshot:
    """A record from its file. Raises `ValueError`."""
    found = msgspec.json.decode(data, type=Snapshot)
    check_paths(change.path for change in found.changes)
    check_paths(file.path for file in found.managed_files)
    if found.managed_files:
        return found
    written = tuple(
        ManagedFile(change.target, change.path, change.after_sha256 or "")
        for change in found.changes
        if change.op in ("create", "update") and not change.is_manifest
    )
    return replace(found, managed_files=written, lists_files=not found.changes)


def check_paths(paths: Iterable[str]) -> None:
    """Raises `ValueError` unless all are plain absolute paths: a record is only a file."""
    found = list(paths)
    in_one_piece = "\0".join(["", *found])  # there may be ten thousand
    absolute = in_one_piece.count("\0") == in_one_piece.count("\0/") == len(found)
    if absolute and "/.." not in in_one_piece:
        return
    for path in found:
        if not os.path.isabs(path) or "\x00" in path or ".." in path.split("/"):
            raise ValueError("expected a plain absolute path")
