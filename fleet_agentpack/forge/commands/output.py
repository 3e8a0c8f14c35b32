"""How forge's answers look on a terminal, and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from fleet_agentpack.console.terminal import Paint, printable, table
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.results import ForkDiff, Validation
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.results import UNKNOWN, jsonable

LONGEST_CELL = 60
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True)
class Output:
    """Prints results to standard output, warnings and refusals to standard error."""

    paint: Paint
    as_json: bool

    def show(self, result: object) -> None:
        """A result as readable YAML."""
        if not self._json(result):
            self._warn(result)
            plain = jsonable(result)
            plain.pop("warnings", None)
            print(printable_lines(yaml12.dump(plain)), end="")

    def value(self, value: object) -> None:
        """One value, bare when it is text."""
        print(printable(value) if isinstance(value, str) else json.dumps(value, indent=2))

    def rows(self, result: object, key: str, columns: Sequence[str]) -> None:
        """A list as a table, and how much of it there is."""
        if self._json(result):
            return
        self._warn(result)
        rows = getattr(result, key)
        if rows:
            cells = [[_cell(getattr(row, name)) for name in columns] for row in rows]
            print(table(columns, cells, self.paint))
        total = getattr(result, "total", len(rows))
        shown = "" if total == len(rows) else f", {len(rows)} shown"
        print(self.paint(f"{key}: {total}{shown}", "dim"))

    def validation(self, result: Validation) -> None:
        """A validation's verdict and everything it found."""
        if self._json(result):
            return
        groups = (("error", "red", result.errors), ("warning", "yellow", result.warnings))
        for kind, colour, issues in groups:
            for each in issues:
                where = f"{each.field}: " if each.field else ""
                print(f"{self.paint(kind, colour)}  {printable(where + each.message)}")
        verdict = self.paint("valid", "green") if result.valid else self.paint("invalid", "red")
        print(f"{printable(result.path)}: {verdict}")

    def diff(self, result: ForkDiff) -> None:
        """A unified diff in colour."""
        self._warn(result)
        for line in "" if result.unified is UNKNOWN else result.unified.splitlines():
            colour = _DIFF_COLOURS.get(line[:1])
            print(self.paint(printable(line), colour) if colour else printable(line))
        counts = result.summary
        line = f"{counts.added} added, {counts.removed} removed, {counts.modified} modified"
        print(self.paint(line, "dim"))

    def done(self, result: object, *lines: str) -> None:
        """What a command that writes has done."""
        if not self._json(result):
            self._warn(result)
            for line in lines:
                print(printable(line))

    def refuse(self, error: ForgeError) -> None:
        """An error with what to do next."""
        if self._json(error.payload()):
            return
        sys.stderr.write(f"fleet-agentpack forge: {printable(str(error))}\n")
        for step in error.advice():
            sys.stderr.write(f"  {printable(step)}\n")

    def _json(self, result: object) -> bool:
        if self.as_json:
            print(json.dumps(jsonable(result), indent=2, ensure_ascii=False))
        return self.as_json

    def _warn(self, result: object) -> None:
        warnings = getattr(result, "warnings", ())
        for warning in () if warnings is UNKNOWN else warnings:
            sys.stderr.write(f"warning: {printable(warning)}\n")


def printable_lines(text: str) -> str:
    """Text of several lines with its control characters made visible."""
    return "".join(printable(line) + "\n" for line in text.splitlines())


def _cell(value: object) -> str:
    if value is UNKNOWN:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"
