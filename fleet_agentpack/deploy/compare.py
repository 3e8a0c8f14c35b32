"""Plan and drift: pure comparisons of a survey."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from fleet_agentpack.deploy import results
from fleet_agentpack.deploy.errors import DeployError, both_ways
from fleet_agentpack.deploy.model import FileState, Output, Root, posix
from fleet_agentpack.deploy.ownership import Entry, Origin
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
    given_back: Origin | None = None  # what stood here before, where that comes back
    is_relinked: bool = False  # whether somebody put a link where a file was written

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
        return self.is_relinked or (self.before.sha256 if self.before else None) != self.recorded

    @property
    def row(self) -> results.ChangeRow:
        """The change as an answer shows it; written for speed, since there may be very many."""
        root, op, path, before, output, reason, _, module_ids, kind, back, _ = self
        blob = output.blob if output else None
        facts = (
            True if kind == "adopt_update" else UNKNOWN,
            blob.sha256 if blob else back.sha256 if back else None,
            before.sha256 if before else None,
            True if before and self.edited_by_hand else UNKNOWN,
            blob.layer if blob else UNKNOWN,
            module_ids or UNKNOWN,
            op,
            path,
            path if os.sep == "/" else posix(path),
            reason,
            root.target,
            kind,
        )
        return tuple.__new__(results.ChangeRow, facts)


_OP_OF: Callable[[Change], str] = attrgetter("op")


@dataclass(frozen=True)
class Plan:
    """All changes, by target and path."""

    changes: Sequence[Change]
    kept: Sequence[Change] = ()  # deletes that are not made, because somebody edited the file
    warnings: tuple[str, ...] = ()
    released: Sequence[tuple[Root, str]] = ()  # no longer wanted, and left as they are

    @property
    def summary(self) -> results.ChangeCounts:
        """How many of each operation."""
        return results.ChangeCounts(**Counter[str](map(_OP_OF, self.changes)))

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
    """What an apply would do. Raises `DeployError` where another pack holds a path."""
    changes: list[Change] = []
    kept: list[Change] = []
    released: list[tuple[Root, str]] = []
    _refuse_foreign(survey)
    for target in sorted(survey.desired.outputs):
        gone = list(_goings(survey, target))
        kept += [change for change in gone if isinstance(change, Change) and change.edited_by_hand]
        left = [
            change for change in gone if isinstance(change, Change) and not change.edited_by_hand
        ]
        released += [each for each in gone if not isinstance(each, Change)]
        changes += sorted((*_writes(survey, target), *left), key=_path_of)
    return Plan(changes, kept, (*survey.warnings, *map(_stays, kept)), released)


_path_of = attrgetter("path")


def _stays(change: Change) -> str:
    return (
        f"{change.path} is no longer part of the pack but was edited by hand, so it stays;"
        " delete it yourself if you do not need it"
    )


def _refuse_foreign(survey: Survey) -> None:
    """Two packs cannot have the same file."""
    for root, record in survey.recorded.by_root.items():
        outputs = survey.desired.outputs.get(root.target, {})
        both = sorted(path for path in record.foreign if path in outputs)
        if both:
            raise _held_by_another(both, survey.recorded.place_of(record.foreign[both[0]].pack))


def _held_by_another(paths: list[str], place: str) -> DeployError:
    return DeployError(
        "E_DESIRED_STATE_CONFLICT",
        f"{len(paths)} file(s) belong to the pack in {place}, the first is {paths[0]}; two packs"
        " cannot have the same file: change one of them, or uninstall the other",
        reason="held_by_another_pack",
        advice=[f"fleet-agentpack uninstall --repo {shlex.quote(place)}"],
        pack=place,
        sample_paths=paths[:20],
        **both_ways(path=paths[0]),
    )


def _writes(survey: Survey, target: str) -> Iterator[Change]:
    actual, recorded, links = survey.actual, survey.recorded, survey.links
    new, reason = partial(tuple.__new__, Change), "file missing"  # there may be very many
    is_new = not any(each.files or each.stray for each in recorded.by_root.values())
    for output in _differing(survey.desired.outputs[target], actual):
        path = output.path
        before = actual[path]
        other = before is None or before.sha256 != output.blob.sha256
        if other and path in links and _leads_to_the_same(survey, output):
            continue
        if before is None:
            root, _, _, ids = output
            entry = None if is_new else recorded.entry(root, path)
            written = entry.sha256 if entry else None
            yield new(
                (root, "create", path, None, output, reason, written, ids, UNKNOWN, None, False)
            )
        else:
            yield _update(survey, output, before)


def _differing(
    outputs: Mapping[str, Output], actual: Mapping[str, FileState | None]
) -> list[Output]:
    """The outputs that are not on the disk as they should be; written for speed."""
    return [
        output
        for path, output in outputs.items()
        for blob in [output[2]]
        if (found := actual[path]) is None or found[0] != blob[0] or (blob[1] and not found[1])
    ]


def _leads_to_the_same(survey: Survey, output: Output) -> bool:
    """Whether a link leads to another output that has, or will have, the wanted content."""
    place = os.path.realpath(output.path)
    others = (found.get(place) for found in survey.desired.outputs.values())
    return any(other is not None and other.blob.sha256 == output.blob.sha256 for other in others)


def _update(survey: Survey, output: Output, before: FileState) -> Change:
    entry = survey.recorded.entry(output.root, output.path)
    recorded = entry.sha256 if entry else None
    shared = entry is not None and entry.is_shared and before.sha256 == recorded
    if shared and not _is_imported(survey, output):
        recorded = None  # the pack has moved on; the file is as it was found, and not ours
    if entry is None and survey.recorded.vouches(output, before.sha256):
        recorded = before.sha256
    if recorded is None:
        kind, reason = "adopt_update", "would overwrite unmanaged existing file"
    elif before.sha256 == output.blob.sha256:
        kind, reason = "managed_update", "executable bit differs"
    else:
        kind, reason = "managed_update", "content differs"
    root, path, ids = output.root, output.path, output.module_ids
    relinked = entry is not None and _is_relinked(entry, before)
    facts = (before, output, reason, recorded, ids, kind, None, relinked)
    return Change(root, "update", path, *facts)


def _is_imported(survey: Survey, output: Output) -> bool:
    """Whether a file that is as it was found is in the pack by an import, and stays in the file."""
    if survey.imported.issuperset(output.module_ids):
        return True
    found_by = survey.recorded.modules_of(output)
    return bool(found_by) and (survey.imported & set(output.module_ids)).issuperset(found_by)


def _is_relinked(entry: Entry, before: FileState) -> bool:
    """Whether there is a link now that was not there when the path was taken."""
    if before.link is None:
        return False
    return not entry.is_shared or entry.origin is None or entry.origin.link != before.link


def _goings(survey: Survey, target: str) -> Iterator[Change | tuple[Root, str]]:
    """What becomes of files that are no longer wanted: they go, something comes back, or stays."""
    outputs = survey.desired.outputs
    for root, record in survey.recorded.by_root.items():
        if root.target != target or record.files.keys() <= outputs[target].keys():
            continue
        ids = survey.recorded.module_ids(root)
        for path, entry in record.files.items():
            if path not in survey.actual or any(path in found for found in outputs.values()):
                continue
            if survey.places.is_wanted(root, path):  # another target's, by another name
                continue
            yield _going(root, path, entry, survey.actual[path], ids.get(path, ()))


def _going(
    root: Root, path: str, entry: Entry, before: FileState | None, ids: tuple[str, ...]
) -> Change | tuple[Root, str]:
    origin = entry.origin
    if origin is None:
        if before is None:
            return root, path
        facts = (before, None, "no longer managed", entry.sha256, ids, UNKNOWN, None)
        return Change(root, "delete", path, *facts, _is_relinked(entry, before))
    if _is_origin(before, origin) if before is not None else entry.is_shared:
        return root, path
    op: results.Operation = "create" if before is None else "update"
    kind: Maybe[str] = UNKNOWN if before is None else "managed_update"
    relinked = before is not None and _is_relinked(entry, before)
    reason = "no longer managed: gives back what was here before"
    return Change(root, op, path, before, None, reason, entry.sha256, ids, kind, origin, relinked)


def _is_origin(found: FileState, origin: Origin) -> bool:
    if origin.kind == "link":
        return found.link == origin.link
    return found.link is None and found.sha256 == origin.sha256


def drift(
    survey: Survey, found: Plan, extras: Iterable[tuple[Root, str, FileState]]
) -> list[results.DriftRow]:
    """What status reports: per root the managed files by path, then the extras."""
    by_root: dict[Root, list[results.DriftRow]] = {root: [] for root in survey.roots}
    for change in (*found.changes, *found.kept):
        gone = change.before and survey.recorded.by_root[change.root].usable
        if change.output or gone:
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
    kind = _KINDS[change.op] if change.output else "extra"
    row = _row(change.root, change.path, change.output, change.before, kind)
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
