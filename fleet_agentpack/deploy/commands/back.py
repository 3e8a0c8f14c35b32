"""The commands that go back: rollback, undo, uninstall; and the list of snapshots."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from fleet_agentpack.console.ask import ask
from fleet_agentpack.console.command import Console
from fleet_agentpack.console.progress import progress
from fleet_agentpack.console.row import Row
from fleet_agentpack.console.table import Table
from fleet_agentpack.deploy import results
from fleet_agentpack.deploy.commands.parts import open_deploy, require_yes
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.kit.results import Unknown

if TYPE_CHECKING:
    from fleet_agentpack.deploy.uninstall import UninstallRequest

Preview = results.Envelope[results.RollbackPreview]


def rollback(console: Console) -> None:
    """Go back to a snapshot, or to before one."""
    back, to = open_deploy(console).back, console.arguments.to
    if console.arguments.dry_run:
        _show(console, back.preview(to))
        return
    require_yes(console, "rollback")
    with progress(lines=False) as told:
        answer = back.rollback(to, told)
    console.answer(answer, [f"Rolled back to {to}. Event: {answer.data.event_snapshot_id}"])


def undo(console: Console) -> None:
    """Take back the last deploy."""
    back = open_deploy(console).back
    if not _agreed(console, "undo", back.preview_undo, "Undo this deploy?"):
        return
    with progress(lines=False) as told:
        answer = back.undo(told)
    done = answer.data
    console.answer(answer, [f"Undone: {done.rolled_back_to}. Event: {done.event_snapshot_id}"])


def uninstall(console: Console) -> None:
    """Give back everything as it was before the first deploy."""
    back, asked = open_deploy(console).back, _asked(console)
    question = "Give all of this back?"
    if not _agreed(console, "uninstall", lambda: back.preview_uninstall(asked), question):
        return
    with progress(lines=False) as told:
        answer = back.uninstall(asked, told)
    done = answer.data
    if isinstance(done.event_snapshot_id, Unknown):
        console.answer(answer, ["Nothing to uninstall"])
        return
    text = f"Uninstalled: {done.files_deleted} file(s) deleted, {done.files_restored} given back."
    console.answer(answer, [f"{text} Event: {done.event_snapshot_id}"])


def snapshots(console: Console) -> None:
    """List the snapshots, or prune them."""
    if console.arguments.action == "prune":
        _prune(console)
        return
    answer = open_deploy(console).snapshots()
    rows = [
        [
            row.id,
            row.kind + (f" to {row.rolled_back_to}" if row.rolled_back_to else ""),
            row.created_at[:19].replace("T", " "),
            str(row.files),
            f"{row.bytes / 1000:,.0f}",
            ", ".join(row.targets),
        ]
        for row in answer.data.snapshots
    ]
    headers = ["id", "kind", "created (UTC)", "files", "kB", "targets"]
    console.answer(answer, [Table(headers, rows) if rows else "No snapshots yet"])


def _prune(console: Console) -> None:
    from fleet_agentpack.deploy.prune import KEEP, PruneRequest

    given, back = console.arguments, open_deploy(console).back
    keep = given.keep if given.keep is not None else 1 if given.older_than else KEEP
    asked = PruneRequest(keep, given.older_than)
    found = back.prune(asked, dry_run=True)
    if not given.dry_run and found.data.snapshots:
        require_yes(console, "snapshots prune")
        count, size = len(found.data.snapshots), f"{found.data.bytes / 1e6:,.1f} MB"
        if not given.yes and not ask(f"Remove {count} snapshot(s), {size}?"):
            console.show("Aborted")
            return
    answer = found if given.dry_run else back.prune(asked)
    verb = "would be removed" if given.dry_run else "removed"
    text = f"{len(answer.data.snapshots)} snapshot(s) {verb}, {answer.data.bytes / 1e6:,.1f} MB"
    console.answer(answer, [text])


def days(text: str) -> timedelta:
    """An age such as `30`, `30d`, `12h` or `2w`."""
    found = re.fullmatch(r"(\d{1,5})\s*([hdw]?)", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError("give an age such as 30d, 12h or 2w")
    units = {"h": timedelta(hours=1), "w": timedelta(weeks=1)}
    return int(found[1]) * units.get(found[2], timedelta(days=1))


def count(text: str) -> int:
    """How many to keep; the newest one always stays."""
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError("give a number from 1 on")
    return int(text)


def _asked(console: Console) -> UninstallRequest:
    from fleet_agentpack.deploy.uninstall import UninstallRequest

    given = console.arguments
    if given.project and given.user:
        refused = DeployError("E_INVALID_ARGUMENTS", "choose --project or --user, or neither")
        raise refused.during("uninstall")
    scope = "project" if given.project else "user" if given.user else ""
    return UninstallRequest(given.repo, given.target, scope)


def _agreed(console: Console, command: str, preview: Callable[[], Preview], question: str) -> bool:
    """Whether to go on: with `--yes`, or when the person agrees to what is shown."""
    if console.arguments.dry_run:
        _show(console, preview())
        return False
    require_yes(console, command)
    if console.arguments.yes:
        return True
    _show(console, preview(), f"{command} would do this")
    if ask(question):
        return True
    console.show("Aborted")
    return False


def _show(console: Console, preview: Preview, note: str = "nothing was written") -> None:
    rows = [Row(f"{row.op} {row.target}", row.path) for row in preview.data.changes]
    console.answer(preview, [*rows, f"{len(rows)} change(s); {note}"])
