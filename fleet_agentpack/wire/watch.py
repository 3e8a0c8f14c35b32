"""Tells that files may have changed: by the system's notifications, without polling.

A watch is a descriptor that becomes readable when something happened; it does not say what. The
standard library alone, since the front uses it before anything else is imported.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

POLL_INTERVAL_S = 5.0  # where a system has no notifications

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_NAMES = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO
_EVERYTHING = _NAMES | _MODIFY | _ATTRIB | _DELETE_SELF | _MOVE_SELF
_LARGEST_READ = 1 << 16


class Watch(Protocol):
    """Becomes readable when one of its paths may have changed."""

    def fileno(self) -> int:
        """What to wait for."""

    def arm(self, paths: Iterable[str]) -> bool:
        """Watch these paths and no others; False when some of them cannot be watched."""

    def drain(self) -> None:
        """Forget what has happened so far."""

    def close(self) -> None:
        """Watch nothing any longer."""


def open_watch() -> Watch | None:
    """A watch; None where the system has no such notifications."""
    with contextlib.suppress(OSError, ImportError, AttributeError):
        if sys.platform == "linux":
            return _Inotify()
        if hasattr(select, "kqueue"):
            return _Kqueue()
    return None


class _Inotify:
    """Linux. A path that does not exist is noticed in the nearest directory that does."""

    def __init__(self) -> None:
        import ctypes

        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._watched: dict[str, int] = {}

    def fileno(self) -> int:
        return self._descriptor

    def arm(self, paths: Iterable[str]) -> bool:
        wanted = _with_directories(paths)
        for path in self._watched.keys() - wanted.keys():
            self._libc.inotify_rm_watch(self._descriptor, self._watched.pop(path))
        complete = True
        # Also those that are watched already: another directory may have taken the name.
        for path, mask in wanted.items():
            number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask)
            if number >= 0:
                self._watched[path] = number
            else:
                complete = False
        return complete

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._descriptor, _LARGEST_READ):
                pass

    def close(self) -> None:
        os.close(self._descriptor)


class _Kqueue:
    """macOS and the BSDs: one open descriptor for each path."""

    def __init__(self) -> None:
        self._queue: Any = select.kqueue()  # type: ignore[attr-defined,unused-ignore]
        self._opened: list[int] = []

    def fileno(self) -> int:
        return int(self._queue.fileno())

    def arm(self, paths: Iterable[str]) -> bool:
        self._release()
        names: Any = select
        flags = names.KQ_EV_ADD | names.KQ_EV_ENABLE | names.KQ_EV_CLEAR
        notes = (
            names.KQ_NOTE_WRITE
            | names.KQ_NOTE_EXTEND
            | names.KQ_NOTE_ATTRIB
            | names.KQ_NOTE_DELETE
            | names.KQ_NOTE_RENAME
        )
        try:
            for path in _with_directories(paths):
                descriptor = os.open(path, getattr(os, "O_EVTONLY", os.O_RDONLY) | os.O_CLOEXEC)
                self._opened.append(descriptor)
                event = names.kevent(descriptor, names.KQ_FILTER_VNODE, flags, notes)
                self._queue.control([event], 0, 0)
        except OSError:
            return False
        return True

    def drain(self) -> None:
        while self._queue.control(None, 64, 0):
            pass

    def close(self) -> None:
        self._release()
        self._queue.close()

    def _release(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)
        self._opened = []


def _with_directories(paths: Iterable[str]) -> dict[str, int]:
    """What to watch so that no change of a path is missed, and for which events."""
    wanted: dict[str, int] = {}
    for path in paths:
        if os.path.exists(path):  # noqa: PTH110
            wanted[path] = _EVERYTHING
        above = os.path.dirname(path)  # noqa: PTH120
        while not os.path.isdir(above) and above != os.path.dirname(above):  # noqa: PTH112, PTH120
            above = os.path.dirname(above)  # noqa: PTH120
        wanted[above] = wanted.get(above, 0) | _NAMES
    return wanted
