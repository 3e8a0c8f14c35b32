"""`fleet-agentpack tool …` and `fleet-agentpack mcp …`: the tool registry for people."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fleet_agentpack.console.ask import confirm
from fleet_agentpack.console.command import Commands, Console, Line
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.progress import progress
from fleet_agentpack.console.table import Table
from fleet_agentpack.enact import results
from fleet_agentpack.enact.commands import toolset_commands, upkeep_commands
from fleet_agentpack.enact.commands.parts import (
    EXAMPLE,
    add_project,
    agrees,
    message,
    open_service,
    runs,
)
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import parse
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.kit.visible import visible

if TYPE_CHECKING:
    from fleet_agentpack.enact.permissions import Permissions
    from fleet_agentpack.enact.service import EnactService


def add(parser: Parser, name: str) -> None:
    """Add the arguments of `tool` or `mcp`."""
    commands = Commands(parser)
    if name == "tool":
        _add_tool_commands(commands)
    else:
        toolset_commands.add(commands)


def _add_tool_commands(commands: Commands) -> None:
    searched = runs(lambda s, o: s.search(" ".join(o.query), o.limit), _hits)
    search = commands.add("search", "find tools", searched, "csv statistics")
    search.add_argument("query", nargs="+", help="words to search for")
    limit = "maximum number of results (default: %(default)s)"
    search.add_argument("--limit", type=int, default=10, help=limit)

    learned = runs(lambda s, o: s.learn(o.tool), _documentation)
    learn = commands.add("learn", "read a tool's documentation", learned, EXAMPLE)
    learn.add_argument("tool", help="owner/tool or owner/tool@version")

    install = commands.add("install", "install a tool", _install, EXAMPLE)
    which = "owner/tool or owner/tool@version; may be left out with --project"
    install.add_argument("tool", nargs="?", help=which)
    older = "replace a newer version that is installed"
    install.add_argument("--allow-downgrade", action="store_true", help=older)
    signer = "an auditor who has not signed the installed version"
    install.add_argument("--accept-signer", action="append", default=[], metavar="WHO", help=signer)
    add_project(install, "pin it in .enact/tools.json; alone: exactly what is locked or pinned")

    removed = runs(lambda s, o: s.uninstall(o.tool, project=o.project), message)
    uninstall = commands.add("uninstall", "remove a tool", removed, EXAMPLE)
    uninstall.add_argument("tool")
    add_project(uninstall, "remove it from this directory's .enact/tools.json")

    listed = runs(lambda s, o: s.upkeep.project_tools() if o.project else s.installed(), _installed)
    listing = commands.add("list", "list what is installed", listed, "--project")
    add_project(listing, "list what this directory's .enact/tools.json pins")

    upkeep_commands.add(commands)
    _add_permissions(commands)

    ran = runs(lambda s, o: s.run(o.tool, _arguments(o)), _output)
    run = commands.add("run", "run a tool", ran, f"{EXAMPLE} --input file=data.csv")
    run.add_argument("tool", help="owner/tool, owner/tool@version or owner/tool:script")
    run.add_argument("--args", default="{}", metavar="JSON", help="its arguments as a JSON object")
    run.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE", help="one argument"
    )


def _add_permissions(commands: Commands) -> None:
    allow = commands.add(
        "allow", "grant a tool what it asks for", _allow, f"{EXAMPLE} --write ~/reports"
    )
    took = runs(lambda s, o: s.grants.revoke(o.tool, _named(o, s, strict=False)), message)
    revoke = commands.add("revoke", "take back what was granted", took, EXAMPLE)
    ran = runs(lambda s, o: s.runs.of(parse(o.tool).name), _past_runs)
    commands.add("runs", "how the last runs of a tool ended", ran, EXAMPLE).add_argument("tool")
    for parser in (allow, revoke):
        parser.add_argument("tool", help="an installed tool")
        parser.add_argument(
            "--network", nargs="+", default=[], metavar="HOST", help="hosts, or '*'"
        )
        during = "hosts, while it is built"
        parser.add_argument("--build-network", nargs="+", default=[], metavar="HOST", help=during)
        parser.add_argument("--env", nargs="+", default=[], metavar="NAME", help="variables")
        parser.add_argument("--read", nargs="+", default=[], metavar="PATH", help="at every call")
        parser.add_argument("--write", nargs="+", default=[], metavar="DIR", help="directories")
    allow.add_argument("--yes", action="store_true", help="do not ask where nothing is named")


def _named(
    options: argparse.Namespace, service: EnactService, *, strict: bool = True
) -> Permissions:
    from fleet_agentpack.enact.permissions import Permissions

    read, write = (
        tuple(service.grants.absolute(path, field, strict=strict) for path in each)
        for field, each in (("read", options.read), ("write", options.write))
    )
    build = tuple(options.build_network)
    return Permissions(tuple(options.network), tuple(options.env), read, write, build)


def _allow(console: Console) -> None:
    """Grant what was named; where nothing was, ask about everything that the tool wants."""
    given = console.arguments
    with open_service(console) as service:
        more = _named(given, service)
        if not more:
            found = service.grants.of(given.tool)
            more = found.wanted - found.granted
            question = f"{given.tool} asks for {more.said()}. Grant it?"
            if more and not given.yes and not confirm(question, refuse=_unconfirmed):
                raise EnactError("NOT_APPROVED", "nothing was granted", tool=given.tool)
        result = service.grants.allow(given.tool, more)
    console.answer(result, message(result, console))


def _unconfirmed(reason: str) -> Exception:
    return EnactError.bad_argument("--yes", reason)


def _past_runs(found: Sequence[results.Run], _: Console) -> Iterable[Line]:
    rows = [
        [each.time, ", ".join(each.arguments), each.status, f"{each.duration_ms} ms", first]
        for each in found
        for first in (each.output.strip().splitlines() or [""])[:1]
    ]
    head = ["time", "arguments", "status", "took", "output"]
    yield Table(head, rows) if rows else "It has not run here."


def _install(console: Console) -> None:
    given = console.arguments
    if not given.tool and not given.project:
        raise EnactError.bad_argument("tool", "name a tool, or pass --project for all it pins")
    with open_service(console) as service, progress(lines=False) as told:
        if given.tool:
            result = service.install(
                given.tool,
                report=told,
                project=given.project,
                allow_downgrade=given.allow_downgrade,
                accept_signers=given.accept_signer,
                agree=agrees(console, told),
            )
        else:
            result = service.upkeep.install_project(told)
        told.hide()
        console.answer(result, message(result, console))


def _arguments(options: argparse.Namespace) -> dict[str, object]:
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
    if sys.stdout.isatty():
        text = visible(text)  # a terminal would obey control characters; a program gets them all
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    yield from ()
