"""Says that a transaction is running or was cut short, for commands that only read."""

from __future__ import annotations

from fleet_agentpack.deploy import looks
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.transaction import pending
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock


def unfinished(home: Home) -> list[str]:
    """A warning while a transaction is running, or after one was interrupted."""
    looks.at(home.journal)
    try:
        if not home.journal.exists():
            return []
        looks.beyond_files()
        found = pending(home)
    except DeployError as error:
        return [error.message]
    if found is None:
        return []
    try:
        with file_lock(home.lock, timeout_s=0):
            return [
                f"an interrupted deploy ({found}) is pending; the next deploy or rollback will"
                " finish or undo it"
            ]
    except (LockTimeoutError, OSError):
        return [f"a deploy ({found}) is running; this result may show it half done"]
