"""What is at a path, and the small steps in which a swap changes a file system.

Every change goes through one of `Disk`'s methods, so that a test can stop the world before, within
or after each of them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from fleet_agentpack.kit.files import hash_file, sync_directory

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)
SEAL = 1_000_000_000_000_000_000  # a moment in 2001, in nanoseconds
_O_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class State(NamedTuple):
    """The content of a path, now or after a swap, with everything needed to recognise it."""

    kind: Literal["file", "link", "folder", "other"]
    sha256: str  # of a file's bytes, of what a link leads to, of all that a folder holds
    mode: int
    link: str | None = None  # where it leads, if it is a symbolic link
    exact: bool = True  # whether the mode holds regardless of the umask


def find(path: str) -> State | None:
    """The current content of a path; None when nothing is there. Raises `OSError`."""
    try:
        status = os.lstat(path)
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return None
        raise
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode):
        return State("file", hash_file(path, status.st_size), mode)
    if stat.S_ISLNK(status.st_mode):
        behind = hash_file(path, os.stat(path).st_size) if os.path.isfile(path) else ""
        return State("link", behind, mode, os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return State("folder", _tree_hash(path), mode)
    return State("other", "", mode)


def read(path: str) -> bytes:
    """The bytes of a file. Raises `OSError`."""
    with open(path, "rb", buffering=0) as stream:
        return stream.readall() or b""


def same(known: State | None, found: State | None) -> bool:
    """Whether something is what was expected; what is neither file nor directory never is."""
    if known is None or found is None:
        return known is found
    if known.kind != found.kind or known.kind == "other":
        return False
    if known.kind == "link":  # what it leads to is another path's business
        return known.link == found.link
    return known.sha256 == found.sha256 and (known.mode ^ found.mode) & 0o100 == 0


def is_sealed(status: os.stat_result) -> bool:
    """Whether a file is as it was created; a write cut short or a later one breaks the seal."""
    return status.st_mtime_ns == SEAL


class Disk:
    """Changes files, one small step at a time. Raises `OSError`."""

    def __init__(self, *, durable: bool = False) -> None:
        self.durable = durable

    def create(
        self, path: str, data: bytes, mode: int, *, exact: bool = False, sealed: bool = False
    ) -> None:
        """Write a new file; `exact` sets the mode regardless of the umask.

        A sealed one carries a time that no later write leaves it; see `is_sealed`.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _O_FLAGS, mode)
        try:
            if exact and os.name != "nt":
                os.fchmod(descriptor, mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if sealed:
                os.utime(descriptor if os.utime in os.supports_fd else path, ns=(SEAL, SEAL))
            if self.durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def symlink(self, destination: str, path: str) -> None:
        """Make a symbolic link."""
        os.symlink(destination, path)

    def rename(self, source: str, path: str) -> None:
        """Put a file or directory in another's place in one step."""
        os.replace(source, path)
        if self.durable:
            sync_directory(os.path.dirname(path))

    def link(self, source: str, path: str) -> None:
        """Give a file a second name."""
        os.link(source, path)

    def link_many(
        self, source_directory: str, directory: str, names: Sequence[tuple[str, str]]
    ) -> int:
        """Give many files of one directory second names in another; how many could be done."""
        with _opened(source_directory) as sources, _opened(directory) as places:
            for number, (source, name) in enumerate(names):
                try:
                    os.link(source, name, src_dir_fd=sources, dst_dir_fd=places)
                except OSError as error:
                    if error.errno not in NO_LINKS:
                        raise
                    return number
        return len(names)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)
        if self.durable:
            sync_directory(os.path.dirname(path))

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        """Make one directory."""
        os.mkdir(path, mode)

    def remove_directory(self, path: str) -> None:
        """Remove one empty directory."""
        os.rmdir(path)

    def sync_tree(self, path: str) -> None:
        """Make every name below a directory survive a power cut, where that was asked for."""
        if self.durable:
            for directory, _, _ in os.walk(path, topdown=False):
                sync_directory(directory)

    def remove_tree(self, path: str) -> None:
        """Remove a directory of ours and all it holds, as far as that can be done now."""
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _opened(directory: str) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _tree_hash(top: str) -> str:
    """One hash for the names, contents and executable bits below a directory."""
    digest = hashlib.sha256()
    pending = [top]
    while pending:
        with os.scandir(pending.pop()) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            content = ""
            if stat.S_ISDIR(status.st_mode):
                pending.append(entry.path)
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(entry.path)
            elif stat.S_ISREG(status.st_mode):
                content = _content(entry.path, status)
            kind = f"{stat.S_IFMT(status.st_mode):o}{status.st_mode & 0o100:o}"
            line = f"{os.path.relpath(entry.path, top)}\0{kind}\0{content}\0"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _content(path: str, status: os.stat_result) -> str:
    try:
        return hash_file(path, status.st_size)
    except PermissionError:  # somebody else's file can be moved with its directory all the same
        return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
