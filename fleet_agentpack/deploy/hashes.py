"""Hashes of files, remembered by their stat so that an unchanged file is not read again.

An entry is believed only while device, inode, size, modification time and change time all agree,
and is kept only for files that had been left alone for longer than the file system's clock can
blur. The file lives in the user's cache directory; when it cannot be read or written, everything
still works.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import io_errors
from fleet_agentpack.deploy.model import FileState
from fleet_agentpack.kit.files import WHOLE_READ, hash_file, hash_open, write_atomic
from fleet_agentpack.kit.stamps import Stamp, settled, stamp_of

FORMAT = b"fleet-agentpack hashes 3\n"
KEPT_DAYS = 60
WORTH_WRITING = 200  # one new entry among fewer than these
_READ_PLAIN = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)

_COLUMNS = "qqQqQ"  # as in a stamp
_BATCH = 128  # files that are compared at once
_NAMES_OF = attrgetter("st_nlink")
_HAS_PLACES = os.stat in os.supports_dir_fd and os.stat in os.supports_follow_symlinks
_HAS_MODES = os.name != "nt"


_Look = Callable[[Sequence[str]], list[os.stat_result]]


class HashCache:
    """The states of one repo's sources and outputs, by path."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._learnt = 0  # entries since it was written
        self._now = 0
        self.entries: dict[str, FileState] = _load(file) if file else {}

    def look(self, path: str) -> FileState:
        """The state of a regular file, read only when it may have changed.

        Raises `OSError`, also for a symbolic link or a special file.
        """
        return self._as_known(path) or self._learn(path)

    def unchanged(self, paths: Iterable[str], top: str = "") -> dict[str, FileState]:
        """The states of those files that are known, and as they were; written for speed.

        The way to a file is shorter from a directory that all of them are in.
        """
        found: dict[str, FileState] = {}
        waiting = iter(paths)
        with _looking_from(top) as look:
            while batch := list(islice(waiting, _BATCH)):
                found.update(self._all_unchanged(batch, look) or self._unchanged_among(batch))
        return found

    def _all_unchanged(self, paths: Sequence[str], look: _Look) -> Iterable[tuple[str, FileState]]:
        """The states of files if all are known, as they were, and without other names."""
        try:
            states = [self.entries[path] for path in paths]
            seen = look(paths)
        except (KeyError, OSError):
            return ()
        if [state.stamp for state in states] != list(map(stamp_of, seen)):
            return ()
        return zip(paths, states, strict=True) if max(map(_NAMES_OF, seen)) == 1 else ()

    def _unchanged_among(self, paths: Iterable[str]) -> Iterator[tuple[str, FileState]]:
        for path in paths:
            with suppress(OSError):
                if (state := self._as_known(path)) is not None:
                    yield path, state

    def _as_known(self, path: str) -> FileState | None:
        """The state of a file that is known, if it is as it was. Raises `OSError`."""
        state = self.entries.get(path)
        if state is None:
            return None
        found = os.lstat(path)
        if state.stamp != stamp_of(found):
            return None
        if found.st_nlink > 1:
            reads.shared(path)
        return state

    def _learn(self, path: str) -> FileState:
        descriptor = os.open(path, _READ_PLAIN)
        try:
            found = os.fstat(descriptor)
            mode = found.st_mode
            if not stat.S_ISREG(mode):
                raise IsADirectoryError(errno.EISDIR, "not a regular file", path)
            if found.st_nlink > 1:
                reads.shared(path)
            size = found.st_size
            data = os.read(descriptor, size + 1) if size < WHOLE_READ else b""
            if data and len(data) == size:
                sha256 = hashlib.sha256(data).hexdigest()
            else:  # large, empty, or growing under us
                os.lseek(descriptor, 0, os.SEEK_SET)
                sha256 = hash_open(descriptor, size)
        finally:
            os.close(descriptor)
        stamp = stamp_of(found)
        state = FileState(sha256, may_execute(mode), is_private(mode), stamp)
        if settled(stamp, self._now) or self._is_settled(stamp):
            self.entries[path] = state
            self._learnt += 1
        else:
            self.entries.pop(path, None)
        return state

    def _is_settled(self, stamp: Stamp) -> bool:
        """Asks the clock, as is needed when an earlier time makes a file look too new."""
        self._now = time.time_ns()
        return settled(stamp, self._now)

    def save(self, used: Callable[[], set[str]]) -> None:
        """Write the cache; once most entries are unused, only the used ones.

        A few new ones among very many are not worth it: those files are read again.
        """
        if self._learnt * WORTH_WRITING <= len(self.entries) or self._file is None:
            return
        self._learnt = 0
        wanted = used()
        if len(self.entries) > 2 * len(wanted) + 1000:
            kept = {path: state for path, state in self.entries.items() if path in wanted}
            self.entries = kept
        try:
            write_atomic(self._file, _encode(self.entries), mode=0o600)
            _prune(self._file.parent)
        except (OSError, ValueError, OverflowError):
            return  # a cache that cannot be written is optional


@contextmanager
def _looking_from(top: str) -> Iterator[_Look]:
    """How to look at many files that are all below a directory."""
    try:
        directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY) if _HAS_PLACES and top else None
    except OSError:
        directory = None
    if directory is None:
        yield lambda paths: list(map(os.lstat, paths))
        return
    start = len(top.rstrip("/")) + 1
    lstat = partial(os.stat, dir_fd=directory, follow_symlinks=False)
    try:
        yield lambda paths: list(map(lstat, [path[start:] for path in paths]))
    finally:
        os.close(directory)


def may_execute(mode: int) -> bool:
    """Whether the owner may execute a file of this mode."""
    return _HAS_MODES and mode & stat.S_IXUSR != 0


def is_private(mode: int) -> bool:
    """Whether others may not read a file of this mode."""
    return _HAS_MODES and mode & stat.S_IROTH == 0


def hash_at(path: str) -> str:
    """The SHA-256 of a file, straight from the disk. Raises `DeployError`."""
    with io_errors(path, "read"):
        return hash_file(path, os.stat(path).st_size)


def cache_file(directory: Path, *names: str) -> Path:
    """The cache file for one combination of places."""
    key = hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()
    return directory / "hashes" / key[:24]


def _encode(entries: dict[str, FileState]) -> bytes:
    """Column by column: ten times as fast to read and write as JSON."""
    columns_of = zip(*entries.values(), strict=True) if entries else [()] * 5
    digests, executables, privates, stamps, _ = columns_of
    numbers = zip(*stamps, strict=True) if stamps else [()] * len(_COLUMNS)
    columns = [
        array(code, column).tobytes() for code, column in zip(_COLUMNS, numbers, strict=True)
    ]
    paths = "\0".join(entries).encode("utf-8", "surrogateescape")
    hashes = bytes.fromhex("".join(digests))
    body = b"".join(
        [len(entries).to_bytes(8), *columns, hashes, bytes(executables), bytes(privates), paths]
    )
    return FORMAT + hashlib.sha256(body).digest() + body


def _load(file: Path) -> dict[str, FileState]:
    try:
        return _decode(file.read_bytes())
    except (OSError, ValueError):
        return {}


def _decode(data: bytes) -> dict[str, FileState]:
    """The entries of a cache file. Raises `ValueError` for a file that is not whole."""
    head = len(FORMAT) + 32
    if (
        not data.startswith(FORMAT)
        or hashlib.sha256(data[head:]).digest() != data[head - 32 : head]
    ):
        raise ValueError("not a whole cache file")
    count, place = int.from_bytes(data[head : head + 8]), head + 8
    if not count:
        return {}
    columns = []
    for code in _COLUMNS:
        column = array(code)
        column.frombytes(data[place : place + 8 * count])
        columns.append(column)
        place += 8 * count
    hashes, place = data[place : place + 32 * count].hex(), place + 32 * count
    digests = [hashes[start : start + 64] for start in range(0, 64 * count, 64)]
    executables, place = map(bool, data[place : place + count]), place + count
    privates = map(bool, data[place : place + count])
    paths = data[place + count :].decode("utf-8", "surrogateescape").split("\0")
    states = map(FileState, digests, executables, privates, zip(*columns, strict=True))
    return dict(zip(paths, states, strict=True))


def _prune(directory: Path) -> None:
    oldest = time.time() - KEPT_DAYS * 86_400
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(entry.path)
