"""Declares commands, runs them, and prints what they answer: text, JSON, warnings and errors."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import IO, NoReturn

from fleet_agentpack.console.pager import paged
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.row import Row, lay_out
from fleet_agentpack.console.table import Table, render, width_for
from fleet_agentpack.console.text import Paint, Text, printable
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.program import located
from fleet_agentpack.kit.results import jsonable, to_text
from fleet_agentpack.settings import Settings

Line = Text | Row | Table
Handler = Callable[["Console"], int | None]


class Console:
    """One run of a command: what was asked for, and where the answer goes."""

    def __init__(self, arguments: argparse.Namespace, settings: Settings) -> None:
        self.arguments = arguments
        self.settings = settings
        self.as_json = bool(getattr(arguments, "json", False))
        self.paint = Paint.for_stream(sys.stdout, settings.environ)

    def answer(self, result: object, lines: Iterable[Line], *, long: bool = False) -> None:
        """Print a result: as JSON if so asked, else the lines, and its warnings after them.

        What may be longer than the screen goes through a pager.
        """
        if self.as_json:
            print_json(result)
            return
        self.page(lines) if long else self.stream(lines)
        self.warn(_warnings_of(result))

    def show(self, *lines: Line) -> None:
        """Print lines and tables; control characters from outside are made visible."""
        self.stream(lines)

    def stream(self, lines: Iterable[Line]) -> None:
        """Like `show`, for lines that are made while they are printed."""
        self._print(lines, sys.stdout)

    def page(self, lines: Iterable[Line]) -> None:
        """Like `stream`, for text that may be longer than the screen."""
        with paged(self.settings.environ) as out:
            self._print(lines, out)

    def warn(self, warnings: Iterable[str]) -> None:
        """Print warnings to standard error."""
        paint = Paint.for_stream(sys.stderr, self.settings.environ)
        for warning in warnings:
            print(paint("Warning:", "yellow"), printable(located(warning)), file=sys.stderr)

    def _print(self, lines: Iterable[Line], out: IO[str]) -> None:
        width = width_for(sys.stdout)
        for line in lines:
            if isinstance(line, Table):
                print(render(line, self.paint, width), file=out)
            elif isinstance(line, Row):
                print(lay_out(line, width), file=out)
            else:
                print(printable(line), file=out)
        out.flush()


def declare(parser: argparse.ArgumentParser, run: Handler, *, lenient: bool = False) -> None:
    """Say what a command does; a lenient one also runs with a broken configuration file."""
    parser.set_defaults(handler=partial(_start, run), lenient=lenient)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


class Commands:
    """Declares the subcommands of one command; each takes `--json`."""

    def __init__(self, parser: Parser) -> None:
        self._groups = {"": _subcommands(parser)}

    def add(self, name: str, help_line: str, run: Handler, example: str) -> Parser:
        """Declare one; `fork list` is `list` in the group `fork`. The example is its arguments."""
        group, _, leaf = name.rpartition(" ")
        if group not in self._groups:
            help_text = f"{group} commands; {group} --help lists them"
            below = self._groups[""].add_parser(group, help=help_text, description=help_text)
            self._groups[group] = _subcommands(below)
        parser = self._groups[group].add_parser(leaf, help=help_line, description=help_line)
        parser.example = example
        add_json(parser)
        declare(parser, run)
        return parser


def print_json(value: object) -> None:
    """Print JSON on one line, indented for a person at a terminal."""
    plain = jsonable(value)
    pretty = sys.stdout.isatty()
    text = json.dumps(plain, indent=2, ensure_ascii=False) if pretty else to_text(plain)
    print(text, flush=True)


def print_error(prog: str, error: AppError, *, as_json: bool = False) -> None:
    """Print what went wrong, then what to do, a line each; as JSON, the payload."""
    if as_json:
        print_json(error.payload())
        return
    lines = [f"{prog}: {located(str(error))}", *(f"  {advice}" for advice in error.advice())]
    for line in lines:
        print(printable(line), file=sys.stderr)


def _start(run: Handler, arguments: argparse.Namespace, settings: Settings) -> int:
    return run(Console(arguments, settings)) or 0


def _subcommands(parser: Parser) -> argparse._SubParsersAction[Parser]:
    def refuse(_arguments: argparse.Namespace, _settings: Settings) -> NoReturn:
        parser.error(f"needs a command: {', '.join(name for name, _ in parser.subcommands())}")

    parser.set_defaults(handler=refuse)
    return parser.add_subparsers(title="commands", metavar="COMMAND")


def _warnings_of(result: object) -> Iterable[str]:
    """What a result warns of; the findings of a validation are its answer, and no text."""
    found = getattr(result, "warnings", ())
    return [each for each in found if isinstance(each, str)] if isinstance(found, tuple) else []
