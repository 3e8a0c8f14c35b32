"""Bounded reading and atomic writes of whole files."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO, Literal

LARGEST_FILE = 16 * 1024 * 1024
WHOLE_READ = 1 << 20
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)

Kind = Literal["directory", "special", "below_a_file", "denied", "too_large", "not_text", "failed"]


_KINDS: dict[type[OSError], Kind] = {NotADirectoryError: "below_a_file", PermissionError: "denied"}


class UnreadableError(ValueError):
    """A file that is there but cannot be read or used; the message says why."""

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def read_bytes(path: Path, limit: int = LARGEST_FILE) -> bytes:
    """A whole regular file of bounded size; never waits for a pipe.

    Raises `FileNotFoundError` when there is none, else `UnreadableError`.
    """
    try:
        descriptor = os.open(path, _READ | getattr(os, "O_NONBLOCK", 0))
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind: Kind = "directory" if stat.S_ISDIR(status.st_mode) else "special"
                raise UnreadableError(kind, "not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                data = _whole(stream, status.st_size, limit) if status.st_size <= limit else b""
        finally:
            os.close(descriptor)
    except (FileNotFoundError, UnreadableError):
        raise
    except OSError as error:
        kind = _KINDS.get(type(error), "failed")
        raise UnreadableError(kind, error.strerror or "cannot be read") from error
    except ValueError as error:
        raise UnreadableError("failed", "not a usable path") from error
    size = max(status.st_size, len(data))
    if size > limit:
        raise UnreadableError("too_large", f"{size:,} bytes; at most {limit:,} are read")
    return data


def _whole(stream: BinaryIO, size: int, limit: int) -> bytes:
    """All of a file that says its size; a read of the limit would set aside as much memory."""
    data = stream.read(size + 1)
    return data + stream.read(limit + 1 - len(data)) if len(data) > size else data


def read_text(path: Path, limit: int = LARGEST_FILE) -> str:
    """Like `read_bytes`, as UTF-8 text without a byte order mark."""
    data = read_bytes(path, limit)
    if b"\x00" in data:
        raise UnreadableError("not_text", "a binary file, not text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError("not_text", f"not UTF-8 text (byte {error.start})") from error


def hash_file(path: str, size: int) -> str:
    """The SHA-256 of a file's bytes; links are followed. Raises `OSError`."""
    descriptor = os.open(path, _READ)
    try:
        return hash_open(descriptor, size)
    finally:
        os.close(descriptor)


def hash_open(descriptor: int, size: int) -> str:
    """The SHA-256 of an open file that is believed to have this size. Raises `OSError`."""
    if size < WHOLE_READ:
        data = os.read(descriptor, size + 1)
        if len(data) == size:  # all of it, unless the file is growing under us
            return hashlib.sha256(data).hexdigest()
        os.lseek(descriptor, 0, os.SEEK_SET)
    digest = hashlib.sha256()
    while chunk := os.read(descriptor, WHOLE_READ):
        digest.update(chunk)
    return digest.hexdigest()


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


def sync_directory(directory: str | Path) -> None:
    """Make renames inside a directory durable where the platform can."""
    if os.name == "nt":
        return
    descriptor = os.open(directory or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode_of(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
