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
        from fleet_agentpack.kit import inotify

        self._queue = inotify.Inotify()
        self._names = inotify.NAMES
        itself = inotify.MODIFY | inotify.ATTRIB | inotify.DELETE_SELF | inotify.MOVE_SELF
        self._everything = inotify.NAMES | itself
        self._watched: dict[str, int] = {}

    def fileno(self) -> int:
        return self._queue.fileno()

    def arm(self, paths: Iterable[str]) -> bool:
        wanted = _with_directories(paths)
        for path in self._watched.keys() - wanted.keys():
            self._queue.remove(self._watched.pop(path))
        complete = True
        # Also those that are watched already: another directory may have taken the name.
        for path, asked_for in wanted.items():
            try:
                mask = self._everything if asked_for else self._names
                self._watched[path] = self._queue.add(path, mask)
            except OSError:
                complete = False
        return complete

    def drain(self) -> None:
        self._queue.read()

    def close(self) -> None:
        self._queue.close()


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


def _with_directories(paths: Iterable[str]) -> dict[str, bool]:
    """What to watch so that no change of a path is missed; False: only for the names in it."""
    wanted: dict[str, bool] = {}
    for path in paths:
        if os.path.exists(path):  # noqa: PTH110
            wanted[path] = True
        above = os.path.dirname(path)  # noqa: PTH120
        while not os.path.isdir(above) and above != os.path.dirname(above):  # noqa: PTH112, PTH120
            above = os.path.dirname(above)  # noqa: PTH120
        wanted.setdefault(above, False)
    return wanted
