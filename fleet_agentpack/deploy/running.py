"""One deploy or rollback at a time, and what commands that only read say about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.transaction import pending
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock


@contextmanager
def locked(home: Home, timeout_s: float) -> Iterator[None]:
    """Hold the home's lock. Raises `E_BUSY`."""
    try:
        with file_lock(home.lock, timeout_s=timeout_s):
            yield
    except LockTimeoutError as error:
        raise DeployError(
            "E_BUSY",
            "another deploy or rollback is running; try again when it has finished",
            lock=str(home.lock),
        ) from error
    except OSError as error:
        raise DeployError.io(home.lock, error, "lock") from error


def unfinished(home: Home) -> list[str]:
    """A warning while a transaction is running or was interrupted."""
    reads.at(home.journal)
    try:
        if not home.journal.exists():
            return []
        reads.beyond_files()  # who holds the lock is in no file
        found = pending(home)
    except DeployError as error:
        return [error.message]
    if found is None:
        return []
    try:
        with file_lock(home.lock, timeout_s=0):
            return [
                f"an interrupted deploy ({found}) is pending; the next deploy or rollback"
                " will finish or undo it"
            ]
    except (LockTimeoutError, OSError):
        return [f"a deploy ({found}) is running; this result may show it half done"]
