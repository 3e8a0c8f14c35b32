"""Writes files: under the lock of their directory, atomically, and with errors that explain."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.journal import SwapError
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock


@contextmanager
def writing_below(root: Path) -> Iterator[None]:
    """Hold the lock of a `.fractary` directory. Raises `ForgeError` when a write fails inside."""
    try:
        with file_lock(root / ".forge.lock"):
            yield
    except LockTimeoutError as error:
        raise ForgeError.conflict(
            f"another command is writing to {root}", "Try again when it has ended"
        ) from error
    except OSError as error:
        raise ForgeError.unwritable(Path(error.filename or root), error) from error
    except SwapError as error:
        raise ForgeError.conflict(
            str(error), "Remove the cause, then run the command again", path=error.path
        ) from error


def write_json(path: Path, data: Any) -> None:
    """Write JSON, indented for people."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file; a symbolic link to it stays one."""
    write_atomic(Path(os.path.realpath(path)), text, durable=True)


def timestamp(now: datetime) -> str:
    """A time as the original program writes it."""
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
