"""The text output of the forge commands: tables, YAML, verdicts, diffs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fleet_agentpack.console.command import Line
from fleet_agentpack.console.table import Table
from fleet_agentpack.console.text import Paint
from fleet_agentpack.forge.results import ForkDiff, Validation
from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.results import UNKNOWN, jsonable

_DIFF_COLOURS = {"+": ("green",), "-": ("red",), "@": ("cyan",)}
_CAPITAL = re.compile(r"(?=[A-Z])")


def as_yaml(result: object) -> Iterator[Line]:
    """A result as readable YAML, without its warnings."""
    plain = jsonable(result)
    plain.pop("warnings", None)
    yield from yaml12.dump(plain).splitlines()


def table(result: object, key: str, columns: Sequence[str], paint: Paint) -> Iterator[Line]:
    """A list as a table, and how much of it there is."""
    rows = getattr(result, key)
    if rows:
        headers = [_CAPITAL.sub(" ", name) for name in columns]
        yield Table(headers, [[_cell(getattr(row, name)) for name in columns] for row in rows])
    total = getattr(result, "total", len(rows))
    shown = "" if total == len(rows) else f", {len(rows)} shown"
    yield paint(f"{key}: {total}{shown}", "dim")


def validation(result: Validation, paint: Paint) -> Iterator[Line]:
    """A validation's verdict and everything it found."""
    groups = (("error ", "red", result.errors), ("warning ", "yellow", result.warnings))
    for kind, colour, issues in groups:
        for each in issues:
            where = f"{each.field}: " if each.field else ""
            yield paint(kind, colour), f"{where}{each.message}"
    verdict = paint("valid", "green") if result.valid else paint("invalid", "red")
    yield f"{result.path}:", verdict


def diff(result: ForkDiff, paint: Paint) -> Iterator[Line]:
    """A unified diff in colour."""
    for line in "" if result.unified is UNKNOWN else result.unified.splitlines():
        yield paint(line, *_DIFF_COLOURS.get(line[:1], ()))
    counts = result.summary
    yield paint(
        f"{counts.added} added, {counts.removed} removed, {counts.modified} modified", "dim"
    )


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is UNKNOWN else str(value)
