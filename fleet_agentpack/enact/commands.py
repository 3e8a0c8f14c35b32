"""`fleet-agentpack tool …` and `fleet-agentpack mcp …`: the tool registry for people."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fleet_agentpack.console.terminal import Paint, printable, table
from fleet_agentpack.kit.results import jsonable, to_text
from fleet_agentpack.settings import Settings

if TYPE_CHECKING:
    from fleet_agentpack.enact.service import EnactService

Show = Callable[[Any, Paint], None]
Work = Callable[["EnactService", argparse.Namespace], Any]


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
    _leaf(commands, "toolsets", "list the toolsets", _toolsets, _show_toolsets)
    use = _leaf(commands, "use", "show clients one toolset, or everything", _use, _show_message)
    chosen = use.add_mutually_exclusive_group(required=True)
    chosen.add_argument("name", nargs="?", help="the toolset")
    chosen.add_argument("--all", action="store_true", help="every installed tool")

    toolset = commands.add_parser("toolset", help="make and change toolsets")
    actions = toolset.add_subparsers(metavar="ACTION", required=True)
    for action, text in (
        ("create", "a toolset of everything that is installed"),
        ("delete", "remove a toolset; the tools stay"),
    ):
        leaf = _leaf(actions, action, text, partial(_change_toolset, action), _show_message)
        leaf.add_argument("name")
    for action, text in (("add", "add a tool to it"), ("remove", "take a tool out of it")):
        leaf = _leaf(actions, action, text, partial(_change_toolset, action), _show_message)
        leaf.add_argument("name")
        leaf.add_argument("tool")


def _leaf(commands: Any, name: str, text: str, work: Work, show: Show) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(handler=partial(_handle, work, show))
    return parser


def _add_project(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--project", action="store_true", help=text)


def _handle(work: Work, show: Show, options: argparse.Namespace, settings: Settings) -> int:
    from fleet_agentpack.enact.service import EnactService
    from fleet_agentpack.enact.settings import EnactSettings

    service = EnactService(EnactSettings.of(settings))
    try:
        result = work(service, options)
    finally:
        service.close()
    plain = jsonable(result)
    if options.json:
        print(to_text(plain))
        return 0
    show(plain, Paint.for_stream(sys.stdout, settings.environ))
    warnings = plain.get("warnings", []) if isinstance(plain, dict) else []
    for warning in warnings:
        sys.stderr.write(f"warning: {printable(warning)}\n")
    return 0


def _search(service: EnactService, options: argparse.Namespace) -> Any:
    return service.search(" ".join(options.query), options.limit)


def _learn(service: EnactService, options: argparse.Namespace) -> Any:
    return service.learn(options.tool)


def _install(service: EnactService, options: argparse.Namespace) -> Any:
    from fleet_agentpack.enact.errors import EnactError

    if options.tool:
        return service.install(options.tool, project=options.project)
    if not options.project:
        raise EnactError.bad_argument("tool", "say which tool, or --project for all of a project")
    done = [
        service.install(f"{name}@{version}", project=True)
        for name, version in service.project_tools().items()
    ]
    messages = [each.message for each in done]
    return {"success": True, "message": "\n".join(messages) or "The project pins no tools"}


def _uninstall(service: EnactService, options: argparse.Namespace) -> Any:
    return service.uninstall(options.tool, project=options.project)


def _list(service: EnactService, options: argparse.Namespace) -> Any:
    if options.project:
        pins = service.project_tools().items()
        return {"tools": [{"name": name, "version": version} for name, version in pins]}
    return service.installed()


def _run(service: EnactService, options: argparse.Namespace) -> Any:
    return service.run(options.tool, _arguments(options))


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
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


def _value(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _toolsets(service: EnactService, _options: argparse.Namespace) -> Any:
    return service.toolsets()


def _use(service: EnactService, options: argparse.Namespace) -> Any:
    from fleet_agentpack.enact import toolsets

    name = None if options.all else options.name
    service.change_toolsets(lambda state: toolsets.use(state, name))
    message = f"Now using toolset: {name}" if name else "Clients see every installed tool"
    return {"success": True, "activeToolset": name, "message": message}


def _change_toolset(action: str, service: EnactService, options: argparse.Namespace) -> Any:
    from fleet_agentpack.enact import toolsets

    name, tool = options.name, getattr(options, "tool", None)
    if action == "create":
        state = service.create_toolset(name)
        count = len(state.toolsets[name])
        message = f"Created {name} with {count} tool{'s' * (count != 1)}"
    elif action == "delete":
        service.change_toolsets(lambda state: toolsets.delete(state, name))
        message = f"Deleted {name}"
    elif action == "add":
        service.change_toolsets(lambda state: toolsets.add(state, name, str(tool)))
        message = f"Added {tool} to {name}"
    else:
        service.change_toolsets(lambda state: toolsets.remove(state, name, str(tool)))
        message = f"Removed {tool} from {name}"
    changed = {"success": True, "action": action, "toolset": name, "message": message}
    return {**changed, "tool": tool} if tool else changed


def _show_hits(result: Any, paint: Paint) -> None:
    rows = [
        [each["name"], each.get("version", ""), printable(each["description"])]
        for each in result["results"]
    ]
    print(table(["TOOL", "VERSION", "DESCRIPTION"], rows, paint) if rows else "No tools found.")


def _show_documentation(result: Any, _paint: Paint) -> None:
    print(printable(result["documentation"]))


def _show_message(result: Any, paint: Paint) -> None:
    print(paint("✓", "green"), result["message"])


def _show_installed(result: Any, paint: Paint) -> None:
    rows = [
        [each["name"], each["version"], ", ".join(each.get("mcp_tools", [])) or "-"]
        for each in result["tools"]
    ]
    print(table(["TOOL", "VERSION", "MCP TOOLS"], rows, paint) if rows else "Nothing is installed.")


def _show_output(result: Any, _paint: Paint) -> None:
    output = result["output"]
    text = output if isinstance(output, str) else json.dumps(output, indent=2, ensure_ascii=False)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _show_toolsets(result: Any, paint: Paint) -> None:
    rows = [
        [("→ " if each["isActive"] else "  ") + each["name"], ", ".join(each["tools"])]
        for each in result
    ]
    print(table(["  TOOLSET", "TOOLS"], rows, paint) if rows else "There are no toolsets.")
