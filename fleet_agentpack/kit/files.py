"""Atomic writes; the only module that replaces files."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path


def write_atomic(
    path: Path, content: bytes | str, *, mode: int | None = None, durable: bool = False
) -> None:
    """Replace a file in one step; readers see the old content or the new, never a part.

    An existing file keeps its permissions unless `mode` is given; a new one gets 0666 less umask.
    """
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:25]}.{secrets.token_hex(6)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(temporary, flags, 0o666 if mode is None else mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            wanted = mode if mode is not None else _mode_of(path)
            if wanted is not None:
                temporary.chmod(wanted)
            stream.write(data)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames inside a directory durable where the platform can."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode_of(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
