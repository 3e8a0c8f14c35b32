"""`fleet-agentpack tool …` and `fleet-agentpack mcp …`: the tool registry for people."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fleet_agentpack.console.terminal import Paint, printable, table
from fleet_agentpack.enact import results
from fleet_agentpack.kit.results import UNKNOWN, Maybe, jsonable, to_text
from fleet_agentpack.settings import Settings

if TYPE_CHECKING:
    from fleet_agentpack.enact.service import EnactService

R = TypeVar("R")
Show = Callable[[R, Paint], None]
Work = Callable[["EnactService", argparse.Namespace], R]


def add(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the arguments of `tool` or `mcp`."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    if name == "tool":
        _add_tool_commands(commands)
    else:
        _add_mcp_commands(commands)


def _add_tool_commands(commands: Any) -> None:
    search = _leaf(commands, "search", "find tools", _search, _show_hits)
    search.add_argument("query", nargs="+", help="words to look for")
    search.add_argument("--limit", type=int, default=10, help="most results (%(default)s)")

    learn = _leaf(commands, "learn", "read a tool's documentation", _learn, _show_documentation)
    learn.add_argument("tool", help="owner/tool or owner/tool@version")

    install = _leaf(commands, "install", "install a tool", _install, _show_message)
    install.add_argument("tool", nargs="?", help="left out with --project: all that it pins")
    _add_project(install, "pin it in .enact/tools.json of this directory instead")

    uninstall = _leaf(commands, "uninstall", "remove a tool", _uninstall, _show_message)
    uninstall.add_argument("tool")
    _add_project(uninstall, "take it out of .enact/tools.json of this directory")

    listing = _leaf(commands, "list", "what is installed", _list, _show_installed)
    _add_project(listing, "what .enact/tools.json of this directory pins")

    run = _leaf(commands, "run", "run a tool", _run, _show_output)
    run.add_argument("tool", help="owner/tool, owner/tool@version or owner/tool:script")
    run.add_argument("--args", default="{}", metavar="JSON", help="its arguments as a JSON object")
    run.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE", help="one argument"
    )


def _add_mcp_commands(commands: Any) -> None:
    _leaf(commands, "toolsets", "list the toolsets", lambda s, _: s.toolsets.list(), _show_toolsets)
    use = _leaf(commands, "use", "show clients one toolset, or everything", _use, _show_message)
    chosen = use.add_mutually_exclusive_group(required=True)
    chosen.add_argument("name", nargs="?", help="the toolset")
    chosen.add_argument("--all", action="store_true", help="every installed tool")

    toolset = commands.add_parser("toolset", help="create and change toolsets")
    actions = toolset.add_subparsers(metavar="ACTION", required=True)
    changes: list[tuple[str, str, Work[results.ToolsetChange]]] = [
        ("create", "a toolset of all installed tools", lambda s, o: s.toolsets.create(o.name)),
        ("delete", "delete a toolset; the tools stay", lambda s, o: s.toolsets.delete(o.name)),
        ("add", "add a tool to a toolset", lambda s, o: s.toolsets.add(o.name, o.tool)),
        ("remove", "take a tool out of it", lambda s, o: s.toolsets.remove(o.name, o.tool)),
    ]
    for action, text, work in changes:
        leaf = _leaf(actions, action, text, work, _show_message)
        leaf.add_argument("name")
        if action in ("add", "remove"):
            leaf.add_argument("tool")


def _leaf(
    commands: Any, name: str, text: str, work: Work[R], show: Show[R]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(handler=partial(_handle, work, show))
    return parser


def _add_project(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--project", action="store_true", help=text)


def _handle(work: Work[R], show: Show[R], options: argparse.Namespace, settings: Settings) -> int:
    from fleet_agentpack.enact.service import EnactService
    from fleet_agentpack.enact.settings import EnactSettings

    service = EnactService(EnactSettings.of(settings))
    try:
        result = work(service, options)
    finally:
        service.close()
    if options.json:
        print(to_text(jsonable(result)))
        return 0
    show(result, Paint.for_stream(sys.stdout, settings.environ))
    warnings = getattr(result, "warnings", UNKNOWN)
    for warning in () if warnings is UNKNOWN else warnings:
        sys.stderr.write(f"warning: {printable(warning)}\n")
    return 0


def _search(service: EnactService, options: argparse.Namespace) -> results.SearchResult:
    return service.search(" ".join(options.query), options.limit)


def _learn(service: EnactService, options: argparse.Namespace) -> results.LearnResult:
    return service.learn(options.tool)


def _install(service: EnactService, options: argparse.Namespace) -> results.ChangeResult:
    from fleet_agentpack.enact.errors import EnactError

    if options.tool:
        return service.install(options.tool, project=options.project)
    if not options.project:
        raise EnactError.bad_argument("tool", "name a tool, or pass --project for all it pins")
    return service.install_project()


def _uninstall(service: EnactService, options: argparse.Namespace) -> results.ChangeResult:
    return service.uninstall(options.tool, project=options.project)


def _list(service: EnactService, options: argparse.Namespace) -> results.ToolList:
    return service.project_tools() if options.project else service.installed()


def _run(service: EnactService, options: argparse.Namespace) -> results.RunResult:
    return service.run(options.tool, _arguments(options))


def _arguments(options: argparse.Namespace) -> dict[str, object]:
    from fleet_agentpack.enact.errors import EnactError

    try:
        given = json.loads(options.args)
    except ValueError as error:
        raise EnactError.bad_argument("--args", f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise EnactError.bad_argument("--args", "must be a JSON object")
    for each in options.input:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise EnactError.bad_argument("--input", f"{each!r} is not NAME=VALUE")
        given[name] = _value(value)
    return given


def _value(text: str) -> object:
    """JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _use(service: EnactService, options: argparse.Namespace) -> results.ToolsetInUse:
    return service.toolsets.use(None if options.all else options.name)


def _show_hits(found: results.SearchResult, paint: Paint) -> None:
    rows = [
        [hit.name, "" if hit.version is UNKNOWN else hit.version, printable(hit.description)]
        for hit in found.results
    ]
    print(table(["TOOL", "VERSION", "DESCRIPTION"], rows, paint) if rows else "No tools found.")


def _show_documentation(learned: results.LearnResult, _paint: Paint) -> None:
    print(printable(learned.documentation))


def _show_message(
    changed: results.ChangeResult | results.ToolsetInUse | results.ToolsetChange, paint: Paint
) -> None:
    print(paint("✓", "green"), changed.message)


def _show_installed(listed: results.ToolList, paint: Paint) -> None:
    rows = [[each.name, each.version, _joined(each.mcp_tools) or "-"] for each in listed.tools]
    print(table(["TOOL", "VERSION", "MCP TOOLS"], rows, paint) if rows else "Nothing is installed.")


def _joined(names: Maybe[tuple[str, ...]]) -> str:
    return "" if names is UNKNOWN else ", ".join(names)


def _show_output(ran: results.RunResult, _paint: Paint) -> None:
    output = ran.output
    text = output if isinstance(output, str) else json.dumps(output, indent=2, ensure_ascii=False)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _show_toolsets(toolsets: Sequence[results.Toolset], paint: Paint) -> None:
    rows = [
        [("→ " if each.isActive else "  ") + each.name, ", ".join(each.tools)] for each in toolsets
    ]
    print(table(["  TOOLSET", "TOOLS"], rows, paint) if rows else "There are no toolsets.")
