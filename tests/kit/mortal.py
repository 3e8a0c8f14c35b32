"""Disks that die, fill up or refuse at their n-th step."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from typing import Any

from fleet_agentpack.kit.disk import Disk

STEPS = (
    "create",
    "symlink",
    "rename",
    "link",
    "link_many",
    "remove",
    "make_directory",
    "remove_directory",
    "remove_tree",
)


class Counting(Disk):
    """Counts its steps, and calls `at_step` before each."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.steps: list[str] = []

    def at_step(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        """Called before a step happens."""


def _counted(name: str) -> Any:
    def step(self: Counting, *arguments: Any, **options: Any) -> Any:
        self.steps.append(name)
        self.at_step(len(self.steps) - 1, name, arguments)
        return getattr(super(Counting, self), name)(*arguments, **options)

    return step


for _name in STEPS:
    setattr(Counting, _name, _counted(_name))


class Mortal(Counting):
    """The process is killed before a step; a file being written is left half-written."""

    fatal = -1
    halfway = False

    def at_step(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number != self.fatal:
            return
        if self.halfway and name == "create":
            path, data = arguments[0], arguments[1]
            with open(path, "wb") as stream:
                stream.write(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)


class Failing(Counting):
    """A step fails with an error of the system: once, or from then on whatever needs space."""

    number = -1
    code = errno.ENOSPC
    lasting = False

    def at_step(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        needs_space = name in ("create", "make_directory")
        full = self.lasting and number > self.number >= 0 and needs_space
        if number == self.number or (full and self.code == errno.ENOSPC):
            if name == "create":
                with open(arguments[0], "wb") as stream:
                    stream.write(arguments[1][:3])
            raise OSError(self.code, os.strerror(self.code), arguments[0])


def in_child(work: Callable[[], Any]) -> int:
    """Run something in a forked child; the exit status, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a forked child must never return
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
