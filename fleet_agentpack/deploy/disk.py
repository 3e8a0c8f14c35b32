"""The disk in two parts: `Reader` looks, `Disk` also touches.

Every change that the engine makes to a file system goes through one of `Disk`'s small methods, so
that a test can stop the world before, within or after each of them.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable
from typing import NamedTuple

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import HashCache, hash_file, may_execute
from fleet_agentpack.deploy.model import FileState, Root
from fleet_agentpack.kit.paths import is_inside

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_O_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Found(NamedTuple):
    """A file as it stands, with all that is needed to put it back."""

    sha256: str
    mode: int
    link: str | None  # where it leads, if it is a symbolic link


class Reader:
    """Looks at files; cannot change any."""

    def __init__(self, hashes: HashCache) -> None:
        self._hashes = hashes
        self.looked_at: set[str] = set()
        self.directories: dict[str, os.stat_result] = {}  # the real ones below roots, as seen here

    def state(self, path: str) -> FileState | None:
        """What stands at a path; a link counts as what it leads to. Raises `DeployError`."""
        return self.states([path])[path]

    def states(self, paths: Iterable[str]) -> dict[str, FileState | None]:
        """The states of many paths. Raises `DeployError`."""
        found: dict[str, FileState | None] = {}
        look = self._hashes.look
        for path in paths:
            try:
                found[path] = look(path)
            except FileNotFoundError:
                found[path] = None
            except OSError as error:
                found[path] = self._after_error(path, error)
        self.looked_at.update(found)
        return found

    def _after_error(self, path: str, error: OSError) -> FileState | None:
        """What stands at a path that could not be opened as a regular file."""
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                raise DeployError.io(path, error, "read") from error
            return self._unusual(path)
        except FileNotFoundError:
            return None
        except OSError as again:
            raise DeployError.io(path, again, "read") from again

    def _unusual(self, path: str) -> FileState | None:
        """The state of something that is not a regular file: a link is followed."""
        if os.path.islink(path):
            status = os.stat(path)  # a link that leads nowhere counts as absent
            if stat.S_ISREG(status.st_mode):
                return FileState(hash_file(path, status.st_size), may_execute(status.st_mode))
        raise _in_the_way(path)

    def directory(self, root: Root, path: str, known: dict[str, bool]) -> bool:
        """Whether a directory below a root exists; refuses links that lead out of the root."""
        exists = known.get(path)
        if exists is not None:
            return exists
        if len(path) <= len(root.dir):
            exists = _is_directory(root.dir)
        else:
            above = path.rpartition("/")[0] or "/"
            exists = self.directory(root, above, known) and self._is_own_directory(root, path)
        known[path] = exists
        return exists

    def _is_own_directory(self, root: Root, path: str) -> bool:
        """Whether a directory exists and really lies inside its root."""
        try:
            found = os.lstat(path)
            if stat.S_ISDIR(found.st_mode):
                self.directories[path] = found
                return True
            if stat.S_ISLNK(found.st_mode):
                _refuse_way_out(root, path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise DeployError.io(path, error, "read") from error
        return _is_directory(path)


class Disk(Reader):
    """Changes files, one small step at a time. Raises `OSError`."""

    def __init__(self, hashes: HashCache, *, durable: bool = False) -> None:
        super().__init__(hashes)
        self.durable = durable

    def create(self, path: str, data: bytes, mode: int, *, exact: bool = False) -> None:
        """Write a new file; `exact` sets the mode regardless of the umask."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _O_FLAGS, mode)
        try:
            if exact and os.name != "nt":
                os.fchmod(descriptor, mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
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

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)
        if self.durable:
            sync_directory(os.path.dirname(path))

    def make_directory(self, path: str) -> None:
        """Make one directory."""
        os.mkdir(path)

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


def find(path: str) -> Found | None:
    """Everything about the file at a path, read afresh; None when there is nothing."""
    try:
        status = os.lstat(path)
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return None
        raise DeployError.io(path, error, "read") from error
    mode = stat.S_IMODE(status.st_mode)
    try:
        if stat.S_ISLNK(status.st_mode):
            return Found(_content_hash(path), mode, os.readlink(path))
        if not stat.S_ISREG(status.st_mode):
            raise _in_the_way(path)
        return Found(_content_hash(path), mode, None)
    except OSError as error:
        raise DeployError.io(path, error, "read") from error


def _content_hash(path: str) -> str:
    try:
        return hash_file(path, os.stat(path).st_size)
    except FileNotFoundError:
        return ""  # a link that leads nowhere


def sync_directory(path: str) -> None:
    """Make renames inside a directory survive a power cut."""
    if os.name == "nt":
        return
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_directory(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DeployError.io(path, error, "read") from error
    if not stat.S_ISDIR(mode):
        raise DeployError(
            "E_UNEXPECTED",
            f"{path} is a file where a directory is needed",
            reason="not_a_directory",
            next_actions=("move_file_away", "retry_command"),
            path=path,
        )
    return True


def _refuse_way_out(root: Root, path: str) -> None:
    """Raises `DeployError` when a link leads out of its root."""
    if not is_inside(path, root.dir):
        raise DeployError(
            "E_IO_INVALID_PATH",
            f"{path} is a link that leads out of {root.dir}",
            path=path,
            path_posix=path,
            hint="remove the link, or point the target at the directory that it leads to",
        )


def _in_the_way(path: str) -> DeployError:
    return DeployError(
        "E_UNEXPECTED",
        f"read {path}: a directory or a special file stands where a file belongs",
        reason="not_a_file",
        next_actions=("move_directory_away", "retry_command"),
        path=path,
        path_posix=path,
    )
