"""What a transaction is made of: files to write or remove, copies to keep, a record to leave."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fleet_agentpack.deploy.journal import After, Before, Row
from fleet_agentpack.deploy.model import Blob


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
    record: Callable[[Sequence[Row], str], dict[str, Any]]  # from the rows and the backup directory
    origin: dict[str, Any]


def after_of(step: Step, before: Before | None) -> After:
    """What a step leaves: an updated file keeps its mode, a new one gets the usual one."""
    executable = step.blob is not None and step.blob.executable
    sha256 = step.blob.sha256 if step.blob else ""
    if step.mode is not None:
        return After(sha256, step.mode, True)
    if before is None or before.link is not None:
        return After(sha256, 0o755 if executable else 0o644, False)
    readable = (before.mode & 0o444) >> 2
    return After(sha256, before.mode | readable if executable else before.mode, True)


def missing_directories(rows: Sequence[Row]) -> list[str]:
    """The directories that the rows need and that are not there, outermost first."""
    known: dict[str, bool] = {}
    missing: list[str] = []
    for row in rows:
        directory = os.path.dirname(row.path) if row.after else "/"
        chain = []
        while directory not in known:
            known[directory] = os.path.isdir(directory)
            if known[directory]:
                break
            chain.append(directory)
            directory = os.path.dirname(directory)
        missing.extend(reversed(chain))
    return missing
