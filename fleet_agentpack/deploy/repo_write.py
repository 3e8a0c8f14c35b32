"""Writes several files of a config repo together, or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError, io_errors
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.running import locked
from fleet_agentpack.kit.journal import SwapError
from fleet_agentpack.kit.swap import Area, New, Swap

LOCK_TIMEOUT_S = 10.0
_MARKS = ".agentpack-writing"  # there only while files are written, or after a kill


def finish_writing(home: Home, repo: Path, timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """Finish or undo what a killed process left half written. Raises `DeployError`."""
    if os.path.lexists(repo / _MARKS):
        with locked(home, timeout_s), io_errors(repo, "write"):
            _recover(repo, _swap_of(repo))


def half_written(repo: Path) -> list[str]:
    """A warning while files are being written, or after that was cut short."""
    reads.at(repo / _MARKS)
    if not os.path.lexists(repo / _MARKS / "journal.json"):
        return []
    return [f"{repo} is being written to, or that was cut short; the next apply finishes it"]


def write_together(repo: Path, files: Mapping[str, tuple[bytes, bool] | None]) -> None:
    """Give files of the repo new contents, with whether they are executable; None removes one.

    What a killed process left is finished or undone first. Raises `DeployError`.
    """
    with io_errors(repo, "write"):
        repo.mkdir(parents=True, exist_ok=True)
        swap = _swap_of(repo)
        changes: dict[Path, New] = {
            repo / name: _new(repo / name, *content) if content else None
            for name, content in files.items()
        }
        _recover(repo, swap, changes)


def _swap_of(repo: Path) -> Swap:
    marks = repo / _MARKS
    return Swap(Area(marks / "journal.json", marks / "staging", marks / "kept"))


def _recover(repo: Path, swap: Swap, changes: Mapping[Path, New] | None = None) -> None:
    """Finish what was cut short, then make changes, if there are any."""
    try:
        swap.recover()
        if changes:
            swap.replace(changes)
    except SwapError as error:
        raise DeployError.because("changed_meanwhile", str(error)) from error
    finally:
        if not swap.is_pending:
            with suppress(OSError):
                shutil.rmtree(repo / _MARKS)


def _new(path: Path, data: bytes, executable: bool) -> New:
    """The content of a file; one that exists keeps its mode."""
    return data if path.exists() or not executable else _script(data)


def _script(data: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(data)
        path.chmod(path.stat().st_mode | 0o111)

    return make
