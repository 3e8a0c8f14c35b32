"""The last runs of every tool: when, with which arguments, how it ended, and its masked output."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.results import Run, RunResult
from fleet_agentpack.kit.files import UnreadableError, read_text, write_atomic
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock
from fleet_agentpack.kit.results import jsonable, to_text

MOST_KEPT = 50
LONGEST_OUTPUT = 2_000


@dataclass
class Running:
    """A run under way; whoever runs it says how it went."""

    result: RunResult | None = None


class Runs:
    """A file for each tool, for the user's eyes alone; without it, tools run all the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, tool: str) -> tuple[Run, ...]:
        """The last runs of a tool, newest first."""
        try:
            lines = read_text(self._path(tool)).splitlines()
        except (FileNotFoundError, UnreadableError):
            return ()
        return tuple(reversed([*_read(lines)]))

    @contextmanager
    def kept(self, tool: str, given: Iterable[str]) -> Iterator[Running]:
        """Keep how the run in this block ends."""
        started = Run(datetime.now(UTC).isoformat("T", "seconds"), tuple(given), "ok", 0, "")
        running = Running()
        try:
            yield running
        except EnactError as error:
            told = error.details.get("stdout") or error.details.get("stderr") or error.message
            took = int(error.details.get("duration_ms", 0))
            ended = replace(started, status=error.code, duration_ms=took, output=str(told))
            self._add(tool, ended)
            raise
        if running.result:
            output = running.result.output
            text = output if isinstance(output, str) else to_text(jsonable(output))
            ended = replace(started, duration_ms=running.result.duration_ms, output=text)
            self._add(tool, ended)

    def _add(self, tool: str, run: Run) -> None:
        path = self._path(tool)
        line = to_text(jsonable(replace(run, output=run.output[:LONGEST_OUTPUT])))
        lock = self._folder / ".lock"
        with contextlib.suppress(OSError, LockTimeoutError), file_lock(lock, timeout_s=2):
            before = [to_text(jsonable(each)) for each in reversed(self.of(tool))]
            kept = [*before, line][-MOST_KEPT:]
            write_atomic(path, "".join(f"{each}\n" for each in kept), mode=0o600)

    def _path(self, tool: str) -> Path:
        return self._folder / f"{tool.replace('/', '__')}.jsonl"


def _read(lines: Iterable[str]) -> Iterator[Run]:
    """The runs in a file's lines; a line that is none is left out."""
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            row: Mapping[str, Any] = json.loads(line)
            names = tuple(map(str, row["arguments"]))
            took, output = int(row["duration_ms"]), str(row["output"])
            yield Run(str(row["time"]), names, str(row["status"]), took, output)
