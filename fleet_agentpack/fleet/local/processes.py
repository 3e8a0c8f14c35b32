"""Finds and ends the processes of a task, whoever started them and whoever their parent is now."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TASK_VARIABLE = "FLEET_AGENTPACK_TASK"  # marks every process of a task
END_S = 3.0
POLL_S = 0.05


@dataclass(frozen=True)
class Target:
    """The process that the runner started (`process.json`)."""

    pid: int
    inner: int | None = None  # the first process inside the sandbox
    at: float = 0.0  # when


def signal_target(target: Target | None, number: int, lock: Path) -> None:
    """Signal a program; one that was never recorded is found by the lock that it holds."""
    if target is None:
        for pid in _holders(lock, f"{TASK_VARIABLE}={lock.parent.name}".encode()):
            _kill(pid, number)
        return
    if target.inner is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(target.pid, number)
        return
    # An interrupt of the sandbox would kill the program at once: only the program gets it.
    inside = _children(target.inner) if number != signal.SIGKILL else []
    for pid in inside or [target.inner, target.pid]:
        _kill(pid, number)


def end_marked(variable: str, value: str, target: Target | None) -> None:
    """Kill every process that has a variable in its environment, and the program's own group."""
    if target is not None and target.inner is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(target.pid, signal.SIGKILL)
    mark = f"{variable}={value}".encode()
    deadline = time.monotonic() + END_S
    while pids := list(_matching(lambda folder: _has_mark(folder, mark))):
        for pid in pids:
            _kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(POLL_S)


def is_of_this_boot(at: float) -> bool:
    """Whether a moment is after this machine was started; where that is not sure, it is not."""
    up_s = (
        time.clock_gettime(time.CLOCK_BOOTTIME)
        if hasattr(time, "CLOCK_BOOTTIME")
        else time.monotonic()
    )
    return at > time.time() - up_s


def _has_mark(folder: Path, mark: bytes) -> bool:
    return mark in (folder / "environ").read_bytes().split(b"\0")


def _holders(lock: Path, mark: bytes) -> Iterator[int]:
    """The processes of a task that have its lock; others may have it open to look at it."""
    name = str(lock.resolve())

    def holds(folder: Path) -> bool:
        descriptors = (folder / "fd").iterdir()
        return any(os.readlink(each) == name for each in descriptors) and _has_mark(folder, mark)  # noqa: PTH115

    return _matching(holds)


def _matching(test: Callable[[Path], bool]) -> Iterator[int]:
    """Other processes than this one for which a test of their /proc folder holds."""
    if not PROC.is_dir():  # not Linux: process groups have to do
        return
    for folder in PROC.iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):
                if test(folder) and not _is_zombie(folder):
                    yield int(folder.name)


def _is_zombie(folder: Path) -> bool:
    return (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in (PROC / f"{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
