"""Plan and drift: pure comparisons of a survey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from fleet_agentpack.deploy import results
from fleet_agentpack.deploy.model import FileState, Output, Root, posix
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.kit.results import UNKNOWN, Maybe


class Change(NamedTuple):
    """One difference between the disk and the desired state."""

    root: Root
    op: results.Operation
    path: str
    before: FileState | None
    output: Output | None  # None for a delete
    reason: str
    update_kind: Maybe[str] = UNKNOWN
    edited_by_hand: bool = False

    @property
    def target(self) -> str:
        """The target that it is a change of."""
        return self.root.target

    @property
    def row(self) -> results.ChangeRow:
        """The change as an answer shows it."""
        return results.ChangeRow(
            self.output.blob.sha256 if self.output else None,
            self.before.sha256 if self.before else None,
            self.op,
            self.path,
            posix(self.path),
            self.reason,
            self.target,
            self.update_kind,
        )


@dataclass(frozen=True)
class Plan:
    """All changes, by target and path."""

    changes: Sequence[Change]
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> results.ChangeCounts:
        """How many of each operation."""
        return results.ChangeCounts(**Counter[str](change.op for change in self.changes))

    @property
    def adopted(self) -> list[Change]:
        """The changes that would overwrite files that agentpack did not write."""
        return [change for change in self.changes if change.update_kind == "adopt_update"]


def plan(survey: Survey) -> Plan:
    """What an apply would do."""
    changes: list[Change] = []
    for target in sorted(survey.desired.outputs):
        changes += sorted((*_writes(survey, target), *_deletes(survey, target)), key=_path_of)
    return Plan(changes, survey.warnings)


_path_of = attrgetter("path")


def _writes(survey: Survey, target: str) -> Iterator[Change]:
    actual = survey.actual
    for path, output in survey.desired.outputs[target].items():
        before, blob = actual[path], output.blob
        if before is None:
            yield Change(output.root, "create", path, None, output, "file missing")
        elif before.sha256 != blob.sha256 or (blob.executable and not before.executable):
            yield _update(survey, output, before)


def _update(survey: Survey, output: Output, before: FileState) -> Change:
    recorded = survey.recorded.sha256(output.root, output.path)
    if recorded is None:
        kind, reason = "adopt_update", "would overwrite unmanaged existing file"
    elif before.sha256 == output.blob.sha256:
        kind, reason = "managed_update", "executable bit differs"
    else:
        kind, reason = "managed_update", "content differs"
    edited = recorded is not None and recorded != before.sha256
    return Change(output.root, "update", output.path, before, output, reason, kind, edited)


def _deletes(survey: Survey, target: str) -> Iterator[Change]:
    outputs = survey.desired.outputs[target]
    for root, record in survey.recorded.by_root.items():
        if root.target != target:
            continue
        for path, sha256 in record.files.items():
            before = survey.actual[path] if path not in outputs else None
            if before is not None:
                edited = before.sha256 != sha256
                reason = "no longer managed"
                yield Change(root, "delete", path, before, None, reason, edited_by_hand=edited)


def drift(survey: Survey, extras: Iterable[tuple[Root, str, FileState]]) -> list[results.DriftRow]:
    """What status reports: per root the managed files by path, then the extras."""
    by_root: dict[Root, list[results.DriftRow]] = {root: [] for root in survey.roots}
    for change in plan(survey).changes:
        if change.output or survey.recorded.by_root[change.root].usable:
            by_root[change.root].append(
                _row(change.root, change.path, change.output, change.before, _KINDS[change.op])
            )
    for rows in by_root.values():
        rows.sort(key=lambda row: row.path.split("/"))
    for root, path, state in extras:
        by_root[root].append(_row(root, path, None, state, "extra"))
    return [row for rows in by_root.values() for row in rows]


_KINDS: dict[results.Operation, results.DriftKind] = {
    "create": "missing",
    "update": "modified",
    "delete": "extra",
}


def _row(
    root: Root, path: str, output: Output | None, found: FileState | None, kind: results.DriftKind
) -> results.DriftRow:
    return results.DriftRow(
        f"sha256:{found.sha256}" if found else None,
        f"sha256:{output.blob.sha256}" if output else None,
        kind,
        path,
        posix(path),
        root.dir,
        posix(root.dir),
        root.target,
    )


def summary_of(rows: Sequence[results.DriftRow]) -> results.DriftCounts:
    """How many of each kind of drift."""
    return results.DriftCounts(**Counter[str](row.kind for row in rows))


def summary_by_root(rows: Sequence[results.DriftRow]) -> list[results.RootDrift]:
    """The same counts for each root that has any."""
    by_root: dict[tuple[str, str], list[results.DriftRow]] = {}
    for row in rows:
        by_root.setdefault((row.target, row.root), []).append(row)
    return [
        results.RootDrift(directory, posix(directory), summary_of(found), target)
        for (target, directory), found in sorted(by_root.items())
    ]
