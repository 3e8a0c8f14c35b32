"""What a transaction is made of: files to write or remove, copies to keep, a record to leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fleet_agentpack.deploy.model import Blob, Output
from fleet_agentpack.deploy.snapshots import Snapshot
from fleet_agentpack.kit.disk import State


class Step(NamedTuple):
    """One file to write (`blob`) or to remove (no blob)."""

    target: str
    op: str
    path: str
    before_sha256: str | None
    blob: Blob | None
    mode: int | None = None  # exactly this one; else what was there, or the usual


@dataclass(frozen=True)
class Batch:
    """A transaction to be: its snapshot, its steps, and what the snapshot keeps a copy of."""

    snapshot: Snapshot  # without what the steps change, which is known once they are staged
    steps: Sequence[Step]
    kept: Sequence[Output]
    origin: dict[str, Any]


def new_state(step: Step, blob: Blob, before: State | None) -> State:
    """What a step leaves: an updated file keeps its mode, a new one gets the usual one."""
    if step.mode is not None:
        return State("file", blob.sha256, step.mode)
    if before is None or before.link is not None:
        return State("file", blob.sha256, 0o755 if blob.executable else 0o644, exact=False)
    readable = (before.mode & 0o444) >> 2
    return State("file", blob.sha256, before.mode | readable if blob.executable else before.mode)
