"""Plan and drift: pure comparisons of a survey."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from fleet_agentpack.deploy.model import FileState, Output, Root, posix
from fleet_agentpack.deploy.survey import Survey

DRIFT_KINDS = ("missing", "modified", "extra")


class Change(NamedTuple):
    """One difference between what is there and what should be."""

    target: str
    op: str  # create, update, delete
    path: str
    before: FileState | None
    output: Output | None  # None for a delete
    reason: str
    update_kind: str | None = None
    edited_by_hand: bool = False

    def payload(self) -> dict[str, Any]:
        """The change as the contract writes it."""
        before, output = self.before, self.output
        payload: dict[str, Any] = {
            "after_sha256": output.blob.sha256 if output else None,
            "before_sha256": before.sha256 if before else None,
            "op": self.op,
            "path": self.path,
            "path_posix": posix(self.path),
            "reason": self.reason,
            "target": self.target,
        }
        if self.update_kind:
            payload["update_kind"] = self.update_kind
        return payload


@dataclass(frozen=True)
class Plan:
    """All changes, by target and path."""

    changes: Sequence[Change]

    @property
    def summary(self) -> dict[str, int]:
        """How many of each kind."""
        counts = {"create": 0, "delete": 0, "update": 0}
        for change in self.changes:
            counts[change.op] += 1
        return counts

    @property
    def adopted(self) -> list[Change]:
        """The changes that would overwrite files nobody gave us."""
        return [change for change in self.changes if change.update_kind == "adopt_update"]


class Drift(NamedTuple):
    """One place where the disk is not as it should be."""

    target: str
    root: Root
    path: str
    expected: str | None
    actual: str | None
    kind: str

    def payload(self) -> dict[str, Any]:
        """The drift as the contract writes it."""
        return {
            "actual": self.actual,
            "expected": self.expected,
            "kind": self.kind,
            "path": self.path,
            "path_posix": posix(self.path),
            "root": self.root.dir,
            "root_posix": posix(self.root.dir),
            "target": self.target,
        }


def plan(survey: Survey) -> Plan:
    """What an apply would do."""
    by_target: dict[str, list[Change]] = {target: [] for target in sorted(survey.desired.outputs)}
    for target, changes in by_target.items():
        changes += _writes(survey, target)
        changes += _deletes(survey, target)
        changes.sort(key=_path_of)
    return Plan([change for changes in by_target.values() for change in changes])


_path_of = attrgetter("path")


def _writes(survey: Survey, target: str) -> Iterator[Change]:
    actual = survey.actual
    for path, output in survey.desired.outputs[target].items():
        before, blob = actual[path], output.blob
        if before is None:
            yield Change(target, "create", path, None, output, "file missing")
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
    return Change(output.root.target, "update", output.path, before, output, reason, kind, edited)


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
                yield Change(target, "delete", path, before, None, reason, None, edited)


def drift(survey: Survey, extras: Sequence[tuple[Root, str, FileState]] = ()) -> list[Drift]:
    """What status reports: per root the files that matter by path, then the extras."""
    by_root: dict[Root, list[Drift]] = {root: [] for root in survey.roots}
    for item in _differences(survey):
        by_root[item.root].append(item)
    for items in by_root.values():
        items.sort(key=lambda item: item.path.split("/"))
    for root, path, state in extras:
        by_root[root].append(_item(root, path, None, state, "extra"))
    return [item for items in by_root.values() for item in items]


def _differences(survey: Survey) -> Iterator[Drift]:
    for outputs in survey.desired.outputs.values():
        for path, output in outputs.items():
            found, blob = survey.actual[path], output.blob
            if found is None:
                yield _item(output.root, path, output, None, "missing")
            elif found.sha256 != blob.sha256 or (blob.executable and not found.executable):
                yield _item(output.root, path, output, found, "modified")
    for root, record in survey.recorded.by_root.items():
        if record.usable:
            outputs = survey.desired.outputs.get(root.target, {})
            for path in record.files:
                found = survey.actual[path] if path not in outputs else None
                if found is not None:
                    yield _item(root, path, None, found, "extra")


def _item(
    root: Root, path: str, output: Output | None, found: FileState | None, kind: str
) -> Drift:
    return Drift(
        root.target,
        root,
        path,
        f"sha256:{output.blob.sha256}" if output else None,
        f"sha256:{found.sha256}" if found else None,
        kind,
    )


def summary_of(items: Sequence[Drift]) -> dict[str, int]:
    """How many of each kind of drift."""
    counts = {"extra": 0, "missing": 0, "modified": 0}
    for item in items:
        counts[item.kind] += 1
    return counts


def summary_by_root(items: Sequence[Drift]) -> list[dict[str, Any]]:
    """The same counts for each root that has any."""
    by_root: dict[Root, list[Drift]] = {}
    for item in items:
        by_root.setdefault(item.root, []).append(item)
    return [
        {
            "root": root.dir,
            "root_posix": posix(root.dir),
            "summary": summary_of(found),
            "target": root.target,
        }
        for root, found in sorted(by_root.items(), key=lambda row: (row[0].target, row[0].dir))
    ]
