"""Hashes of files, remembered by their stat so that an unchanged file is not read again.

An entry is believed only while device, inode, size, modification time and change time all agree,
and is kept only for files that had been left alone for longer than the file system's clock can
blur. The file lives in the user's cache directory; when it cannot be read or written, everything
still works.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.support.files import write_atomic

FORMAT = 1
FINE_CLOCK_NS = 100_000_000  # above the 10 ms tick of a kernel's coarse clock
COARSE_CLOCK_NS = 2_000_000_000  # FAT keeps even seconds, HFS+ whole ones
KEPT_DAYS = 60
_WHOLE_READ = 1 << 20
_O_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)

Entry = tuple[int, int, int, int, int, str]  # mtime_ns, ctime_ns, inode, size, device, sha256


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
        return self._hash(path, status)

    def _hash(self, path: str, status: os.stat_result) -> str:
        sha256 = hash_file(path, status.st_size)
        if _settled(status):
            self.entries[path] = (
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_ino,
                status.st_size,
                status.st_dev,
                sha256,
            )
            self._dirty = True
        else:
            self.entries.pop(path, None)
        return sha256

    def save(self, used: set[str]) -> None:
        """Keep what was learnt, dropping what this call did not use once it is the greater part."""
        if not self._dirty or self._file is None:
            return
        self._dirty = False
        entries = dict(self.entries)
        if len(entries) > 2 * len(used) + 1000:
            entries = {path: entry for path, entry in entries.items() if path in used}
            self.entries = entries
        try:
            text = json.dumps({"format": FORMAT, "entries": entries}, separators=(",", ":"))
            write_atomic(self._file, text, mode=0o600)
            _prune(self._file.parent)
        except (OSError, ValueError):
            return  # a cache that cannot be written is done without


def hash_file(path: str, size: int) -> str:
    """The SHA-256 of a file's bytes; links are followed. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | _O_BINARY)
    try:
        if size < _WHOLE_READ:
            data = os.read(descriptor, size + 1)
            if len(data) == size:  # all of it, unless the file is growing under us
                return hashlib.sha256(data).hexdigest()
            os.lseek(descriptor, 0, os.SEEK_SET)
        digest = hashlib.sha256()
        while chunk := os.read(descriptor, _WHOLE_READ):
            digest.update(chunk)
        return digest.hexdigest()
    finally:
        os.close(descriptor)


def hash_at(path: str) -> str:
    """The SHA-256 of a file, straight from the disk. Raises `DeployError`."""
    try:
        return hash_file(path, os.stat(path).st_size)
    except OSError as error:
        raise DeployError.io(path, error, "read") from error


def cache_file(directory: Path, *names: str) -> Path:
    """The cache file for one combination of places."""
    key = hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()
    return directory / "hashes" / f"{key[:24]}.json"


def _settled(status: os.stat_result) -> bool:
    """Whether a later change of the file is bound to show in its stat."""
    touched = max(status.st_mtime_ns, status.st_ctime_ns)
    coarse = status.st_mtime_ns % 1_000_000_000 == 0 and status.st_ctime_ns % 1_000_000_000 == 0
    return time.time_ns() - touched > (COARSE_CLOCK_NS if coarse else FINE_CLOCK_NS)


def _load(file: Path) -> dict[str, Entry]:
    try:
        found = json.loads(file.read_bytes())
        if found["format"] != FORMAT:
            return {}
        return {str(path): _entry(*entry) for path, entry in found["entries"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _entry(mtime: int, ctime: int, inode: int, size: int, device: int, sha256: str) -> Entry:
    return (mtime, ctime, inode, size, device, sha256)


def _prune(directory: Path) -> None:
    oldest = time.time() - KEPT_DAYS * 86_400
    for entry in os.scandir(directory):
        if entry.stat(follow_symlinks=False).st_mtime < oldest:
            os.unlink(entry.path)
