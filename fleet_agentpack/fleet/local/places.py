"""The places that a project has for running tasks, and the line of tasks that wait for one.

A place is a file that a task's runner has locked. Who waits has a ticket, a link to the task's
folder; while the lock in that folder is held, it still waits. Only the standard library is used:
the runner waits here.
"""

import fcntl
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.2


@dataclass(frozen=True)
class Places:
    """As many as tasks of a project may run at once."""

    folder: Path
    count: int

    def take(self) -> int | None:
        """The lock of a free place; None if there is none."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(self.count):
            place = os.open(self.folder / str(number), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(place)
            else:
                return place
        return None

    def queue(self, task: Path) -> None:
        """Put a task, whose lock is held, at the end of the line."""
        line = self.folder / "line"
        line.mkdir(parents=True, exist_ok=True, mode=0o700)
        (line / f"{time.time_ns():020}-{task.name}").symlink_to(task)

    def waiting(self) -> list[Path]:
        """The tasks that wait, first come first."""
        found = []
        for ticket in sorted((self.folder / "line").glob("*")):
            with suppress(FileNotFoundError):  # its turn came while we looked
                task = ticket.readlink()
                if is_locked(task / "lock"):
                    found.append(task)
                else:
                    ticket.unlink()
        return found

    def wait(self, task: Path) -> int:
        """The lock of a place, once it is a task's turn."""
        while True:
            place = self.take() if self.waiting()[:1] == [task] else None
            if place is not None:
                for ticket in (self.folder / "line").glob(f"*-{task.name}"):
                    ticket.unlink(missing_ok=True)
                return place
            time.sleep(POLL_S)


def is_locked(path: Path) -> bool:
    """Whether somebody holds a lock; a shared one lets two callers look at once."""
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False
