"""A row of `doctor --all`: what one check found and, if something is wrong, what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleet_agentpack.kit import process
from fleet_agentpack.kit.errors import AppError

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Check:
    """One line of the report; a note is worth knowing, a problem stops something from working."""

    area: str
    subject: str
    state: State
    detail: str
    advice: str = ""


def program(area: str, names: Sequence[str], path: str | None, why: str, advice: str) -> Check:
    """Whether one of several programs is installed; they are optional: a missing one is a note."""
    for name in names:
        found = shutil.which(name, path=path)
        if found:
            return Check(area, name, "ok", _version_of(found))
    return Check(area, " or ".join(names), "note", f"not installed; {why}", advice)


def directory(area: str, subject: str, path: Path) -> Check:
    """Whether a directory can be written, or created."""
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        detail = f"{path} cannot be created: {existing} is not a directory"
        return Check(area, subject, "problem", detail, f"move {existing} away")
    if os.access(existing, os.W_OK | os.X_OK):
        return Check(area, subject, "ok", str(path))
    advice = f"make {existing} writable for you"
    return Check(area, subject, "problem", f"{path} cannot be written", advice)


def failure(
    area: str, subject: str, error: AppError, otherwise: str, state: State = "problem"
) -> Check:
    """An expected error as a line of the report, with its own advice if it has any."""
    return Check(area, subject, state, str(error), "; ".join(error.advice()) or otherwise)


def _version_of(path: str) -> str:
    try:
        lines = process.run([path, "--version"], timeout_s=10).text.strip().splitlines()
    except (OSError, process.ProcessTimeoutError):
        return path
    return lines[0].strip() if lines else path
