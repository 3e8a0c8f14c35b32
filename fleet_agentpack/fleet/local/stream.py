"""Reads a program's output once, as it grows: what was read, and how far that goes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from msgspec import Struct

from fleet_agentpack.fleet.models import shorten
from fleet_agentpack.fleet.readable import newest

MAX_LINE = 4_000_000  # a longer line of output cannot be a result
CHUNK = 1 << 20
MAX_DENIALS = 20
LONGEST_PROGRESS = 300
JsonObject = Mapping[str, object]


class Reading(Struct, frozen=True):
    """Where in the JSON output one fact is found."""

    field: Literal["text", "error", "failed", "session", "cost", "denied", "asked"]
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
    denied: tuple[str, ...] = ()  # what it wanted to do and was not allowed to
    asked: str | None = None  # a question that it put to the user
    progress: str | None = None  # what it said or did last, on one line


@dataclass(frozen=True)
class OutputRow:
    """One object of a program's output."""

    fields: JsonObject

    def at(self, path: str) -> object:
        """What is at a dotted path; None if there is nothing."""
        found: object = self.fields
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found


@dataclass
class Stream:
    """How far an output was read, and what was found in it."""

    offset: int = 0
    rows: int = 0  # objects seen
    found: dict[str, Any] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)
    progress: str | None = None
    skipping: bool = False  # within a line that is too long
    whole: bool = False  # there will be no more

    def advance(self, output: Path, readings: Sequence[Reading], *, ended: bool) -> bool:
        """Read on from where the last reading stopped; returns whether there was news."""
        before = self.offset
        try:
            if output.stat().st_size == before:
                return False
            with output.open("rb") as stream:
                stream.seek(before)
                for line in self._lines(stream, ended):
                    self._take(line, readings)
            if ended and not self.rows and self.offset <= MAX_LINE:
                self._take(output.read_bytes(), readings)  # one object on several lines
        except OSError:
            return False
        return self.offset != before

    @property
    def result(self) -> ProgramResult:
        """What the output has told so far."""
        cost = self.found.get("cost")
        return ProgramResult(
            text=_text(self.found.get("text")),
            error=_text(self.found.get("error")),
            failed=bool(self.found.get("failed")),
            session=_text(self.found.get("session")),
            cost_usd=float(cost) if isinstance(cost, int | float) else None,
            denied=tuple(self.denied),
            asked=_text(self.found.get("asked")),
            progress=self.progress,
        )

    def _lines(self, stream: BinaryIO, ended: bool) -> Iterator[bytes]:
        """The whole lines; the last one also without its end, once there will be no more."""
        rest = b""
        while chunk := stream.read(CHUNK):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                self.offset += len(line) + 1
                if not self.skipping:
                    yield line
                self.skipping = False
            if len(rest) > MAX_LINE:
                self.offset, rest, self.skipping = self.offset + len(rest), b"", True
        if ended and rest:
            self.offset += len(rest)
            if not self.skipping:
                yield rest

    def _take(self, line: bytes, readings: Sequence[Reading]) -> None:
        row = _parsed(line)
        told = newest(row.fields if row else line.decode("utf-8", "replace"))
        self.progress = shorten(told, LONGEST_PROGRESS) if told else self.progress
        if row is None:
            return
        self.rows += 1
        for reading in readings:
            if all(row.at(path) == value for path, value in reading.when.items()):
                value = row.at(reading.path)
                if reading.field == "denied":
                    self.deny(value)
                elif value is not None:
                    self.found[reading.field] = value

    def deny(self, value: object) -> None:
        """Take down what was denied, or a question that was put as a request."""
        for each in value if isinstance(value, list) else [value]:
            told = _denial(each)
            if isinstance(each, dict) and each.get("tool_name") == "AskUserQuestion":
                self.found["asked"] = _question(each)
            elif told and told not in self.denied and len(self.denied) < MAX_DENIALS:
                self.denied.append(told)


def _denial(value: object) -> str | None:
    """What was denied, as a person reads it: `Bash: git push`."""
    if not isinstance(value, dict):
        return _text(value)
    given = value.get("tool_input")
    told = None
    if isinstance(given, dict):
        told = next((given[key] for key in ("command", "file_path", "url") if key in given), None)
    return ": ".join(str(part)[:200] for part in (value.get("tool_name"), told) if part) or None


def _question(value: JsonObject) -> str:
    asked = OutputRow(value).at("tool_input.questions")
    rows = [row for row in asked if isinstance(row, dict)] if isinstance(asked, list) else []
    return " ".join(str(row.get("question", "")) for row in rows) or "The program asks something."


def _parsed(text: bytes) -> OutputRow | None:
    """A JSON object; None if the text is anything else."""
    if len(text) > MAX_LINE or not text.lstrip().startswith(b"{"):
        return None
    with suppress(ValueError, RecursionError):
        return OutputRow(json.loads(text))
    return None


def _text(value: object) -> str | None:
    if isinstance(value, list):
        value = "; ".join(each for each in value if isinstance(each, str))
    return value if isinstance(value, str) and value else None
