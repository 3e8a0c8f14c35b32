"""One way to declare, print, ask and report."""

from __future__ import annotations

import argparse
import io
import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from fleet_agentpack.console.ask import ask_secret, confirm
from fleet_agentpack.console.command import Commands, Console, declare, print_error, print_json
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.progress import progress
from fleet_agentpack.console.table import Table
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.results import UNKNOWN, Unknown
from fleet_agentpack.settings import Settings
from tests.console.streams import Terminal


@dataclass(frozen=True)
class Answer:
    name: str
    warnings: tuple[str, ...] | Unknown = UNKNOWN


def parse(parser: argparse.ArgumentParser, *words: str) -> int:
    arguments = parser.parse_args(words)
    return int(arguments.handler(arguments, Settings.read()))


def greet(console: Console) -> None:
    result = Answer("Ada", ("a \x1b[31mwarning",))
    console.answer(result, ["Hello", ("name", result.name), Table(["name"], [[result.name]])])


def test_a_command_prints_lines_tables_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser()
    Commands(parser).add("greet", "say hello", greet, "")
    assert parse(parser, "greet") == 0
    shown = capsys.readouterr()
    assert shown.out == "Hello\nname Ada\nNAME\nAda\n"
    assert shown.err == "Warning: a \\x1b[31mwarning\n"


def test_json_is_one_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser()
    Commands(parser).add("group greet", "say hello", greet, "")
    assert parse(parser, "group", "greet", "--json") == 0
    shown = capsys.readouterr()
    assert shown.out == '{"name":"Ada","warnings":["a \\u001b[31mwarning"]}\n'
    assert shown.err == ""


def test_json_is_indented_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    print_json(Answer("Ada"))
    assert sys.stdout.getvalue() == '{\n  "name": "Ada"\n}\n'  # type: ignore[attr-defined]


def test_the_status_is_what_the_command_returns() -> None:
    parser = argparse.ArgumentParser()
    declare(parser, lambda _: 3)
    assert parse(parser) == 3


def test_an_error_is_a_message_and_advice_or_a_payload(capsys: pytest.CaptureFixture[str]) -> None:
    class Advised(AppError):
        def payload(self) -> dict[str, Any]:
            return {"code": "bad"}

        def advice(self) -> list[str]:
            return ["try this", "or \x07that"]

    print_error("prog", Advised("no good"))
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "prog: no good\n  try this\n  or \\x07that\n")
    print_error("prog", Advised("no good"), as_json=True)
    shown = capsys.readouterr()
    assert (json.loads(shown.out)["code"], shown.err) == ("bad", "")


@pytest.mark.parametrize("question", [confirm, ask_secret])
def test_without_a_terminal_nobody_is_asked(question: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(LookupError, match="Not a terminal"):
        question("Go ahead?", LookupError)


@pytest.mark.parametrize(
    ("typed", "agreed"), [("y\n", True), ("YES\n", True), ("\n", False), ("", False)]
)
def test_only_yes_is_yes(typed: str, agreed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    shown = io.StringIO()
    assert confirm("Delete \x1b[8mit?", LookupError, shown) is agreed
    assert shown.getvalue() == "Delete \\x1b[8mit? [y/N] "


def test_progress_is_a_line_each_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as report:
        report(1, 2, "half \x1b[1mway")
    assert capsys.readouterr().err == "half \\x1b[1mway\n"


def test_progress_on_a_terminal_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress() as report:
        report(1, 2, "[b]half way")
    shown = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "[b]half way" in shown and shown.endswith(("\x1b[2K", "\x1b[?25h"))
