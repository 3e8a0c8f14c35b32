"""What the deploy commands say to people: plans, differences, drift, findings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fleet_agentpack.console.terminal import Paint, printable, table

if TYPE_CHECKING:
    from fleet_agentpack.deploy.compare import Change, Plan

ONLY = ("missing", "modified", "extra")
_COLOURS = {"create": "green", "update": "yellow", "delete": "red"}
_DRIFT_COLOURS = {"missing": "red", "modified": "yellow", "extra": "cyan"}


def kinds(text: str) -> list[str]:
    """A comma list of kinds of drift."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found or any(kind not in ONLY for kind in found):
        raise argparse.ArgumentTypeError(f"choose from {', '.join(ONLY)}")
    return found


def _summary(summary: dict[str, int]) -> str:
    return f"Plan: +{summary['create']} ~{summary['update']} -{summary['delete']}"


def plan_lines(paint: Paint, data: dict[str, Any]) -> list[str]:
    """The counts, then a line per change."""
    lines = [paint(_summary(data["summary"]), "bold")]
    for row in data["changes"]:
        op = paint(f"{row['op'].capitalize():<6}", _COLOURS[row["op"]])
        note = "  (not managed: needs --adopt)" if row.get("update_kind") == "adopt_update" else ""
        lines.append(f"{op} {row['target']:<11} {printable(row['path'])}{note}")
    return lines


def print_plan(paint: Paint, found: Plan, texts: Iterator[tuple[Change, str]]) -> None:
    """The counts, then every difference."""
    print(paint(_summary(found.summary), "bold"))
    print_differences(paint, found, texts)


def print_differences(paint: Paint, found: Plan, texts: Iterator[tuple[Change, str]]) -> None:
    """Every difference under a header of its own."""
    for change, text in texts:
        header = f"=== {change.target} {printable(change.path)} ==="
        print(paint(header, "bold", _COLOURS[change.op]))
        for line in text.splitlines():
            print(paint(printable(line), *_line_style(line)))
    if not found.changes:
        print("No changes")


def _line_style(line: str) -> tuple[str, ...]:
    if line.startswith(("--- ", "+++ ")):
        return ("bold",)
    styles = {"@": ("cyan",), "+": ("green",), "-": ("red",), "\\": ("dim",)}
    return styles.get(line[:1], ())


def outcome(data: dict[str, Any]) -> str:
    """What became of a deploy."""
    if data["applied"]:
        return f"Applied. Snapshot: {data['snapshot_id']}"
    return "Aborted" if data.get("reason") == "aborted" else "No changes"


def status_lines(paint: Paint, data: dict[str, Any]) -> list[str]:
    """Drift by root, and what to do about it."""
    if not data["drift"]:
        lines = ["No drift"]
    else:
        counts = data["summary"]
        lines = [paint(", ".join(f"{counts[kind]} {kind}" for kind in ONLY), "bold")]
    for group in data["summary_by_root"]:
        lines.append(paint(f"{group['target']} {printable(group['root'])}", "bold"))
        for row in data["drift"]:
            if (row["target"], row["root"]) == (group["target"], group["root"]):
                kind = paint(f"{row['kind']:<8}", _DRIFT_COLOURS[row["kind"]])
                lines.append(f"  {kind} {printable(os.path.relpath(row['path'], row['root']))}")
    if "next_actions" in data:
        lines += _next_actions(data["next_actions"])
    return lines


def doctor_lines(paint: Paint, data: dict[str, Any]) -> list[str]:
    """The roots and their state, fixes, and what to do next."""
    rows = [
        [
            row["target"],
            paint("ok", "green")
            if not row["issues"]
            else paint(", ".join(row["issues"]), "yellow"),
            printable(row["root"]),
        ]
        for row in data["roots"]
    ]
    lines = [f"Machine: {data['machine_id']}"]
    if rows:
        lines.append(table(["target", "state", "root"], rows, paint))
    for fix in data["gitignore_fixes"]:
        done = "Updated" if fix["updated"] else "Already right:"
        lines.append(f"{done} {fix['gitignore_path']}")
    if "next_actions" in data:
        lines += _next_actions(data["next_actions"])
    return lines


def _next_actions(commands: list[str]) -> list[str]:
    """Commands for people: without the flags that are for programs."""
    plain = [line.removesuffix(" --json").removesuffix(" --yes") for line in commands]
    return ["Next actions:", *(f"  {line}" for line in plain)]


def step_line(step: dict[str, Any]) -> str:
    """What one step of an update did."""
    detail = step["detail"]
    if step["name"] == "lock":
        return f"lock: {detail['modules']} module(s) in {detail['lockfile']}"
    return f"fetch: {detail['git_modules_fetched']} git module(s) in {detail['store']}"
