"""Hashes of files, remembered by their stat so that an unchanged file is not read again.

An entry is believed only while device, inode, size, modification time and change time all agree,
and is kept only for files that had been left alone for longer than the file system's clock can
blur. The file lives in the user's cache directory; when it cannot be read or written, everything
still works.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from array import array
from collections.abc import Callable
from pathlib import Path

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.support.files import write_atomic

FORMAT = b"fleet-agentpack hashes 1\n"
FINE_CLOCK_NS = 100_000_000  # above the 10 ms tick of a kernel's coarse clock
COARSE_CLOCK_NS = 2_000_000_000  # FAT keeps even seconds, HFS+ whole ones
KEPT_DAYS = 60
_WHOLE_READ = 1 << 20
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_READ_PLAIN = _READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

Entry = tuple[int, int, int, int, int, str]  # mtime_ns, ctime_ns, inode, size, device, sha256
_COLUMNS = "qqQqQ"


class HashCache:
    """The hashes of one repo's sources and outputs."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._dirty = False
        self.entries: dict[str, Entry] = _load(file) if file else {}

    def digest(self, path: str, status: os.stat_result) -> str:
        """The hash of a regular file whose stat was just taken. Raises `OSError`."""
        entry = self.entries.get(path)
        if (
            entry is not None
            and entry[0] == status.st_mtime_ns
            and entry[1] == status.st_ctime_ns
            and entry[2] == status.st_ino
            and entry[3] == status.st_size
            and entry[4] == status.st_dev
        ):
            return entry[5]
        sha256 = hash_file(path, status.st_size)
        self._remember(path, status, sha256)
        return sha256

    def learn(self, path: str) -> tuple[str, os.stat_result]:
        """The hash and stat of a regular file that is not known yet, opened only once.

        Raises `OSError` for a symbolic link, and for what is no regular file.
        """
        descriptor = os.open(path, _READ_PLAIN)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError(21, "not a regular file", path)
            sha256 = _hash(descriptor, status.st_size)
        finally:
            os.close(descriptor)
        self._remember(path, status, sha256)
        return sha256, status

    def _remember(self, path: str, status: os.stat_result, sha256: str) -> None:
        mtime, ctime = status.st_mtime_ns, status.st_ctime_ns
        if settled(mtime, ctime):
            size = status.st_size
            self.entries[path] = (mtime, ctime, status.st_ino, size, status.st_dev, sha256)
            self._dirty = True
        else:
            self.entries.pop(path, None)

    def save(self, used: Callable[[], set[str]]) -> None:
        """Keep what was learnt, dropping what nobody used once it is the greater part."""
        if not self._dirty or self._file is None:
            return
        self._dirty = False
        entries, wanted = dict(self.entries), used()
        if len(entries) > 2 * len(wanted) + 1000:
            entries = {path: entry for path, entry in entries.items() if path in wanted}
            self.entries = entries
        try:
            write_atomic(self._file, _encode(entries), mode=0o600)
            _prune(self._file.parent)
        except (OSError, ValueError, OverflowError):
            return  # a cache that cannot be written is done without


def hash_file(path: str, size: int) -> str:
    """The SHA-256 of a file's bytes; links are followed. Raises `OSError`."""
    descriptor = os.open(path, _READ)
    try:
        return _hash(descriptor, size)
    finally:
        os.close(descriptor)


def _hash(descriptor: int, size: int) -> str:
    if size < _WHOLE_READ:
        data = os.read(descriptor, size + 1)
        if len(data) == size:  # all of it, unless the file is growing under us
            return hashlib.sha256(data).hexdigest()
        os.lseek(descriptor, 0, os.SEEK_SET)
    digest = hashlib.sha256()
    while chunk := os.read(descriptor, _WHOLE_READ):
        digest.update(chunk)
    return digest.hexdigest()


def hash_at(path: str) -> str:
    """The SHA-256 of a file, straight from the disk. Raises `DeployError`."""
    try:
        return hash_file(path, os.stat(path).st_size)
    except OSError as error:
        raise DeployError.io(path, error, "read") from error


def cache_file(directory: Path, *names: str) -> Path:
    """The cache file for one combination of places."""
    key = hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()
    return directory / "hashes" / key[:24]


def settled(mtime: int, ctime: int) -> bool:
    """Whether a later change of a file is bound to show in its stat."""
    coarse = mtime % 1_000_000_000 == 0 and ctime % 1_000_000_000 == 0
    blur = COARSE_CLOCK_NS if coarse else FINE_CLOCK_NS
    return time.time_ns() - (mtime if mtime > ctime else ctime) > blur


def _encode(entries: dict[str, Entry]) -> bytes:
    """Column by column, which is read and written ten times as fast as JSON."""
    *numbers, digests = zip(*entries.values(), strict=True) if entries else [()] * 6
    columns = [
        array(code, column).tobytes() for code, column in zip(_COLUMNS, numbers, strict=True)
    ]
    paths = "\0".join(entries).encode("utf-8", "surrogateescape")
    body = b"".join([len(entries).to_bytes(8), *columns, bytes.fromhex("".join(digests)), paths])
    return FORMAT + hashlib.sha256(body).digest() + body


def _load(file: Path) -> dict[str, Entry]:
    try:
        return _decode(file.read_bytes())
    except (OSError, ValueError):
        return {}


def _decode(data: bytes) -> dict[str, Entry]:
    """The entries of a cache file. Raises `ValueError` for a file that is not whole."""
    head = len(FORMAT) + 32
    if (
        not data.startswith(FORMAT)
        or hashlib.sha256(data[head:]).digest() != data[head - 32 : head]
    ):
        raise ValueError("not a whole cache file")
    count, place = int.from_bytes(data[head : head + 8]), head + 8
    columns = []
    for code in _COLUMNS:
        column = array(code)
        column.frombytes(data[place : place + 8 * count])
        columns.append(column)
        place += 8 * count
    digests = data[place : place + 32 * count].hex()
    paths = data[place + 32 * count :].decode("utf-8", "surrogateescape").split("\0")
    shas = [digests[start : start + 64] for start in range(0, 64 * count, 64)]
    return dict(zip(paths, zip(*columns, shas, strict=True), strict=False)) if count else {}


def _prune(directory: Path) -> None:
    oldest = time.time() - KEPT_DAYS * 86_400
    for entry in os.scandir(directory):
        if entry.stat(follow_symlinks=False).st_mtime < oldest:
            os.unlink(entry.path)
