"""`fleet-agentpack climpt`: the prompt commands for people and scripts."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.results import Added, Checked, Description, Found, Initialised, Prompt
from fleet_agentpack.climpt.service import files_of, open_climpt
from fleet_agentpack.console.command import Commands, Console, Line
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.row import Row
from fleet_agentpack.console.table import Table
from fleet_agentpack.console.text import Paint, Verbatim
from fleet_agentpack.kit.errors import Problem
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock
from fleet_agentpack.kit.program import program
from fleet_agentpack.kit.results import UNKNOWN

EXAMPLE = "git group-commit unstaged-changes"
TAKEN = ("file", "stdin", "destination")


def add(parser: Parser, name: str) -> None:  # noqa: ARG001
    """Add the subcommands of `climpt`."""
    commands = Commands(parser)
    commands.add("init", "put the example commands into this project", run_init, "")

    check = commands.add("check", "compare the prompts with the registry", run_check, "--write")
    check.add_argument(
        "--write", action="store_true", help="bring the registry and the patterns up to date"
    )
    _add_agent(check)

    line = "add a command with a prompt to fill in"
    new = commands.add("add", line, run_add, "git tag-release latest --title 'Tag a release'")
    _add_names(new)
    new.add_argument("--title", help="a short title (default: the names)")
    new.add_argument("--description", help="what it is for; search looks at it")
    new.add_argument(
        "--takes",
        action="append",
        default=[],
        choices=TAKEN,
        help="an input that it takes; repeatable",
    )
    new.add_argument("--uv", metavar="NAME=PURPOSE", action="append", default=[])

    words = "group changes and commit"
    search = commands.add("search", "find the commands that fit a task", run_search, words)
    search.add_argument("query", nargs="+", help="the task in plain words")
    _add_agent(search)

    line = "show a command's usage and options"
    _add_names(commands.add("describe", line, run_describe, EXAMPLE))

    execute = commands.add("execute", "print a command's prompt", run_execute, EXAMPLE)
    _add_names(execute)
    execute.add_argument("-e", "--edition", help="which kind of prompt (f_<edition>.md)")
    execute.add_argument("-a", "--adaptation", help="which variant of it")
    execute.add_argument("-f", "--file", "--from", metavar="PATH", help="the file it is about")
    execute.add_argument("-o", "--destination", metavar="PATH", help="where its result should go")
    execute.add_argument("--uv", metavar="NAME=VALUE", action="append", default=[])
    execute.add_argument("--stdin", action="store_true", help="take the input text from stdin")


def run_init(console: Console) -> None:
    """Copy the example tree."""
    from fleet_agentpack.climpt.scaffold import init

    project = console.settings.project
    if project is None:
        advice = console.settings.place.advice
        raise ClimptError("Cannot initialise", details=advice)
    done = init(project)
    console.answer(done, _show_files(done, console.paint))


def run_check(console: Console) -> int:
    """Print what is wrong with the prompts; 1 when something is."""
    from fleet_agentpack.climpt.check import check

    given = console.arguments
    with _writing(console) if given.write else nullcontext():
        done = check(files_of(console.settings), given.agent, write=given.write)
    console.answer(done, _show_findings(done, console.paint))
    return 1 if done.findings else 0


def run_add(console: Console) -> None:
    """Make a command."""
    from fleet_agentpack.climpt.additions import NewCommand, add

    given = console.arguments
    title = given.title or f"{given.c2} {given.c3}".replace("-", " ").capitalize()
    command = NewCommand(
        *(given.c1, given.c2, given.c3, title, given.description or title),
        tuple(dict.fromkeys(given.takes)),
        tuple(_variable(text) for text in given.uv),
    )
    with _writing(console):
        done = add(files_of(console.settings), given.agent, command)
    console.answer(done, _show_addition(done, console.paint))


@contextmanager
def _writing(console: Console) -> Iterator[None]:
    """One command at a time changes a registry: it is read, and written as a whole."""
    try:
        with file_lock(console.settings.directories.state / "climpt.lock"):
            yield
    except LockTimeoutError as error:
        hint = "try again when it has ended"
        raise ClimptError("Busy", details="another climpt command is writing", hint=hint) from error
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise ClimptError("Cannot write", details=reason) from error


def run_search(console: Console) -> None:
    """Print what search finds."""
    given = console.arguments
    found = open_climpt(console.settings).search(" ".join(given.query), given.agent)
    console.answer(found.results if console.as_json else found, _show_matches(found, console.paint))


def run_describe(console: Console) -> None:
    """Print one command's record."""
    given = console.arguments
    found = open_climpt(console.settings).describe(given.c1, given.c2, given.c3, given.agent)
    console.answer(found, _show_description(found, console.paint))


def run_execute(console: Console) -> None:
    """Print one command's prompt, as it is."""
    given = console.arguments
    options = {
        **{name: getattr(given, name) for name in ("edition", "adaptation", "file", "destination")},
        "stdin": sys.stdin.read() if given.stdin else None,
        "uv": dict(_variable(text) for text in given.uv),
    }
    service = open_climpt(console.settings)
    names = given.agent, given.c1, given.c2, given.c3
    prompt = asyncio.run(service.execute(*names, options))
    result = Prompt(prompt.text, prompt.unfilled or UNKNOWN)
    console.answer(result, [Verbatim(prompt.text.removesuffix("\n"))])
    if prompt.unfilled and not console.as_json:
        console.warn(
            [f"no value for {', '.join(prompt.unfilled)}; {_how_to_fill(prompt.unfilled)}"]
        )


def _add_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", default="climpt", help="whose commands (default: %(default)s)")


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("c1", help="domain, such as git")
    parser.add_argument("c2", help="action, such as group-commit")
    parser.add_argument("c3", help="target, such as unstaged-changes")
    _add_agent(parser)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        problem = Problem("--uv", "value_error", f"write NAME=VALUE instead of {text[:80]!r}")
        raise ClimptError.invalid_arguments("execute", [problem])
    return name, value


_FLAGS = {
    "input_text": "--stdin",
    "input_text_file": "--file PATH",
    "destination_path": "--destination PATH",
}


def _how_to_fill(names: tuple[str, ...]) -> str:
    flags = [_FLAGS.get(n) or f"--uv {n.removeprefix('uv-')}=VALUE" for n in names]
    return f"pass {' '.join(flags)}"


def _show_files(done: Initialised, paint: Paint) -> Iterator[Line]:
    for name in done.written:
        yield paint("wrote", "green"), name
    for name in done.kept:
        yield paint("kept ", "dim"), name
    yield f'Next: {program()} climpt search "group changes and commit"'


def _show_findings(done: Checked, paint: Paint) -> Iterator[Line]:
    for name in () if done.written is UNKNOWN else done.written:
        yield paint("wrote", "green"), name
    if done.findings:
        rows = [[paint(each.path, "cyan"), each.problem] for each in done.findings]
        yield Table(["file", "problem"], rows)
    else:
        number = done.commandCount
        commands = "1 command" if number == 1 else f"{number} commands"
        yield f"{commands}: the prompts, the registry and the patterns agree."
    if any(each.fixable for each in done.findings):
        yield f"Next: {program()} climpt check --write"


def _show_addition(done: Added, paint: Paint) -> Iterator[Line]:
    for name in (done.prompt, *done.written):
        yield paint("wrote", "green"), name
    yield f"Next: write the prompt in {done.prompt}"


def _show_matches(found: Found, paint: Paint) -> Iterator[Line]:
    if found.results:
        rows = [[f"{m.score:.2f}", paint(m.name, "cyan"), m.description] for m in found.results]
        yield Table(["score", "command", "description"], rows)


def _show_description(found: Description, paint: Paint) -> Iterator[Line]:
    yield paint(found.name, "bold", "cyan")
    for label, text in _facts(found):
        if text:
            yield Row(paint(f"  {label:<12}", "dim"), text)


def _facts(found: Description) -> Iterator[tuple[str, str]]:
    yield "description", found.description
    if found.usage is not UNKNOWN:
        yield "usage", found.usage
    if found.options is not UNKNOWN:
        for name, value in vars(found.options).items():
            if isinstance(value, tuple):
                yield name, ", ".join(value)
            elif value is not UNKNOWN:
                yield name, "yes" if value else "no"
