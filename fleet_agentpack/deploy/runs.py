"""Outputs that come one after another in every record, with what each record says about them.

Of ten thousand outputs a deploy changes a few. A run is made once for the part that it comes from,
and kept with it, so that a record is joined from what was made before and a little that is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from operator import attrgetter

import msgspec

from fleet_agentpack.deploy.indented_json import rows_text
from fleet_agentpack.deploy.model import Blob, Output
from fleet_agentpack.deploy.snapshots import ManagedFile


class ManifestRow(msgspec.Struct, frozen=True):
    """A managed file as a manifest lists it."""

    path: str
    sha256: str
    module_ids: tuple[str, ...]


class Run:
    """Outputs of one root, sorted by path; they never change."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self.outputs = outputs
        self.root = outputs[0].root
        self.first, self.last = outputs[0].path, outputs[-1].path

    @cached_property
    def in_manifest(self) -> bytes:
        """The rows of the root's own manifest."""
        start = len(self.root.path(""))
        return rows_text(
            [
                ManifestRow(path[start:], blob.sha256, module_ids)
                for _, path, blob, module_ids in self.outputs
            ]
        )

    @cached_property
    def managed(self) -> tuple[ManagedFile, ...]:
        """The files as a snapshot lists them."""
        target = self.root.target
        return tuple(ManagedFile(target, path, blob.sha256) for _, path, blob, _ in self.outputs)

    @cached_property
    def in_snapshot(self) -> bytes:
        """The rows of a snapshot's record."""
        return rows_text(self.managed)

    @cached_property
    def kept(self) -> tuple[tuple[str, str, Blob], ...]:
        """What a snapshot keeps copies of: targets, paths and contents."""
        target = self.root.target
        return tuple((target, path, blob) for _, path, blob, _ in self.outputs)

    @cached_property
    def modes(self) -> dict[str, int]:
        """The modes of files that are not simply 0644."""
        return {
            path: blob.mode for _, path, blob, _ in self.outputs if blob.executable or blob.private
        }


def runs_of(outputs: Iterable[Output]) -> list[Run]:
    """The runs of one target's outputs, in any order."""
    in_order = sorted(outputs, key=attrgetter("path"))
    return [Run(list(found)) for _, found in groupby(in_order, attrgetter("root"))]


def in_a_row(runs: Iterable[Run]) -> list[Run] | None:
    """The runs of one target by path, None where one begins before another has ended."""
    found = sorted(runs, key=attrgetter("first"))
    follow = all(one.last < other.first for one, other in pairwise(found))
    return found if follow else None
