"""`tool info|audit|outdated|update|lock`: keeping what is installed in order."""

from __future__ import annotations

from collections.abc import Iterable

from fleet_agentpack.console.command import Commands, Console, Line
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.progress import progress
from fleet_agentpack.console.table import Table
from fleet_agentpack.enact import results
from fleet_agentpack.enact.commands.parts import EXAMPLE, agrees, message, open_service, runs
from fleet_agentpack.kit.results import UNKNOWN

MOST_VERSIONS = 8


def add(commands: Commands) -> None:
    """Declare the subcommands."""
    informed = runs(lambda s, o: s.upkeep.info(o.tool), _info)
    info = commands.add("info", "what is known of an installed tool", informed, EXAMPLE)
    info.add_argument("tool")
    audited = "ask now for vetoes and withdrawals; exits with 1 if there are any"
    _add_names(commands.add("audit", audited, _audit, ""))
    newer = "list tools with a newer version; exits with 1 if there are any"
    _add_names(commands.add("outdated", newer, _outdated, ""))
    _add_names(commands.add("update", "install newer versions", _update, EXAMPLE))
    built = "carry out a tool's build now; otherwise its first call does"
    commands.add("build", built, _build, EXAMPLE).add_argument("tool")
    pruned = runs(lambda s, _: s.upkeep.prune(), message)
    commands.add("prune", "remove builds that no installed tool needs", pruned, "")
    locked = runs(lambda s, _: s.upkeep.lock(), _locked)
    commands.add("lock", "write .enact/tools.lock.json, to commit with a project", locked, "")


def _add_names(parser: Parser) -> None:
    parser.add_argument("tools", nargs="*", metavar="NAME", help="installed tools (default: all)")


def _audit(console: Console) -> int:
    with open_service(console) as service, progress(lines=False) as told:
        result = service.upkeep.audit(console.arguments.tools, told)
        told.hide()
        console.answer(result, _audited(result))
    return int(any(each.state != "ok" for each in result.tools))


def _outdated(console: Console) -> int:
    with open_service(console) as service:
        result = service.upkeep.outdated(console.arguments.tools)
        console.answer(result, _newer(result))
    return int(any(each.outdated for each in result.tools))


def _update(console: Console) -> int:
    with open_service(console) as service, progress(lines=False) as told:
        names = console.arguments.tools
        result = service.upkeep.update(names, told, agrees(console, told))
        told.hide()
        console.answer(result, _updated(result, console))
    return int(any(each.state == "refused" for each in result.tools))


def _build(console: Console) -> None:
    with open_service(console) as service, progress(lines=False) as told:
        result = service.upkeep.build(console.arguments.tool, told)
        told.hide()
        console.answer(result, message(result, console))


def _info(found: results.ToolInfo, _: Console) -> Iterable[Line]:
    from fleet_agentpack.enact.permissions import changes_said, lines

    yield f"{found.name}@{found.version}, installed {found.installed_at} from {found.source}"
    yield f"Bundle: {found.digest}"
    yield f"Signed by: {', '.join(found.signers) or 'nobody whom you trust'}"
    if found.versions:
        more = len(found.versions) - MOST_VERSIONS
        rest = f" and {more} more" if more > 0 else ""
        yield f"Versions: {', '.join(found.versions[:MOST_VERSIONS])}{rest}"
    if isinstance(found.audit, results.AuditedTool):
        yield f"Last checked: {found.audit.checked_at}"
        if found.audit.state == "refused":
            yield f"It will not run: {found.audit.message}"
    asked = list(lines(found.wanted, found.granted))
    if found.changes is not UNKNOWN:
        asked.append(changes_said(found.changes))
    yield from asked or ["It asks for nothing."]
    yield f"A run may use {found.bounds.said()}."
    if isinstance(found.build, results.BuildInfo):
        yield from _built(found.build)


def _built(build: results.BuildInfo) -> Iterable[Line]:
    """How a tool is built, and when it was."""
    for each in build.steps:
        yield f"Build: {each}"
    if build.built_at is UNKNOWN or not isinstance(build.size_bytes, int):
        yield "It is not built yet; its first call does it."
        return
    hosts = ", ".join(build.network) if isinstance(build.network, tuple) else ""
    size = f"{build.size_bytes / 1024**2:.1f} MiB"
    yield f"Built {build.built_at} in {build.backend}, {size}, network: {hosts or 'none'}"


def _audited(found: results.AuditResult) -> Iterable[Line]:
    rows = [
        [each.name, each.version, each.state, each.checked_at, _text(each.message)]
        for each in found.tools
    ]
    head = ["tool", "version", "state", "checked", ""]
    yield Table(head, rows) if rows else "Nothing from a registry is installed."


def _newer(found: results.OutdatedResult) -> Iterable[Line]:
    rows = [
        [each.name, each.version, _text(each.latest) or "-", _text(each.problem)]
        for each in found.tools
        if each.outdated or each.problem is not UNKNOWN
    ]
    head = ["tool", "version", "newest", ""]
    yield Table(head, rows) if rows else "Everything is up to date."


def _updated(found: results.UpdateResult, console: Console) -> Iterable[Line]:
    for each in found.tools:
        if each.state == "updated":
            yield console.paint("✓", "green"), f"{each.name} {each.before} → {each.version}"
        elif each.state == "refused":
            yield console.paint("✗", "red"), f"{each.name}: {_text(each.message)}"
    if all(each.state == "current" for each in found.tools):
        yield "Everything is up to date."


def _locked(found: results.LockResult, console: Console) -> Iterable[Line]:
    yield console.paint("✓", "green"), found.message


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
