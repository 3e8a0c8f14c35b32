"""What a run may not leave behind in a directory that it could change."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.enact.arguments import Mount
from fleet_agentpack.enact.denied import is_repository, marks_in, protected_in

_RAISED = stat.S_ISUID | stat.S_ISGID
_HANDLE = getattr(os, "O_PATH", 0)  # on Linux
_Identity = tuple[int, int, str]  # device, inode, and where a link leads


@dataclass(frozen=True)
class Before:
    """What was there before a run, wherever a tool may move it."""

    since: float
    known: frozenset[_Identity]
    places: frozenset[Path]


def look(mounts: Sequence[Mount]) -> Before:
    """What belongs to git and other programs in the directories that a run may change."""
    writable = [each.path for each in mounts if each.writable]
    found = [path for each in writable for path in (*protected_in(each), *marks_in(each))]
    return Before(time.time(), frozenset(filter(None, map(_identity, found))), frozenset(found))


def tidied(mounts: Sequence[Mount], before: Before) -> list[str]:
    """Remove what a run has made that would run later or as somebody else; says what it was."""
    told: list[str] = []
    for mount in mounts:
        if mount.writable:
            told += _listable(mount.path, before.since)
            for path in sorted({*protected_in(mount.path), *_marks_of_repositories(mount.path)}):
                if _identity(path) not in before.known:
                    told.append(_removed(mount.path, path))
                elif path not in before.places:
                    told.append(f"the tool moved {path.name} to {path.parent}")
            told += [_lowered(mount.path, path) for path in _raised(mount.path, before.since)]
    return told


def _marks_of_repositories(root: Path) -> Iterator[Path]:
    return (path for path in marks_in(root) if is_repository(path.parent))


def _listable(root: Path, since: float) -> Iterator[str]:
    """Let directories be listed that a run has kept from it: git can be used in them all the same.

    What is below one is found by looking again.
    """
    seen: set[str] = set()
    while closed := [each for each in _unlisted(root, since) if each not in seen]:
        seen.update(closed)
        for each in closed:
            with contextlib.suppress(OSError):
                _change_mode(root, Path(each), lambda mode: mode | stat.S_IRWXU)
                yield f"the tool made {each}, which could not be listed; now it can"


def _unlisted(root: Path, since: float) -> list[str]:
    """The directories that cannot be listed, as far as a run may have made them so."""
    failed: list[OSError] = []
    for _ in os.walk(root, onerror=failed.append):
        pass
    found = []
    for path in (str(each.filename) for each in failed if isinstance(each, PermissionError)):
        with contextlib.suppress(OSError):
            if os.lstat(path).st_ctime >= since - 1:
                found.append(path)
    return found


def _identity(path: Path) -> _Identity | None:
    with contextlib.suppress(OSError):
        found = path.lstat()
        leads = str(path.readlink()) if stat.S_ISLNK(found.st_mode) else ""
        return found.st_dev, found.st_ino, leads
    return None


def _raised(root: Path, since: float) -> Iterator[Path]:
    """Files that became setuid or setgid during a run."""
    for folder, _, files in os.walk(root):
        for name in files:
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                found = path.lstat()
                is_raised = stat.S_ISREG(found.st_mode) and found.st_mode & _RAISED
                if is_raised and found.st_ctime >= since - 1:
                    yield path


def _removed(root: Path, path: Path) -> str:
    try:
        with _parent(root, path) as folder:
            if stat.S_ISDIR(os.lstat(path.name, dir_fd=folder).st_mode):
                shutil.rmtree(path.name, dir_fd=folder)
            else:
                os.unlink(path.name, dir_fd=folder)
    except OSError as error:
        return f"the tool made {path}, which could not be removed ({error.strerror}): look at it"
    return f"the tool made {path}, which was removed: it belongs to git or to another program"


def _lowered(root: Path, path: Path) -> str:
    try:
        _change_mode(root, path, lambda mode: mode & ~_RAISED)
    except OSError as error:
        return f"the tool made {path} run as its owner, for good ({error.strerror}): look at it"
    return f"the tool made {path} run as its owner, which was taken back"


def _change_mode(root: Path, path: Path, change: Callable[[int], int]) -> None:
    with _parent(root, path) as folder, _opened(path.name, _HANDLE, folder) as file:
        mode = change(stat.S_IMODE(os.fstat(file).st_mode))
        os.chmod(f"/proc/self/fd/{file}" if _HANDLE else file, mode)  # noqa: PTH101


@contextmanager
def _parent(root: Path, path: Path) -> Iterator[int]:
    """The open directory of a path, reached from the root through no link: others may make one."""
    with ExitStack() as held:
        folder = held.enter_context(_opened(str(root), os.O_DIRECTORY))
        for part in path.relative_to(root).parts[:-1]:
            folder = held.enter_context(_opened(part, os.O_DIRECTORY, folder))
        yield folder


@contextmanager
def _opened(name: str, flags: int, folder: int | None = None) -> Iterator[int]:
    """A file that is no link; with `O_PATH`, also one that cannot be read."""
    file = os.open(name, flags | os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)
