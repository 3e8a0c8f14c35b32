"""Commands about the pack itself: add, remove, outdated, explain, overlay and watch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from fleet_agentpack.console.ask import confirm
from fleet_agentpack.console.command import Console, Line
from fleet_agentpack.console.editor import open_editor
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.progress import progress
from fleet_agentpack.console.row import Row
from fleet_agentpack.console.table import Table
from fleet_agentpack.deploy.commands import report
from fleet_agentpack.deploy.commands.parts import line
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request

if TYPE_CHECKING:
    from fleet_agentpack.deploy.results import DriftRow
    from fleet_agentpack.deploy.service import DeployService
    from fleet_agentpack.deploy.upkeep_results import (
        OutdatedRow,
        OverlayRow,
        RebaseReport,
        SectionRow,
    )

Handler = Callable[[Console, "DeployService", Request], int | None]

_TYPES = ("instructions", "skill", "prompt", "command")
_OVERLAYS = ("global", "machine", "project")
_ROUND_S = 0.5  # two looks with the same result, this far apart, and the tree has come to rest


def add_arguments(parser: Parser, name: str) -> None:
    """Declare the arguments of one of these commands."""
    if name == "add":
        parser.add_argument("type", choices=_TYPES)
        source = "local:PATH or git:URL#ref=REF&subdir=DIR"
        parser.add_argument("source", metavar="SOURCE", help=source)
        parser.add_argument("--id", default="", help="the module's id (TYPE:NAME)")
        parser.add_argument("--tags", type=_list, default=(), metavar="TAG[,TAG]")
        parser.add_argument("--targets", type=_list, default=(), metavar="TARGET[,TARGET]")
        parser.add_argument("--scope", choices=("user", "project"), default="")
    elif name == "remove":
        parser.add_argument("module", metavar="ID", help="the module to take out")
    elif name == "explain":
        parser.add_argument("path", metavar="PATH", help="a deployed file")
    elif name == "overlay":
        parser.add_argument("action", choices=("list", "path", "edit", "rebase"))
        parser.add_argument("module", nargs="?", default="", metavar="ID", help="the module")
        parser.add_argument("--scope", choices=_OVERLAYS, default="global")
        parser.add_argument("--sparse", action="store_true", help="edit: copy no files into it")
        parser.add_argument(
            "--sparsify", action="store_true", help="rebase: drop files that change nothing"
        )


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def run_add(console: Console, service: DeployService, request: Request) -> None:
    """Add a module to the manifest."""
    from fleet_agentpack.deploy.module_entries import NewEntry

    given = console.arguments
    entry = NewEntry(given.type, given.source, given.id, given.tags, given.targets, given.scope)
    answer = service.upkeep.add(request, entry)
    next_line = f"Next: {line(request, 'plan')} shows what it deploys."
    lines = [f"Added {answer.data.module_id}", next_line]
    console.answer(answer, lines)


def run_remove(console: Console, service: DeployService, request: Request) -> None:
    """Take a module out of the manifest."""
    answer = service.upkeep.remove(request, console.arguments.module)
    lines = [
        f"Removed {answer.data.module_id}; its files stay in the repo",
        f"Next: {line(request, 'plan')} shows what a deploy would take away.",
    ]
    console.answer(answer, lines)


def run_outdated(console: Console, service: DeployService, request: Request) -> int:
    """Compare pinned git modules with their refs; exits with 1 if one has moved."""
    with progress(lines=False) as told:
        answer = service.upkeep.outdated(request, told)
    found = answer.data.modules
    table = Table(["module", "ref", "pinned", "newest", ""], [_outdated_row(row) for row in found])
    console.answer(answer, [table if found else "No git modules"])
    return int(any(row.outdated for row in found))


def _outdated_row(row: OutdatedRow) -> list[str]:
    note = row.problem if isinstance(row.problem, str) else "outdated" if row.outdated else ""
    return [row.module_id, row.ref, (row.pinned or "-")[:12], (row.newest or "-")[:12], note]


def run_explain(console: Console, service: DeployService, request: Request) -> None:
    """Say which module and layer each line of a file comes from."""
    path = os.path.join(os.getcwd(), os.path.expanduser(console.arguments.path))
    answer = service.explain(request, path)
    data = answer.data
    is_covered = any(isinstance(each.edit_in, str) for each in data.sections)
    heads = ["lines", "module", "layer", "file", *(["edit in"] if is_covered else [])]
    rows = [_section_row(each, with_edit=is_covered) for each in data.sections]
    head = f"{data.path}: {data.target}, {data.scope}, {data.state}"
    console.answer(answer, [head, Table(heads, rows)])


def _section_row(row: SectionRow, *, with_edit: bool) -> list[str]:
    cells = [f"{row.first_line}-{row.last_line}", row.module_id, row.layer, row.file]
    edit_in = row.edit_in if isinstance(row.edit_in, str) else ""
    return [*cells, edit_in] if with_edit else cells


def run_overlay(console: Console, service: DeployService, request: Request) -> int | None:
    """List, find, make or rebase overlays."""
    given, overlays = console.arguments, service.overlays
    if given.action != "list" and not given.module:
        raise DeployError("E_INVALID_ARGUMENTS", f"overlay {given.action} needs a module's ID")
    if given.action == "list":
        found = overlays.list(request)
        rows = [_overlay_row(each) for each in found.data.overlays]
        table = Table(["module", "scope", "kind", "files", "behind", "directory"], rows)
        console.answer(found, [table if rows else "No overlays"])
    elif given.action == "path":
        place = overlays.path(request, given.module, given.scope)
        console.answer(place, [place.data.overlay_dir])
    elif given.action == "edit":
        made = overlays.edit(request, given.module, given.scope, sparse=given.sparse)
        done = "Made" if made.data.created else "It is there already:"
        console.answer(made, [f"{done} {made.data.overlay_dir}"])
        environ = console.settings.environ
        return None if console.as_json else open_editor(environ, made.data.overlay_dir)
    else:
        rebased = overlays.rebase(request, given.module, given.scope, sparsify=given.sparsify)
        console.answer(rebased, _rebase_lines(rebased.data.report, rebased.data.dry_run))
        return int(bool(rebased.data.report.conflicts))
    return None


def _overlay_row(row: OverlayRow) -> list[str]:
    behind = ", ".join(row.drift) or "-"
    return [row.module_id, row.scope, row.overlay_kind, str(row.files), behind, row.overlay_dir]


def _rebase_lines(found: RebaseReport, dry_run: bool) -> Iterator[Line]:
    kinds = {
        "updated": found.updated,
        "deleted": found.deleted,
        "skipped": found.skipped,
        "conflict": found.conflicts,
    }
    for kind, names in kinds.items():
        for name in names:
            yield Row((kind,), name)
    yield "Nothing was written" if dry_run else "The overlay is up to date"


def run_watch(console: Console, service: DeployService, request: Request) -> None:
    """Deploy what changes in the pack, and report drift, until Ctrl-C."""
    if console.as_json:
        raise DeployError("E_INVALID_ARGUMENTS", "watch prints no JSON; use status --json")
    deploys = not console.arguments.dry_run
    if deploys and not console.arguments.yes:
        question = "Deploy every change of the pack from now on, until Ctrl-C?"
        deploys = confirm(question, lambda why: DeployError("E_CONFIRM_REQUIRED", why))
    console.show("Watching. Ctrl-C ends it.")
    watch = _Watch(console, service, request, deploys)
    while True:
        watch.look()
        time.sleep(_ROUND_S)


def _moved(row: DriftRow) -> bool:
    return row.cause == "pack_moved" and row.adopts is not True


class _Watch:
    """Looks again and again; says something only when a change has come to rest."""

    def __init__(
        self, console: Console, service: DeployService, request: Request, deploys: bool
    ) -> None:
        self._console = console
        self._service = service
        self._request = request
        self._deploys = deploys
        self._seen = ""
        self._told = ""

    def look(self) -> None:
        """One round."""
        try:
            found = self._service.status(self._request)
        except DeployError as error:
            self._say(error.message, [error.message])
            return
        drift = [row for row in found.data.drift if row.kind != "extra"]
        state = repr([(row.path, row.actual, row.expected) for row in drift])
        settled, self._seen = state == self._seen, state
        if not settled or state == self._told:
            return
        if self._deploys and any(map(_moved, drift)) and self._deploy():
            return
        lines = report.status_lines(self._console.paint, found.data) if drift else ["No drift"]
        self._say(state, lines)

    def _deploy(self) -> bool:
        """Deploy what moved and nobody edited; whether something was."""
        from fleet_agentpack.deploy.following import only_moved

        try:
            done = self._service.deploy_part(self._request, only_moved)
        except DeployError as error:
            self._say(self._seen, [error.message])
            return True
        if done.data.applied is not True:
            return False
        self._console.show(*report.plan_lines(self._console.paint, done.data))
        self._console.show(report.outcome(done.data))
        self._told = ""
        return True

    def _say(self, state: str, lines: Iterable[Line]) -> None:
        if state != self._told:
            self._console.stream(lines)
        self._told = state


RUN: dict[str, Handler] = {
    "add": run_add,
    "remove": run_remove,
    "outdated": run_outdated,
    "explain": run_explain,
    "overlay": run_overlay,
    "watch": run_watch,
}
