"""`fleet-agentpack climpt`: the prompt commands for people and scripts."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.opening import open_climpt
from fleet_agentpack.climpt.service import ClimptService
from fleet_agentpack.console.terminal import Paint, printable, table
from fleet_agentpack.kit.errors import Problem
from fleet_agentpack.kit.results import jsonable, to_text
from fleet_agentpack.settings import Settings


def add(parser: argparse.ArgumentParser, name: str) -> None:  # noqa: ARG001
    """Add the subcommands of `climpt`."""
    actions = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    init = actions.add_parser("init", help="put the example commands into this project")
    init.add_argument("--json", action="store_true", help="print JSON")
    init.set_defaults(handler=run_init)

    search = actions.add_parser("search", help="find the commands that fit a task")
    search.add_argument("query", nargs="+", help="the task in plain words")
    _add_agent(search)
    search.set_defaults(handler=run_search)

    describe = actions.add_parser("describe", help="show a command's usage and options")
    _add_names(describe)
    describe.set_defaults(handler=run_describe)

    execute = actions.add_parser("execute", help="print a command's prompt")
    _add_names(execute)
    execute.add_argument("-e", "--edition", help="which kind of prompt (f_<edition>.md)")
    execute.add_argument("-a", "--adaptation", help="which variant of it")
    execute.add_argument("-f", "--file", "--from", metavar="PATH", help="the file it is about")
    execute.add_argument("-o", "--destination", metavar="PATH", help="where its result should go")
    execute.add_argument("--uv", metavar="NAME=VALUE", action="append", default=[])
    execute.add_argument("--stdin", action="store_true", help="take the input text from stdin")
    execute.set_defaults(handler=run_execute)


def run_init(arguments: argparse.Namespace, settings: Settings) -> int:
    """Copy the example tree."""
    from fleet_agentpack.climpt.scaffold import init

    copied = init(settings.cwd)
    if _json(arguments, copied):
        return 0
    paint = Paint.for_stream(sys.stdout, settings.environ)
    for name in copied.written:
        print(f"{paint('wrote', 'green')} {name}")
    for name in copied.kept:
        print(f"{paint('kept ', 'dim')} {name}")
    print('Next: fleet-agentpack climpt search "group changes and commit"')
    return 0


def run_search(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print what search finds."""
    found = _open(settings).search(" ".join(arguments.query), arguments.agent)
    if _json(arguments, found):
        return 0
    if not found:
        print("No command shares a word with that; try other words.")
        return 0
    paint = Paint.for_stream(sys.stdout, settings.environ)
    rows = [
        [
            f"{row.score:.2f}",
            paint(printable(f"{row.c1} {row.c2} {row.c3}"), "cyan"),
            printable(row.description),
        ]
        for row in found
    ]
    print(table(["score", "command", "description"], rows, paint))
    return 0


def run_describe(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print one command's record."""
    found = _open(settings).describe(*_names(arguments), arguments.agent)
    if _json(arguments, found):
        return 0
    paint = Paint.for_stream(sys.stdout, settings.environ)
    print(paint(printable(" ".join(_names(arguments))), "bold", "cyan"))
    for label, text in _lines(found):
        print(f"  {paint(f'{label:<12}', 'dim')} {printable(text)}")
    return 0


def run_execute(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print one command's prompt, as it is."""
    options: dict[str, Any] = {
        "edition": arguments.edition,
        "adaptation": arguments.adaptation,
        "file": arguments.file,
        "destination": arguments.destination,
        "stdin": sys.stdin.read() if arguments.stdin else None,
        "uv": dict(_variable(text) for text in arguments.uv),
    }
    service = _open(settings)
    prompt = asyncio.run(service.execute(arguments.agent, *_names(arguments), options))
    if not _json(arguments, {"prompt": prompt}):
        sys.stdout.write(prompt)
    return 0


def _open(settings: Settings) -> ClimptService:
    # Not through the tools: those load FastMCP, which takes longer than any of the commands.
    mode = settings.table("climpt").get("execute")
    return open_climpt(settings.cwd, settings.home, settings.environ, mode)


def _add_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", default="climpt", help="whose commands (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("c1", help="domain, such as git")
    parser.add_argument("c2", help="action, such as group-commit")
    parser.add_argument("c3", help="target, such as unstaged-changes")
    _add_agent(parser)


def _names(arguments: argparse.Namespace) -> tuple[str, str, str]:
    return arguments.c1, arguments.c2, arguments.c3


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        problem = Problem("--uv", "value_error", f"write NAME=VALUE instead of {text[:80]!r}")
        raise ClimptError.invalid_arguments("execute", [problem])
    return name, value


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    options = found.get("options", {})
    return [
        *((key, found[key]) for key in ("description", "usage") if found.get(key)),
        *(
            (key, ", ".join(value) if isinstance(value, list) else "yes" if value else "no")
            for key, value in options.items()
        ),
    ]


def _json(arguments: argparse.Namespace, value: Any) -> bool:
    if arguments.json:
        print(to_text(jsonable(value)))
    return bool(arguments.json)
