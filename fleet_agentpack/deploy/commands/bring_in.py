"""`import` and `keep` on the command line: what would come in, a question, and the outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fleet_agentpack.console.ask import ask, is_attended
from fleet_agentpack.console.command import Console, Line
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.row import Row
from fleet_agentpack.console.table import Table
from fleet_agentpack.deploy.actions import as_commands, call
from fleet_agentpack.deploy.commands.parts import line
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.results import Unknown

if TYPE_CHECKING:
    from fleet_agentpack.deploy.importing.results import ImportData
    from fleet_agentpack.deploy.keeping.results import KeepData
    from fleet_agentpack.deploy.results import Envelope
    from fleet_agentpack.deploy.service import DeployService

Data = TypeVar("Data", "ImportData", "KeepData")

_SHOWN = 40  # of the things that stay where they are; `--json` has all


def add_import(parser: Parser) -> None:
    """Declare the arguments of `import`."""
    parser.add_argument(
        "--from",
        dest="sources",
        nargs="+",
        default=[],
        metavar="TARGET",
        help="only what these tools have (codex, claude_code, cursor, vscode, agents, gemini)",
    )
    scope = parser.add_mutually_exclusive_group()
    for name, text in _SCOPES.items():
        scope.add_argument(f"--{name}", dest="scope", action="store_const", const=name, help=text)
    parser.set_defaults(scope="all")


_SCOPES = {
    "user": "only the files in your home",
    "project": "only the files of the project",
    "all": "both (the default)",
}


def run_import(console: Console, service: DeployService) -> None:
    """Show what an import would bring in, ask, and do it; without a terminal, only show it."""
    from fleet_agentpack.deploy.importing.importer import ImportRequest

    given = console.arguments
    writes = not given.dry_run and (given.yes or (is_attended() and not console.as_json))
    targets = given.sources or ([] if given.target == "all" else [given.target])
    request = ImportRequest(given.repo, tuple(targets), given.scope, dry_run=not writes)

    def approve(data: ImportData, warnings: Sequence[str]) -> bool:
        console.stream(_preview(data))
        console.warn(warnings)
        return given.yes or ask(f"Write {len(data.modules)} module(s) into {data.repo}?")

    answer = service.importer.run(request, None if console.as_json else approve)
    shown = answer.data.applied or answer.data.reason == "aborted"
    console.answer(
        _with_commands(console, answer),
        [*([] if shown else _preview(answer.data)), *_outcome(answer.data, given.repo)],
    )


def import_action(service: DeployService, repo: str | None) -> Action | None:
    """The import that would bring something into a new repo; None if there is nothing."""
    from fleet_agentpack.deploy.importing.importer import ImportRequest

    try:
        found = service.importer.run(ImportRequest(repo, dry_run=True)).data
    except DeployError:  # `init` works without a look at everything
        return None
    return call(Request(repo), "import_config", "import", yes=True) if found.modules else None


def offer_import(console: Console, service: DeployService) -> bool:
    """Before a new repo is made: offer to start it from what is there. Whether it was done."""
    from fleet_agentpack.deploy.importing.importer import ImportRequest

    try:
        found = service.importer.run(ImportRequest(console.arguments.repo, dry_run=True)).data
    except DeployError:  # `init` works without a look at everything
        return False
    if not found.modules:
        return False
    console.show(f"{len(found.modules)} thing(s) that your tools have already could come in:")
    console.stream(_modules(found))
    if not ask("Start the pack from these instead of from the examples?"):
        return False
    done = service.importer.run(ImportRequest(console.arguments.repo))
    console.answer(done, _outcome(done.data, console.arguments.repo))
    return True


def _with_commands(console: Console, answer: Envelope[Data]) -> Envelope[Data]:
    """An answer whose next actions are commands, for a program that reads it."""
    if not console.as_json:
        return answer
    actions = as_commands(answer.data.next_actions)
    return replace(answer, data=replace(answer.data, next_actions=actions))


def _preview(data: ImportData) -> Iterator[Line]:
    yield from _modules(data)
    if data.skipped:
        yield f"Not imported: {len(data.skipped)}"
        for each in data.skipped[:_SHOWN]:
            yield Row((f"  {each.what}",), f"{each.path}: {each.reason}")
        if len(data.skipped) > _SHOWN:
            yield f"  and {len(data.skipped) - _SHOWN} more: --json has all"
    if data.secrets:
        yield f"Secrets, which stay in your files: {len(data.secrets)}"
        for secret in data.secrets:
            yield Row(("  ",), f"{secret.path} {secret.key}".rstrip())


def _modules(data: ImportData) -> Iterator[Line]:
    if data.modules:
        rows = [
            [module.id, module.scope, ", ".join(module.targets), ", ".join(module.sources)]
            for module in data.modules
        ]
        yield Table(["module", "scope", "tools", "from"], rows)


def _outcome(data: ImportData, repo: str | None) -> Iterator[Line]:
    request = Request(repo)
    if data.applied and not isinstance(data.plan, Unknown):
        yield f"Imported {len(data.modules)} module(s) into {data.repo}"
        counts = data.plan
        if counts.create or counts.update or counts.delete:
            yield f"Next: {line(request, 'plan')} shows what a deploy would change."
        else:
            deploy = line(request, "deploy", "--apply")
            yield f"Next: {deploy}; it changes no file, and manages these."
    elif not data.modules:
        known = f"; {data.already} are in the pack already" if data.already else ""
        yield f"Nothing to import{known}"
    elif data.reason == "aborted":
        yield "Aborted; nothing was written"
    else:
        yield f"{len(data.modules)} module(s) to import; nothing was written. --yes imports them."


def add_keep(parser: Parser) -> None:
    """Declare the arguments of `keep`."""
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="deployed files, or directories of them (all)"
    )
    parser.add_argument(
        "--to",
        choices=("module", "overlay", "machine", "project"),
        help="where it goes (where it came from; an overlay, if the module is not in this repo)",
    )


def run_keep(console: Console, service: DeployService, asked: Request) -> int:
    """Show where edits would go, ask, and take them over; without a terminal, only show it."""
    from fleet_agentpack.deploy.keeping.keeper import KeepRequest

    given = console.arguments
    if console.as_json and not (given.yes or given.dry_run):
        raise DeployError.confirm_required("keep")
    writes = not given.dry_run and (given.yes or is_attended())
    request = KeepRequest(asked, tuple(given.paths), given.to, dry_run=not writes)

    def approve(data: KeepData) -> bool:
        console.stream(_kept(data))
        return given.yes or ask("Take these edits into the pack?")

    answer = service.keeper.run(request, None if console.as_json else approve)
    data = answer.data
    shown = data.applied or data.reason == "aborted"
    lines = [*([] if shown else _kept(data)), *_kept_outcome(data, asked)]
    console.answer(_with_commands(console, answer), lines)
    return int(bool(data.conflicts))


def _kept(data: KeepData) -> Iterator[Line]:
    for row in data.kept:
        yield Row((f"keep {row.module_id}",), f"{row.path} -> {row.file}")
    for conflict in data.conflicts:
        yield Row(("conflict",), f"{conflict.path}: {conflict.reason}")
        if isinstance(conflict.copy, str) and data.reason != "dry_run":
            yield Row(("  both sides:",), conflict.copy)


def _kept_outcome(data: KeepData, asked: Request) -> Iterator[Line]:
    if data.applied:
        yield f"Kept {len(data.kept)} edit(s)"
        for path in data.updated:
            yield Row(("also updated",), path)
        if not isinstance(data.next_actions, Unknown):
            yield f"Next: {line(asked, 'plan')} shows what else is waiting to be deployed."
    elif data.conflicts and data.reason != "dry_run":
        yield "Nothing was written: resolve the conflicts, or keep the other files by their paths"
    elif data.reason == "aborted":
        yield "Aborted; nothing was written"
    elif not data.kept:
        yield "No edits to keep"
    else:
        yield f"{len(data.kept)} edit(s) to keep; nothing was written. --yes keeps them."
