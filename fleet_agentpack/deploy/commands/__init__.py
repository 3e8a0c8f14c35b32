"""The deploy engine on the command line: init, plan, diff, status, deploy, rollback and more."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleet_agentpack.console.ask import ask, is_attended
from fleet_agentpack.console.command import Console, Line, declare, print_json
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.progress import progress
from fleet_agentpack.deploy.actions import as_commands, doctor_as_commands, status_as_commands
from fleet_agentpack.deploy.commands import back, bring_in, pack_commands, report
from fleet_agentpack.deploy.commands.parts import line, open_deploy, require_yes
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request

if TYPE_CHECKING:
    from fleet_agentpack.deploy.compare import Plan


class _Once(argparse.Action):
    """An option that may be given only once; twice is reported as a mistake."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        seen: set[str] = getattr(namespace, "_seen", set())
        if self.dest in seen:
            parser.error(f"{option_string} was given twice")
        namespace._seen = {*seen, self.dest}
        setattr(namespace, self.dest, True if self.nargs == 0 else values)


def add(parser: Parser, name: str) -> None:
    """Add one command's arguments and its handler."""
    parser.allow_abbrev = False
    parser.example = _EXAMPLES.get(name, "")
    group = parser.add_argument_group("global flags, before or after the command")
    for flag, options in _GLOBAL_FLAGS.items():
        group.add_argument(flag, action=_Once, **options)
    for flag, options in _ARGUMENTS.get(name, {}).items():
        parser.add_argument(flag, **options)
    if name == "import":
        bring_in.add_import(parser)
    if name == "keep":
        bring_in.add_keep(parser)
    if name == "update":
        parser.add_argument("modules", nargs="*", metavar="ID", help="only these move")
    pack_commands.add_arguments(parser, name)
    for step in ("lock", "fetch") if name == "update" else ():
        choice = parser.add_mutually_exclusive_group()
        choice.add_argument(f"--{step}", action="store_true", default=None, dest=step)
        choice.add_argument(f"--no-{step}", action="store_false", default=None, dest=step)
    declare(parser, lambda console: _run(name, console))


_GLOBAL_FLAGS: dict[str, dict[str, Any]] = {
    "--repo": {"metavar": "PATH", "help": "the config repo (default: $AGENTPACK_HOME/repo)"},
    "--profile": {"default": "default", "help": "the profile that selects the modules"},
    "--target": {"default": "all", "help": "one target, or all (the default)"},
    "--machine": {"metavar": "ID", "help": "the machine whose overlays apply"},
    "--json": {"nargs": 0, "default": False, "help": "print JSON"},
    "--yes": {"nargs": 0, "default": False, "help": "write without asking"},
    "--dry-run": {"nargs": 0, "default": False, "help": "show what would be done, write nothing"},
}


def _switch(text: str) -> dict[str, str]:
    return {"action": "store_true", "help": text}


_ARGUMENTS: dict[str, dict[str, dict[str, Any]]] = {
    "init": {"--git": _switch("also make it a git repository")},
    "plan": {"--check": _switch("exit with 1 if there is anything to change")},
    "status": {
        "--check": _switch("exit with 1 if there is any drift"),
        "--only": {
            "action": "append",
            "default": [],
            "metavar": "KIND[,KIND]",
            "help": f"show only {', '.join(report.ONLY)}",
            "type": report.kinds,
        },
    },
    "doctor": {"--fix": _switch("make git ignore the target manifests")},
    "deploy": {
        "--apply": _switch("write the files, after asking"),
        "--adopt": _switch("also overwrite files that agentpack did not write, or you edited"),
        "--allow-mass-delete": _switch("also delete most files, or all of a target"),
    },
    "rollback": {"--to": {"required": True, "metavar": "ID", "help": "the snapshot to restore"}},
    "snapshots": {
        "action": {
            "nargs": "?",
            "choices": ("list", "prune"),
            "default": "list",
            "help": "list them (the default), or prune: remove old ones",
        },
        "--keep": {
            "type": back.count,
            "metavar": "N",
            "help": "prune: how many of the newest stay (20, or 1 with --older-than)",
        },
        "--older-than": {
            "type": back.days,
            "metavar": "AGE",
            "help": "prune: only those that are older, such as 30d, 12h or 2w",
        },
    },
    "uninstall": {
        "--project": _switch("only the files of this project"),
        "--user": _switch("only the user's own files"),
    },
}


_EXAMPLES = {
    "init": "--git",
    "import": "--from claude_code --dry-run",
    "plan": "--target codex",
    "diff": "--profile work",
    "keep": "AGENTS.md --to project",
    "deploy": "--apply",
    "status": "--only missing,modified",
    "rollback": "--to 1794858469376184072 --dry-run",
    "undo": "--dry-run",
    "snapshots": "prune --keep 10 --dry-run",
    "uninstall": "--project",
    "doctor": "--all",
    "add": "skill git:https://example.com/skills.git#subdir=review",
    "remove": "skill:review",
    "explain": "AGENTS.md",
    "overlay": "edit instructions:base --scope machine",
    "watch": "--dry-run",
    "update": "--no-lock",
}


_NO_DRY_RUN = ("init", "add", "remove", "lock", "fetch", "update")


def _run(name: str, console: Console) -> int | None:
    if console.arguments.dry_run and name in _NO_DRY_RUN:
        refused = DeployError("E_INVALID_ARGUMENTS", f"{name} has no dry run; drop --dry-run")
        raise refused.during(name)
    if name in ("init", "lock", "fetch"):
        require_yes(console, name)
    if name in pack_commands.RUN:
        _refuse_json_without_yes(console, name)
        request = _request(console, dry_run=console.arguments.dry_run)
        service = open_deploy(console, again_and_again=name == "watch")
        return pack_commands.RUN[name](console, service, request)
    return _COMMANDS[name](console)


def _refuse_json_without_yes(console: Console, name: str) -> None:
    given = console.arguments
    writes = name in ("add", "remove") or (name == "overlay" and given.action in ("edit", "rebase"))
    if writes and not given.dry_run:
        require_yes(console, f"{name} {given.action}" if name == "overlay" else name)


def _request(console: Console, **more: Any) -> Request:
    """What the global flags ask for."""
    given = console.arguments
    return Request(given.repo, given.profile, given.target, given.machine, **more)


def _init(console: Console) -> None:
    service, given = open_deploy(console), console.arguments
    attended = is_attended() and not console.as_json and not given.yes
    is_new = not service.upkeep.has_repo(given.repo)
    if attended and is_new and bring_in.offer_import(console, service):
        return
    bringing_in = bring_in.import_action(service, given.repo) if is_new and not attended else None
    answer = service.upkeep.init(given.repo, with_git=given.git)
    request = Request(given.repo)
    lines = [
        f"Initialized {answer.data.repo}",
        f"Next: {line(request, 'plan')} shows what it would deploy.",
    ]
    if bringing_in is not None:
        actions = as_commands([bringing_in])
        answer = replace(answer, data=replace(answer.data, next_actions=actions))
        lines.append(f"Your tools have files already: {line(request, 'import')} brings them in.")
    console.answer(answer, lines)


def _import(console: Console) -> None:
    bring_in.run_import(console, open_deploy(console))


def _keep(console: Console) -> int:
    return bring_in.run_keep(console, open_deploy(console), _request(console))


def _plan(console: Console) -> int:
    answer = open_deploy(console).plan(_request(console))
    console.answer(answer, report.plan_lines(console.paint, answer.data))
    found = console.arguments.check and bool(answer.data.changes)
    return int(found or report.is_partial(answer.data))


def _diff(console: Console) -> int | None:
    service = open_deploy(console)
    if console.as_json:
        answer = service.diff(_request(console))
        print_json(answer)
        return int(report.is_partial(answer.data))
    found = service.differences(_request(console))
    console.warn(found.warnings)
    console.page(report.differences(console.paint, found, service.texts(found)))
    return None


def _status(console: Console) -> int:
    only = tuple(dict.fromkeys(kind for kinds in console.arguments.only for kind in kinds))
    answer = open_deploy(console).status(_request(console, only=only))
    answer = replace(answer, data=status_as_commands(answer.data)) if console.as_json else answer
    console.answer(answer, report.status_lines(console.paint, answer.data))
    found = console.arguments.check and bool(answer.data.drift)
    return int(found or report.is_partial(answer.data))


def _doctor(console: Console) -> None:
    fix = console.arguments.fix and not console.arguments.dry_run
    if fix:
        require_yes(console, "doctor --fix")
    answer = open_deploy(console).doctor(_request(console), fix=fix)
    answer = replace(answer, data=doctor_as_commands(answer.data)) if console.as_json else answer
    console.answer(answer, report.doctor_lines(console.paint, answer.data))


def _deploy(console: Console) -> int | None:
    given, deploying = console.arguments, open_deploy(console)
    dry = not given.apply or given.dry_run
    allowed = {"adopt": given.adopt, "allow_mass_delete": given.allow_mass_delete}
    request = _request(console, dry_run=dry, **allowed)

    def lines(found: Plan) -> Iterator[Line]:
        return report.plan_with_differences(console.paint, found, deploying.texts(found))

    if dry and not console.as_json:
        found = deploying.differences(request)
        console.warn(found.warnings)
        console.page(lines(found))
        return None
    if console.as_json and not dry and not given.yes:
        deploying.plan(request, "deploy --apply")  # errors in the plan come first
        raise DeployError.confirm_required("deploy_apply")
    with progress(lines=False) as told:

        def approve(found: Plan) -> bool:
            told.hide()
            if given.yes or not found.changes:
                console.stream(lines(found))
                return True
            console.page(lines(found))
            return ask("Apply changes?")

        answer = deploying.deploy(request, told, None if console.as_json else approve)
    console.answer(answer, [] if dry else [report.outcome(answer.data)])
    return int(report.is_partial(answer.data))


def _lock(console: Console) -> None:
    with progress(lines=False) as told:
        answer = open_deploy(console).upkeep.lock(_request(console), told)
    done = answer.data
    console.answer(answer, [f"Locked {done.modules} module(s) in {done.lockfile}"])


def _fetch(console: Console) -> None:
    with progress(lines=False) as told:
        answer = open_deploy(console).upkeep.fetch(_request(console), told)
    done = answer.data
    console.answer(answer, [f"{done.git_modules_fetched} git module(s) in {done.store}"])


def _update(console: Console) -> None:
    given, upkeep, request = console.arguments, open_deploy(console).upkeep, _request(console)
    wanted = {"lock": given.lock, "fetch": given.fetch, "moving": tuple(given.modules)}
    if any(upkeep.update_steps(request, **wanted)):
        require_yes(console, "update")
    with progress(lines=False) as told:
        answer = upkeep.update(request, told, **wanted)
    rows = [report.step_line(step) for step in answer.data.steps]
    console.answer(answer, rows or ["Nothing to do"])


_COMMANDS: dict[str, Callable[[Console], int | None]] = {
    "init": _init,
    "import": _import,
    "keep": _keep,
    "plan": _plan,
    "diff": _diff,
    "status": _status,
    "doctor": _doctor,
    "deploy": _deploy,
    "rollback": back.rollback,
    "undo": back.undo,
    "uninstall": back.uninstall,
    "snapshots": back.snapshots,
    "lock": _lock,
    "fetch": _fetch,
    "update": _update,
}
