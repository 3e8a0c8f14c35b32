"""Knows for sure that files have not changed since they were looked at, from Linux's notifications.

Whoever looks says so first, and then reads. Whether anything happened is asked at the time of a
call: there is no thread, and nothing wakes up in between. Any doubt counts as a change. Not
notified, and so not known: a write through a memory map that is still open, and one through a hard
link that was made elsewhere after the file was looked at.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, auto
from pathlib import Path

from fleet_agentpack.kit import inotify
from fleet_agentpack.kit.inotify import Event, Inotify
from fleet_agentpack.kit.mounts import NOTIFYING, Mounts

MOST_WATCHES = 4096
SHARE = 8  # of what the system grants a user, at most this part
LONGEST_CHAIN = 40  # of links that lead to links, as in the kernel

_SELF = inotify.ATTRIB | inotify.DELETE_SELF | inotify.MOVE_SELF
# A write through a memory map is told when the file is closed.
_FILE = inotify.MODIFY | inotify.CLOSE_WRITE | _SELF
_CONTENTS = inotify.NAMES | _FILE
_PLAIN_DIRECTORY = inotify.ONLY_DIRECTORY | inotify.DO_NOT_FOLLOW
_LOST_FILE = inotify.OVERFLOW | inotify.UNMOUNT  # it may go and come: its directory is watched
_LOST = _LOST_FILE | inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.IGNORED
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


class News(IntEnum):
    """What happened to everything that is watched, the worst last."""

    NONE = auto()
    CHANGED = auto()
    LOST = auto()  # what is watched may no longer be what the paths lead to


@dataclass
class _Place:
    """A watched directory or file."""

    real: str  # its path without links
    names: set[bytes] | None  # those that matter in a directory; None: all
    is_file: bool = False

    def minds(self, name: bytes) -> bool:
        return self.names is None or name.lower() in self.names  # some directories fold names


def open_tree_watch(limit: int | None = None) -> TreeWatch | None:
    """A watch; None where the system has no such notifications, or none to spare."""
    if sys.platform != "linux":
        return None
    try:
        return TreeWatch(_granted() if limit is None else limit)
    except (OSError, ImportError, AttributeError):
        return None


class TreeWatch:
    """Everything that was looked at, by directory; only ever grows until it is closed."""

    def __init__(self, limit: int) -> None:
        self._queue = Inotify()
        try:
            self._mounts = Mounts()
        except OSError:
            self._queue.close()
            raise
        self._limit = limit
        self._by_watch: dict[int, _Place] = {}
        self._by_real: dict[str, _Place] = {}  # directories only
        self._reached: dict[str, _Place] = {}  # the same, by the paths they were asked for
        self._whole: set[str] = set()  # directories in which every name matters, as asked for
        self._unchecked = True  # something was added since the mounts were checked
        self._late = False  # something may have been read before it was watched
        self.usable = True  # False for good, once something cannot be watched

    def into(self, directory: str) -> None:
        """Before a directory is listed, or many of its files are looked at."""
        if directory in self._whole or not self.usable:
            return
        above = self._reached.get(directory[: directory.rfind("/")])
        place = self._plain_directory(above, directory, _CONTENTS) if above else None
        if place is not None:
            place.names = None
        else:
            place = self._reach(directory)
        if place is None:
            self.at(directory)  # no directory, or not yet
            return
        self._mind(place, None)
        self._reached[directory] = place
        self._whole.add(directory)

    def files(self, paths: Iterable[str]) -> None:
        """Before many files are looked at; links are told of one by one."""
        whole = self._whole
        for path in paths:
            if path[: path.rfind("/")] not in whole:
                self.at(path)

    def at(self, path: str, depth: int = 0) -> None:
        """Before a path is looked at, whether or not anything is there; links are followed."""
        above, _, name = path.rstrip("/").rpartition("/")
        place = self._reach(above or "/", depth) if name else self._reach("/")
        if place is None or not name or not self.usable:
            return
        if name in (".", ".."):
            self._reach(path)
            return
        self._mind(place, name)
        real = os.path.join(place.real, name)
        target = _link_at(real)
        if target is not None and self._is_short(depth):
            self.at(os.path.join(place.real, target), depth + 1)
        elif place.names is not None and not self._plain_directory(place, real):
            self._add(real, _FILE | inotify.DO_NOT_FOLLOW, is_file=True)

    def shared(self, path: str) -> None:
        """A file with other names: a write through one of those shows only in the file itself."""
        if not self.usable:
            return
        known = len(self._by_watch)
        self._add(path, _FILE | inotify.DO_NOT_FOLLOW, is_file=True)
        self._late = self._late or len(self._by_watch) > known

    def beyond_files(self) -> None:
        """What is being made depends on more than files."""
        self._late = True

    def begin(self) -> None:
        """A new look begins."""
        self._late = False

    def news(self) -> News:
        """What happened since the last time."""
        if self._mounts.changed():
            return News.LOST
        return max(map(self._weigh, self._queue.read()), default=News.NONE)

    def is_sure(self) -> bool:
        """Whether everything that this look saw was watched before, where changes are notified."""
        return self.usable and not self._late and self._mounts_notify()

    def close(self) -> None:
        """Let go of everything."""
        self.usable = False
        self._queue.close()
        self._mounts.close()

    def _weigh(self, event: Event) -> News:
        place = self._by_watch.get(event.watch)
        if place is None or event.mask & (_LOST_FILE if place.is_file else _LOST):
            return News.LOST
        if event.mask & inotify.IGNORED:
            del self._by_watch[event.watch]
        return News.CHANGED if not event.name or place.minds(event.name) else News.NONE

    def _reach(self, path: str, depth: int = 0) -> _Place | None:
        """The directory at a path, with all above it watched; None while there is none."""
        known = self._reached.get(path)
        if known is not None:
            return known
        if path == "/":
            place = self._plain_directory(None, "/")
        else:
            parent, _, name = path.rpartition("/")
            if not parent and not path.startswith("/"):
                self.usable = False  # not absolute
                return None
            above = self._reach(parent or "/", depth)
            place = self._step(above, name, depth) if above else None
        if place is not None:
            self._reached[path] = place
        return place

    def _step(self, above: _Place, name: str, depth: int) -> _Place | None:
        if name in ("", "."):
            return above
        if name == "..":
            return self._reach(os.path.dirname(above.real))
        real = os.path.join(above.real, name)
        found = self._by_real.get(real) or self._plain_directory(above, real)
        if found is not None or not self.usable:
            return found
        self._mind(above, name)
        target = _link_at(real)
        if target is not None and self._is_short(depth):
            return self._reach(os.path.join(above.real, target), depth + 1)
        if os.path.isdir(real):
            self._late = True  # it appeared just now
        return None

    def _plain_directory(self, above: _Place | None, path: str, mask: int = _SELF) -> _Place | None:
        """Watch a directory itself, if it is one and not a link to one."""
        real = os.path.join(above.real, path[path.rfind("/") + 1 :]) if above else path
        place = self._add(real, mask | _PLAIN_DIRECTORY)
        if place is not None:
            self._by_real[real] = place
        return place

    def _mind(self, place: _Place, name: str | None) -> None:
        """From now on a name in a directory matters, or every name."""
        if place.names is None:
            return
        if not place.names or name is None:
            mask = _CONTENTS if name is None else inotify.NAMES
            if self._add(place.real, mask) is not place:
                self._late = True  # another directory took its path just now
        self._unchecked = True
        if name is None:
            place.names = None
        else:
            place.names.add(os.fsencode(name).lower())

    def _add(self, real: str, mask: int, *, is_file: bool = False) -> _Place | None:
        """Watch what is at a path; None when nothing of that kind is there."""
        if len(self._by_watch) >= self._limit:
            self.usable = False
        if not self.usable:
            return None
        try:
            watch = self._queue.add(real, mask | inotify.ADD_TO_MASK)
        except (OSError, ValueError) as error:
            self.usable = isinstance(error, OSError) and error.errno in _ABSENT
            return None
        if watch not in self._by_watch:
            self._by_watch[watch] = _Place(real, set(), is_file)
            self._unchecked = True
        return self._by_watch[watch]

    def _is_short(self, depth: int) -> bool:
        """Whether a chain of links is; otherwise it leads in a circle, and nothing is known."""
        self._late = self._late or depth >= LONGEST_CHAIN
        return depth < LONGEST_CHAIN

    def _mounts_notify(self) -> bool:
        """Whether everything watched is on file systems that notify of every change."""
        if self._unchecked:
            kinds = self._mounts.kinds().items()
            self.usable = all(self._notifies(point, kind) for point, kind in kinds)
            self._unchecked = False
        return self.usable

    def _notifies(self, point: str, kind: str) -> bool:
        if point in self._by_real:
            return kind in NOTIFYING
        above, _, name = point.rpartition("/")
        place = self._by_real.get(above or "/")
        # A mount that is not a directory: writes to it show where it comes from.
        return place is None or not place.minds(os.fsencode(name))


def _link_at(path: str) -> str | None:
    """Where a link leads; None for anything else."""
    try:
        return os.readlink(path)
    except (OSError, ValueError):
        return None


def _granted() -> int:
    text = Path("/proc/sys/fs/inotify/max_user_watches").read_text(encoding="ascii")
    return min(MOST_WATCHES, int(text) // SHARE)
