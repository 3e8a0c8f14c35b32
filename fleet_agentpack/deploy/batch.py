"""What a transaction is made of: files to write or remove, copies to keep, a record to leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet_agentpack.deploy.event import Event
from fleet_agentpack.deploy.model import Blob
from fleet_agentpack.deploy.ownership import Entry, Holder, Record
from fleet_agentpack.deploy.snapshots import Snapshot
from fleet_agentpack.kit.disk import State


class Step(NamedTuple):
    """One file to write (`blob`), link to make (`link`), or either to remove."""

    holder: Holder
    op: str
    path: str
    before_sha256: str | None
    blob: Blob | None
    mode: int | None = None  # exactly this one; else what was there, or the usual
    link: str | None = None
    held: Entry | None = None  # its entry in the record before
    is_manifest: bool = False

    @property
    def target(self) -> str:
        """The target that it is a step for."""
        return self.holder.target

    @property
    def removes(self) -> bool:
        """Whether nothing is there when it is done."""
        return self.blob is None and self.link is None


# A target's file that the snapshot keeps a copy of, because it is managed from now on.
Kept = tuple[str, str, Blob]


class Claim(NamedTuple):
    """A path whose entry changes though the file stays as it is."""

    holder: Holder
    path: str
    state: State | None
    held: Entry | None


Files = Mapping[str, State | None]  # what was found at the paths of the steps


@dataclass(frozen=True)
class Batch:
    """A transaction to be."""

    snapshot: Snapshot  # without what the steps change, which is known once they are staged
    steps: Sequence[Step]
    kept: Sequence[Kept]
    event: Event  # without its rows
    record: Callable[[Files, Sequence[str]], Record]  # from these, and the directories made
    claims: Sequence[Claim] = ()
    contents: Sequence[Blob] = ()  # to be stored as well
    emptied: Sequence[str] = field(default=())  # directories that the steps leave empty
    listed: Sequence[bytes] = ()  # the managed files in the snapshot's record, if made before


def new_state(step: Step, before: State | None) -> State | None:
    """What a step leaves: an updated file keeps its mode, a new one gets the usual one."""
    if step.link is not None:
        return State("link", "", 0o777, step.link)
    blob = step.blob
    if blob is None:
        return None
    if step.mode is not None:
        return State("file", blob.sha256, step.mode)
    if before is None or before.link is not None:
        return State("file", blob.sha256, blob.mode, exact=False)
    readable = (before.mode & 0o444) >> 2
    return State("file", blob.sha256, before.mode | readable if blob.executable else before.mode)
