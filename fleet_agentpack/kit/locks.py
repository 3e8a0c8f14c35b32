"""One advisory file lock with a timeout; the kernel drops it when its holder dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_INTERVAL_S = 0.02


class LockTimeoutError(TimeoutError):
    """Somebody else held the lock for longer than the caller was ready to wait."""


@contextmanager
def file_lock(path: Path, *, timeout_s: float = 10.0) -> Iterator[None]:
    """Hold an exclusive lock on `path`, which is created when missing and never removed.

    Raises `LockTimeoutError` when another process holds it for longer than `timeout_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        deadline = time.monotonic() + timeout_s
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise LockTimeoutError(f"{path} is locked by another process")
            time.sleep(POLL_INTERVAL_S)
        yield
    finally:
        os.close(descriptor)


if os.name == "nt":  # pragma: no cover - the branch for Windows
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
