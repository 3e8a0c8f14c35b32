"""`fleet-agentpack tool …` and `fleet-agentpack mcp …`: the tool registry for people."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

from fleet_agentpack.console.command import Commands, Console, Handler, Line
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.progress import progress
from fleet_agentpack.console.table import Table
from fleet_agentpack.enact import results
from fleet_agentpack.kit.results import UNKNOWN

if TYPE_CHECKING:
    from fleet_agentpack.enact.service import EnactService

R = TypeVar("R")
Work = Callable[["EnactService", argparse.Namespace], R]
Show = Callable[[R, Console], Iterable[Line]]

EXAMPLE = "agentpack/csv/stats"


def add(parser: Parser, name: str) -> None:
    """Add the arguments of `tool` or `mcp`."""
    commands = Commands(parser)
    if name == "tool":
        _add_tool_commands(commands)
    else:
        _add_mcp_commands(commands)


def _add_tool_commands(commands: Commands) -> None:
    searched = _runs(lambda s, o: s.search(" ".join(o.query), o.limit), _hits)
    search = commands.add("search", "find tools", searched, "csv statistics")
    search.add_argument("query", nargs="+", help="words to search for")
    limit = "maximum number of results (default: %(default)s)"
    search.add_argument("--limit", type=int, default=10, help=limit)

    learned = _runs(lambda s, o: s.learn(o.tool), _documentation)
    learn = commands.add("learn", "read a tool's documentation", learned, EXAMPLE)
    learn.add_argument("tool", help="owner/tool or owner/tool@version")

    install = commands.add("install", "install a tool", _install, EXAMPLE)
    which = "owner/tool or owner/tool@version; with --project, all that it pins if left out"
    install.add_argument("tool", nargs="?", help=which)
    _add_project(install, "pin it in this directory's .enact/tools.json instead")

    removed = _runs(lambda s, o: s.uninstall(o.tool, project=o.project), _message)
    uninstall = commands.add("uninstall", "remove a tool", removed, EXAMPLE)
    uninstall.add_argument("tool")
    _add_project(uninstall, "remove it from this directory's .enact/tools.json")

    listed = _runs(lambda s, o: s.project_tools() if o.project else s.installed(), _installed)
    listing = commands.add("list", "list what is installed", listed, "--project")
    _add_project(listing, "list what this directory's .enact/tools.json pins")

    ran = _runs(lambda s, o: s.run(o.tool, _arguments(o)), _output)
    run = commands.add("run", "run a tool", ran, f"{EXAMPLE} --input file=data.csv")
    run.add_argument("tool", help="owner/tool, owner/tool@version or owner/tool:script")
    run.add_argument("--args", default="{}", metavar="JSON", help="its arguments as a JSON object")
    run.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE", help="one argument"
    )


def _add_mcp_commands(commands: Commands) -> None:
    listing = _runs(lambda s, _: s.toolsets.list(), _toolsets)
    commands.add("toolsets", "list the toolsets", listing, "")
    used = _runs(lambda s, o: s.toolsets.use(None if o.all else o.name), _message)
    use = commands.add("use", "show clients one toolset, or everything", used, "daily")
    chosen = use.add_mutually_exclusive_group(required=True)
    chosen.add_argument("name", nargs="?", help="the toolset")
    chosen.add_argument("--all", action="store_true", help="every installed tool")

    changes: dict[str, tuple[str, Work[results.ToolsetChange]]] = {
        "create": ("create one of all installed tools", lambda s, o: s.toolsets.create(o.name)),
        "delete": ("delete a toolset; the tools stay", lambda s, o: s.toolsets.delete(o.name)),
        "add": ("add a tool to a toolset", lambda s, o: s.toolsets.add(o.name, o.tool)),
        "remove": ("remove a tool from one", lambda s, o: s.toolsets.remove(o.name, o.tool)),
    }
    for action, (text, work) in changes.items():
        with_tool = action in ("add", "remove")
        example = f"daily {EXAMPLE}" if with_tool else "daily"
        leaf = commands.add(f"toolset {action}", text, _runs(work, _message), example)
        leaf.add_argument("name")
        if with_tool:
            leaf.add_argument("tool")


def _add_project(parser: Parser, text: str) -> None:
    parser.add_argument("--project", action="store_true", help=text)


@contextmanager
def _service(console: Console) -> Iterator[EnactService]:
    from fleet_agentpack.enact.service import EnactService
    from fleet_agentpack.enact.settings import EnactSettings

    with closing(EnactService(EnactSettings.of(console.settings))) as service:
        yield service


def _runs(work: Work[R], show: Show[R]) -> Handler:
    """A command that does the work with a service of its own and shows the result."""

    def run(console: Console) -> None:
        with _service(console) as service:
            result = work(service, console.arguments)
        console.answer(result, show(result, console))

    return run


def _install(console: Console) -> None:
    from fleet_agentpack.enact.errors import EnactError

    given = console.arguments
    if not given.tool and not given.project:
        raise EnactError.bad_argument("tool", "name a tool, or pass --project for all it pins")
    with _service(console) as service, progress(lines=False) as told:
        if given.tool:
            result = service.install(given.tool, report=told, project=given.project)
        else:
            result = service.install_project()
    console.answer(result, _message(result, console))


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
    """The value of valid JSON, otherwise the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _hits(found: results.SearchResult, _: Console) -> Iterable[Line]:
    rows = [
        [hit.name, "" if hit.version is UNKNOWN else hit.version, hit.description]
        for hit in found.results
    ]
    yield Table(["tool", "version", "description"], rows) if rows else "No tools found."


def _documentation(learned: results.LearnResult, _: Console) -> Iterable[Line]:
    yield learned.documentation


def _message(
    changed: results.ChangeResult | results.ToolsetInUse | results.ToolsetChange, console: Console
) -> Iterable[Line]:
    yield console.paint("✓", "green"), changed.message


def _installed(listed: results.ToolList, _: Console) -> Iterable[Line]:
    rows = [
        [each.name, each.version, "" if each.mcp_tools is UNKNOWN else ", ".join(each.mcp_tools)]
        for each in listed.tools
    ]
    shown = Table(["tool", "version", "mcp tools"], [[*row[:2], row[2] or "-"] for row in rows])
    yield shown if rows else "Nothing is installed."


def _output(ran: results.RunResult, _: Console) -> Iterable[Line]:
    output = ran.output
    text = output if isinstance(output, str) else json.dumps(output, indent=2, ensure_ascii=False)
    # As it is, control characters and all: it may be meant for another program.
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    yield from ()


def _toolsets(toolsets: Sequence[results.Toolset], _: Console) -> Iterable[Line]:
    rows = [
        [f"→ {each.name}" if each.isActive else each.name, ", ".join(each.tools)]
        for each in toolsets
    ]
    yield Table(["toolset", "tools"], rows) if rows else "There are no toolsets."
