"""Program profiles: how a task becomes a command, and how the program's output is read."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.shapes import Rule, ShapeError, convert

DEFAULT_PROGRAM = "claude"
MAX_LINE = 4_000_000  # a longer line of output cannot be a result
JsonObject = Mapping[str, object]
Arguments = Annotated[tuple[str, ...], Rule("a list of arguments, each of them text")]
Command = Annotated[tuple[str, ...], Rule("a list: the program and its arguments", bool)]
_SLOT = re.compile(r"\{(session|instructions|prompt)\}")


class Reading(Struct, frozen=True):
    """Where in the JSON output one fact is found."""

    field: Literal["text", "error", "failed", "session", "cost"]
    path: str
    when: dict[str, Any] = {}


@dataclass(frozen=True)
class ProgramResult:
    """What a program reported about its own work."""

    text: str | None = None
    error: str | None = None
    failed: bool = False
    session: str | None = None
    cost_usd: float | None = None


class Program(Struct, frozen=True, forbid_unknown_fields=True):
    """How to run one kind of coding agent unattended: `[fleet.programs.NAME]`."""

    command: Command
    first: Arguments = ()
    next: Arguments = ()  # none: each task starts a new conversation
    instructions: Arguments = ()
    prompt: Arguments = ()
    unset: Arguments = ()
    readings: tuple[Reading, ...] = ()

    def launch(
        self, task: str, instructions: str, session: str, *, continues: bool
    ) -> tuple[list[str], str]:
        """The command and the standard input for a task."""
        prompt = task
        if not self.instructions and not continues:
            prompt = f"{instructions}\n\nYour task:\n{task}"
        values = {"session": session, "instructions": instructions, "prompt": prompt}
        arguments = (
            *self.command,
            *self.instructions,
            *(self.next if continues else self.first),
            *self.prompt,
        )
        command = [_SLOT.sub(lambda match: values[match[1]], part) for part in arguments]
        return command, "" if self.prompt else prompt

    def read(self, output: Path) -> ProgramResult:
        """What the program's output tells so far."""
        found: dict[str, object] = {}
        for row in _objects(output):
            for reading in self.readings:
                if all(_at(row, path) == value for path, value in reading.when.items()):
                    value = _at(row, reading.path)
                    if value is not None:
                        found[reading.field] = value
        cost = found.get("cost")
        return ProgramResult(
            text=_text(found.get("text")),
            error=_text(found.get("error")),
            failed=bool(found.get("failed")),
            session=_text(found.get("session")),
            cost_usd=float(cost) if isinstance(cost, int | float) else None,
        )


def load_programs(configured: Mapping[str, object]) -> dict[str, Program]:
    """The programs that ship with the package and those of the configuration file. Raises 503."""
    shipped = tomllib.loads(
        resources.files(__package__).joinpath("programs.toml").read_text(encoding="utf-8")
    )
    try:
        return convert(dict[str, Program], {**shipped, **configured}, ("fleet", "programs"))
    except ShapeError as error:
        raise FleetError.unavailable(f"{error}.") from error


def _objects(output: Path) -> Iterator[JsonObject]:
    """The JSON objects in an output: one per line, or a single one."""
    try:
        with output.open("rb") as stream:
            several = False
            for line in stream:
                if row := _parsed(line):
                    several = True
                    yield row
        if not several and output.stat().st_size <= MAX_LINE:
            yield _parsed(output.read_bytes())
    except OSError:
        return


def _parsed(text: bytes) -> JsonObject:
    """A JSON object; empty if the text is anything else."""
    if len(text) > MAX_LINE or not text.lstrip().startswith(b"{"):
        return {}
    with suppress(ValueError, RecursionError):
        row: JsonObject = json.loads(text)
        return row
    return {}


def _at(row: JsonObject, path: str) -> object:
    found: object = row
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
