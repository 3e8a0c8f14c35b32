"""What a transaction is made of: files to write or remove, copies to keep, a record to leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fleet_agentpack.deploy.model import Blob
from fleet_agentpack.deploy.snapshots import SnapshotChange
from fleet_agentpack.kit.disk import State
from fleet_agentpack.kit.journal import Row


class Step(NamedTuple):
    """One file to write (`blob`) or to remove (no blob)."""

    target: str
    op: str
    path: str
    before_sha256: str | None
    blob: Blob | None
    mode: int | None = None  # exactly this one; else what was there, or the usual


class Kept(NamedTuple):
    """A file that the snapshot keeps a copy of."""

    target: str
    path: str
    blob: Blob


@dataclass(frozen=True)
class Batch:
    """A transaction to be: its steps, what its snapshot keeps, and the record that completes it."""

    id: str
    steps: Sequence[Step]
    kept: Sequence[Kept]
    record: Callable[[Sequence[SnapshotChange], str], dict[str, object]]  # from changes and backups
    origin: dict[str, Any]


def new_state(step: Step, blob: Blob, before: State | None) -> State:
    """What a step leaves: an updated file keeps its mode, a new one gets the usual one."""
    if step.mode is not None:
        return State("file", blob.sha256, step.mode)
    if before is None or before.link is not None:
        return State("file", blob.sha256, 0o755 if blob.executable else 0o644, exact=False)
    readable = (before.mode & 0o444) >> 2
    return State("file", blob.sha256, before.mode | readable if blob.executable else before.mode)


def change_of(step: Step, row: Row, snapshot: str) -> SnapshotChange:
    """A step as the snapshot in this directory records it."""
    return SnapshotChange(
        step.target,
        step.op,
        step.path,
        f"{snapshot}/{row.backup}" if row.backup else None,
        row.before.sha256 if row.before else None,
        row.after.sha256 if row.after else None,
    )
