"""Plan and drift: pure comparisons of a survey."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

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
    recorded: str | None  # the hash that was last written here, None when the path is not managed
    module_ids: tuple[str, ...]
    update_kind: Maybe[str] = UNKNOWN

    @property
    def target(self) -> str:
        """The target that it is a change of."""
        return self.root.target

    @property
    def adopts(self) -> bool:
        """Whether it overwrites a file that agentpack did not write."""
        return self.update_kind == "adopt_update"

    @property
    def edited_by_hand(self) -> bool:
        """Whether the file is not as it was written; an absent one has no edit to lose."""
        return None not in (self.before, self.recorded) and self._was_touched

    @property
    def cause(self) -> Maybe[results.Cause]:
        """Whether the pack has moved, the file was edited, or both; unknown where neither shows."""
        if self.recorded is None:
            return UNKNOWN if self.adopts else "pack_moved"
        moved = self.output is None or self.output.blob.sha256 != self.recorded
        if self._was_touched:
            return "both" if moved else "edited"
        return "pack_moved" if moved else UNKNOWN

    @property
    def _was_touched(self) -> bool:
        return (self.before.sha256 if self.before else None) != self.recorded

    @property
    def row(self) -> results.ChangeRow:
        """The change as an answer shows it; written for speed, since there may be very many."""
        root, op, path, before, output, reason, _, module_ids, kind = self
        blob = output.blob if output else None
        return results.ChangeRow(
            True if kind == "adopt_update" else UNKNOWN,
            blob.sha256 if blob else None,
            before.sha256 if before else None,
            True if before and self.edited_by_hand else UNKNOWN,
            blob.layer if blob else UNKNOWN,
            module_ids or UNKNOWN,
            op,
            path,
            posix(path),
            reason,
            root.target,
            kind,
        )


@dataclass(frozen=True)
class Plan:
    """All changes, by target and path."""

    changes: Sequence[Change]
    kept: Sequence[Change] = ()  # deletes that are not made, because somebody edited the file
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> results.ChangeCounts:
        """How many of each operation."""
        return results.ChangeCounts(**Counter[str](change.op for change in self.changes))

    @property
    def adopted(self) -> list[Change]:
        """The changes that would overwrite files that agentpack did not write."""
        return [c for c in self.changes if c.op == "update" and c.adopts]

    @property
    def edited(self) -> list[Change]:
        """The changes that would overwrite what somebody edited."""
        return [c for c in self.changes if c.op == "update" and c.edited_by_hand]

    @property
    def deletes(self) -> list[Change]:
        """The files that would go."""
        return [change for change in self.changes if change.op == "delete"]


def plan_id(rows: Iterable[results.ChangeRow]) -> str:
    """The same for the same changes, and only for them."""
    facts = list(map(_FACTS, rows))
    try:
        text = msgspec.json.encode(facts)
    except UnicodeEncodeError:  # a name that is no text
        text = repr(facts).encode()
    return hashlib.sha256(text).hexdigest()[:16]


_FACTS = attrgetter("after_sha256", "before_sha256", "op", "path", "target")


def plan(survey: Survey) -> Plan:
    """What an apply would do."""
    changes: list[Change] = []
    kept: list[Change] = []
    for target in sorted(survey.desired.outputs):
        gone = list(_deletes(survey, target))
        kept += [change for change in gone if change.edited_by_hand]
        left = (change for change in gone if not change.edited_by_hand)
        changes += sorted((*_writes(survey, target), *left), key=_path_of)
    return Plan(changes, kept, (*survey.warnings, *map(_stays, kept)))


_path_of = attrgetter("path")


def _stays(change: Change) -> str:
    return (
        f"{change.path} is no longer part of the pack but was edited by hand, so it stays;"
        " delete it yourself if you do not need it"
    )


def _writes(survey: Survey, target: str) -> Iterator[Change]:
    actual, recorded = survey.actual, survey.recorded
    for path, output in survey.desired.outputs[target].items():
        before, blob = actual[path], output.blob
        if before is None:
            written = recorded.sha256(output.root, path)
            ids, reason = output.module_ids, "file missing"
            yield Change(output.root, "create", path, None, output, reason, written, ids)
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
    root, path, ids = output.root, output.path, output.module_ids
    return Change(root, "update", path, before, output, reason, recorded, ids, kind)


def _deletes(survey: Survey, target: str) -> Iterator[Change]:
    outputs = survey.desired.outputs[target]
    for root, record in survey.recorded.by_root.items():
        if root.target != target:
            continue
        for path, sha256 in record.files.items():
            before = survey.actual.get(path) if path not in outputs else None
            if before is not None:
                ids, reason = survey.module_ids.get(path, ()), "no longer managed"
                yield Change(root, "delete", path, before, None, reason, sha256, ids)


def drift(
    survey: Survey, found: Plan, extras: Iterable[tuple[Root, str, FileState]]
) -> list[results.DriftRow]:
    """What status reports: per root the managed files by path, then the extras."""
    by_root: dict[Root, list[results.DriftRow]] = {root: [] for root in survey.roots}
    for change in (*found.changes, *found.kept):
        if change.output or survey.recorded.by_root[change.root].usable:
            by_root[change.root].append(_drift_row(change))
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


def _drift_row(change: Change) -> results.DriftRow:
    row = _row(change.root, change.path, change.output, change.before, _KINDS[change.op])
    ids = change.module_ids if change.edited_by_hand else ()
    return row._replace(
        adopts=_if_true(change.adopts), cause=change.cause, module_ids=ids or UNKNOWN
    )


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


def _if_true(fact: bool) -> Maybe[Literal[True]]:
    return True if fact else UNKNOWN


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
