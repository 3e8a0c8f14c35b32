"""A swap written down, so that another process can finish or undo it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from fleet_agentpack.kit.disk import State
from fleet_agentpack.kit.paths import directory_of

VERSION = 3
TEMPORARY_PREFIX = ".agentpack-tmp-"  # what a kill leaves beside a file; recovery removes it


class SwapError(Exception):
    """A swap that could not be carried out; `path` is where."""

    def __init__(
        self,
        kind: Literal["changed", "stuck", "undone_in_part", "unreadable"],
        path: str,
        message: str,
        left: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.path = path
        self.left = left


def changed(path: str) -> SwapError:
    """The error for a path that is not as it was when the swap was prepared."""
    return SwapError("changed", path, f"{path} changed while the command was running; run it again")


def stuck(journal: Path, error: OSError) -> SwapError:
    """The error for a swap that can be neither finished nor undone now."""
    reason = f"cannot use {error.filename}: {error.strerror}" if error.filename else str(error)
    return SwapError("stuck", str(journal), reason)


class Row(NamedTuple):
    """One path's way from before to after; the names are relative to the stage."""

    path: str
    before: State | None
    after: State | None
    backup: str | None = None
    staged: str | None = None
    moved: bool = False  # whether contents are moved rather than copied, as directories must be


@dataclass(frozen=True)
class Journal:
    """A whole swap, written down so that another process can finish it."""

    id: str
    rows: tuple[Row, ...]
    directories: tuple[str, ...]  # made by the swap, outermost first
    keep: str = ""  # the part of the stage that is kept when all is done

    def temporary(self, number: int) -> str:
        """Where the new content of a row is for a moment, beside its place."""
        directory = directory_of(self.rows[number].path).rstrip("/")
        return f"{directory}/{TEMPORARY_PREFIX}{self.id}-{number}"

    def encode(self) -> bytes:
        """The journal as text."""
        return json.dumps(
            {"version": VERSION, **vars(self)}, ensure_ascii=False, separators=(",", ":")
        ).encode("utf-8", "surrogateescape")

    @classmethod
    def load(cls, path: Path) -> Journal | None:
        """The pending journal, if there is one. Raises `OSError`, `SwapError`."""
        try:
            document = json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
            if document["version"] == 2:  # it kept the whole stage, or nothing
                document["keep"] = "." if document["keep"] else ""
            elif document["version"] != VERSION:
                raise ValueError("unknown version")
            rows = tuple(
                Row(place, before and State(*before), after and State(*after), *names)
                for place, before, after, *names in document["rows"]
            )
            return cls(str(document["id"]), rows, tuple(document["directories"]), document["keep"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise SwapError("unreadable", str(path), f"{path} cannot be understood") from error


def missing_directories(rows: Sequence[Row]) -> tuple[str, ...]:
    """The directories that the rows need and that are not there, outermost first."""
    known: dict[str, bool] = {}
    missing: list[str] = []
    for row in rows:
        directory = directory_of(row.path) if row.after else "/"
        chain = []
        while directory not in known:
            known[directory] = os.path.isdir(directory)
            if known[directory]:
                break
            chain.append(directory)
            directory = directory_of(directory)
        missing.extend(reversed(chain))
    return tuple(missing)
