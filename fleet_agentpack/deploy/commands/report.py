"""The text output of the deploy commands: plans, diffs, drift, findings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from fleet_agentpack.console.command import Line
from fleet_agentpack.console.row import Row
from fleet_agentpack.console.table import Table
from fleet_agentpack.console.text import Paint
from fleet_agentpack.deploy import results
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.results import Maybe, Unknown

if TYPE_CHECKING:
    from fleet_agentpack.deploy.compare import Change, Plan

ONLY: tuple[results.DriftKind, ...] = get_args(results.DriftKind)
_COLOURS = {"create": "green", "update": "yellow", "delete": "red"}
_CAUSES: dict[results.Cause, str] = {
    "pack_moved": "the pack moved",
    "edited": "you edited it",
    "both": "the pack moved, and you edited it",
}
_DRIFT_COLOURS = {"missing": "red", "modified": "yellow", "extra": "cyan"}


def kinds(text: str) -> list[str]:
    """A comma list of kinds of drift."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found or any(kind not in ONLY for kind in found):
        raise argparse.ArgumentTypeError(f"choose from {', '.join(ONLY)}")
    return found


def is_partial(data: results.PlanData | results.StatusData) -> bool:
    """Whether a target had to be left out."""
    return not isinstance(data.target_errors, Unknown)


def _summary(summary: results.ChangeCounts) -> str:
    return f"Plan: +{summary.create} ~{summary.update} -{summary.delete}"


def plan_lines(paint: Paint, data: results.PlanData) -> Iterator[Line]:
    """The counts, then a line per change."""
    yield paint(_summary(data.summary), "bold")
    for row in data.changes:
        op = paint(f"{row.op.capitalize():<6}", _COLOURS[row.op])
        yield Row((op, f"{row.target:<11}"), f"{row.path}{_note(row)}")


def _note(row: results.ChangeRow) -> str:
    if row.adopts is True:
        return "  (not managed: needs --adopt)"
    return "  (edited by hand: needs --adopt)" if row.edited_by_hand is True else ""


def plan_with_differences(
    paint: Paint, found: Plan, texts: Iterator[tuple[Change, str]]
) -> Iterator[Line]:
    """The counts, then every difference."""
    yield paint(_summary(found.summary), "bold")
    yield from differences(paint, found, texts)


def differences(paint: Paint, found: Plan, texts: Iterator[tuple[Change, str]]) -> Iterator[Line]:
    """Every difference under a header of its own."""
    for change, text in texts:
        yield paint(f"=== {change.target} {change.path} ===", "bold", _COLOURS[change.op])
        for line in text.splitlines():
            yield paint(line, *_line_style(line))
    if not found.changes:
        yield "No changes"


def _line_style(line: str) -> tuple[str, ...]:
    if line.startswith(("--- ", "+++ ")):
        return ("bold",)
    styles = {"@": ("cyan",), "+": ("green",), "-": ("red",), "\\": ("dim",)}
    return styles.get(line[:1], ())


def outcome(data: results.PlanData) -> str:
    """The outcome of a deploy."""
    if data.applied is True:
        return f"Applied. Snapshot: {data.snapshot_id}"
    return "Aborted" if data.reason == "aborted" else "No changes"


def status_lines(paint: Paint, data: results.StatusData) -> Iterator[Line]:
    """Drift by root, and the next actions."""
    if data.drift:
        counts = vars(data.summary)
        yield paint(", ".join(f"{counts[kind]} {kind}" for kind in ONLY), "bold")
    else:
        yield "No drift"
    for group in data.summary_by_root:
        yield Row(paint(group.target, "bold"), group.root)
        for row in data.drift:
            if (row.target, row.root) == (group.target, group.root):
                kind = paint(f"  {row.kind:<8}", _DRIFT_COLOURS[row.kind])
                yield Row(kind, os.path.relpath(row.path, row.root) + _cause(row))
    yield from _next_actions(data.next_actions)


def _cause(row: results.DriftRow) -> str:
    if isinstance(row.cause, Unknown):
        return ""
    text = _CAUSES[row.cause]
    return f"  ({text.replace('edited', 'deleted') if row.kind == 'missing' else text})"


def doctor_lines(paint: Paint, data: results.DoctorData) -> Iterator[Line]:
    """The roots and their state, fixes, and the next actions."""
    yield f"Machine: {data.machine_id}"
    rows = [
        [
            row.target,
            paint(", ".join(row.issues), "yellow") if row.issues else paint("ok", "green"),
            row.root,
        ]
        for row in data.roots
    ]
    if rows:
        yield Table(["target", "state", "root"], rows)
    for fix in data.gitignore_fixes:
        yield f"{'Updated' if fix.updated else 'Already up to date:'} {fix.gitignore_path}"
    yield from _next_actions(data.next_actions)


def _next_actions(actions: Maybe[Sequence[Action]]) -> Iterator[Line]:
    if not isinstance(actions, Unknown):
        yield "Next actions:"
        yield from (f"  {action.for_person({})}" for action in actions)


def step_line(step: results.UpdateStep) -> str:
    """What one step of an update did."""
    done = step.detail
    if isinstance(done, results.Locked):
        return f"lock: {done.modules} module(s) in {done.lockfile}"
    return f"fetch: {done.git_modules_fetched} git module(s) in {done.store}"
