"""Undo: the state before an apply, byte for byte, whatever was deployed since.

Each path goes back to what it was before the first event that touched it from then on. What
somebody has edited since the last of them is kept, and named.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet_agentpack.deploy.disk import NotOursError
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.event import (
    UNDO_PREFIX,
    Event,
    EventRow,
    first_rows,
    last_rows,
    load_event,
    stored_event,
)
from fleet_agentpack.deploy.ownership import Entry, Holder, Record
from fleet_agentpack.deploy.restoring import (
    Past,
    Restoration,
    RootReader,
    ends_as_it_began,
    holds,
    is_exactly,
)
from fleet_agentpack.deploy.snapshots import History, SnapshotStore
from fleet_agentpack.kit.disk import State


def last_apply(store: SnapshotStore) -> str:
    """The snapshot of the last apply that was not undone yet. Raises `DeployError`."""
    undone: set[str] = set()
    for snapshot_id in reversed(store.ids()):
        found = stored_event(store, snapshot_id)
        if found is None:
            continue
        undone.update(found.undone)
        if found.kind != "undo" and snapshot_id not in undone:
            return snapshot_id
    message = "there is nothing to undo: no deploy of this home is known that was not undone"
    raise DeployError.because("nothing_to_undo", message, next_actions=("list_snapshots",))


def prepare_undo(past: Past, to: str) -> Restoration:
    """What brings back the state before a snapshot. Raises `DeployError`; writes nothing."""
    history, store, ownership = past.history, past.store, past.ownership
    chosen = stored_event(store, to)
    if chosen is None or to not in history.by_id:
        raise _cannot_undo(to, history)
    later = [load_event(store, each) for each in [history.by_id[to], *history.since(to)]]
    events = relevant(later, chosen)
    goal = f"{UNDO_PREFIX}{to}"
    back = Restoration(past.home, ownership, "undo", chosen.pack, chosen.project, goal)
    back.undone = [event.id for event in events]
    latest, roots = last_rows(events), RootReader(past.reader)
    edited = brought_back(events)
    for path, row in first_rows(events).items():
        holder = holder_of(ownership.record, row)
        back.roots[holder] = None
        held = _held_now(ownership.record, holder, row)
        if ends_as_it_began(row, latest[path], held):
            back.entries.append((holder, path, row.held))
            continue
        written = None if path in edited else latest[path].after
        try:
            _undo_path(back, holder, row, written, held, roots)
        except NotOursError as error:
            back.warnings.append(error.warning)
    back.warnings = list(dict.fromkeys(back.warnings))
    return back


def brought_back(events: Sequence[Event]) -> set[str]:
    """The paths that have an edit again: an apply overwrote it, and was undone itself."""
    seen: dict[str, State | None] = {}
    edits: dict[str, list[State]] = {}
    found: set[str] = set()
    for event in events:
        for row in event.rows:
            if row.path in seen and row.before and not holds(row.before, seen[row.path]):
                edits.setdefault(row.path, []).append(row.before)
            seen[row.path] = row.after
            again = any(holds(row.after, edit) for edit in edits.get(row.path, ()))
            (found.add if again and event.kind == "undo" else found.discard)(row.path)
    return found


def relevant(events: Sequence[Event], chosen: Event) -> list[Event]:
    """What the same pack did since: to the user's files, and in the same project."""
    found = []
    for event in events:
        if event.pack not in ("", chosen.pack) and chosen.pack:
            continue
        here = None in (event.project, chosen.project) or event.project == chosen.project
        mine = [row for row in event.rows if not chosen.pack or row.pack in ("", chosen.pack)]
        rows = tuple(row for row in mine if here or row.scope == "user")
        found.append(Event(**{**vars(event), "rows": rows}))
    return found


def holder_of(record: Record, row: EventRow) -> Holder:
    """Whose file a row is about; agentpack's own snapshots do not say."""
    if row.pack:
        return row.holder
    known = [each.holder for each in record.of_root(row.target, row.root)]
    return known[0] if len(known) == 1 else row.holder


def _undo_path(
    back: Restoration,
    holder: Holder,
    row: EventRow,
    written: State | None,
    held: Entry | None,
    roots: RootReader,
) -> None:
    found = roots.at(holder, row.path)
    untouched = found is None or holds(found, written)
    wanted, source = state_before(row, held)
    if not is_exactly(found, wanted):
        if not untouched:
            if not row.is_manifest:
                told = f"{row.path} was edited since, so it is kept as it is"
                if wanted is not None and wanted.kind == "file":
                    place = source or f"{back.home.contents}/{wanted.sha256}"
                    told += f"; what stood there before is {place}"
                back.warnings.append(told)
            return
        back.restore(
            holder,
            row.path,
            found,
            wanted,
            source=source,
            held=held,
            is_manifest=row.is_manifest,
        )
    then = entry_before(row, held)
    if row.is_manifest:
        back.manifests.append((holder, then))
    else:
        back.entries.append((holder, row.path, then))


def state_before(row: EventRow, held: Entry | None) -> tuple[State | None, str]:
    """What a path was before a row, and where its content is if not among the home's.

    What was not ours then is whatever stood there when it was taken last: the user may have
    changed it, in between.
    """
    if held is not None and (row.held is None or not row.is_known) and not row.is_manifest:
        return (held.origin.state if held.origin else None), ""
    return row.before, row.source


def entry_before(row: EventRow, held: Entry | None) -> Entry | None:
    """The entry of a path before a row; agentpack does not say what had stood there before that."""
    if row.held is None or row.held.origin is not None or row.pack or held is None:
        return row.held
    return held._replace(sha256=row.held.sha256)


def _held_now(record: Record, holder: Holder, row: EventRow) -> Entry | None:
    holding = record.by_holder.get(holder)
    if holding is None:
        return None
    return holding.manifest if row.is_manifest else holding.by_path.get(row.path)


def _cannot_undo(to: str, history: History) -> DeployError:
    known = to in history.by_id
    problem = (
        f"snapshot {to} does not say what it replaced; roll back to an earlier snapshot instead"
        if known
        else f"there is no snapshot {to[:100]!r} to undo"
    )
    reason = "snapshot_incomplete" if known else "snapshot_not_found"
    return DeployError.because(reason, problem, snapshots=history.deploys[:100])
