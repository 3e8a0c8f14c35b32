"""Linux's file notifications, by the C library: the standard library has no call for them."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x100, 0x200, 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
ONLY_DIRECTORY, DO_NOT_FOLLOW, ADD_TO_MASK = 0x1000000, 0x2000000, 0x20000000
NAMES = CREATE | DELETE | MOVED_FROM | MOVED_TO

_LARGEST_READ = 1 << 16
_HEADER = 16  # four numbers of 32 bits: watch, mask, cookie, length of the name


class Event(NamedTuple):
    """Something happened: to what is watched, or to the name in it."""

    watch: int
    mask: int
    name: bytes


class Inotify:
    """A queue of events. Raises `OSError` or `AttributeError` where the system has none."""

    def __init__(self) -> None:
        import ctypes
        from fcntl import ioctl
        from functools import partial
        from termios import FIONREAD

        libc: Any = ctypes.CDLL(None, use_errno=True)
        self._errno = ctypes.get_errno
        self._add, self._remove = libc.inotify_add_watch, libc.inotify_rm_watch
        self._add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
        self._descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise self._error("inotify_init1")
        self._ask: Any = partial(ioctl, self._descriptor, FIONREAD)

    def fileno(self) -> int:
        """What becomes readable when something happened."""
        return self._descriptor

    def add(self, path: str, mask: int) -> int:
        """Watch what is at a path; the same file always has the same number. Raises `OSError`."""
        watch: int = self._add(self._descriptor, os.fsencode(path), mask)
        if watch < 0:
            raise self._error(path)
        return watch

    def remove(self, watch: int) -> None:
        """Watch it no longer."""
        self._remove(self._descriptor, watch)

    def read(self) -> list[Event]:
        """Everything that has happened since the last time; what happens meanwhile is left."""
        events: list[Event] = []
        waiting = int.from_bytes(self._ask(bytes(4)), sys.byteorder)
        while waiting > 0:
            data = os.read(self._descriptor, _LARGEST_READ)
            events += _events_in(data)
            waiting -= len(data)
        return events

    def close(self) -> None:
        """Watch nothing any longer."""
        os.close(self._descriptor)

    def _error(self, subject: str) -> OSError:
        number = self._errno()
        return OSError(number, os.strerror(number), subject)


def _events_in(data: bytes) -> list[Event]:
    numbers = memoryview(data).cast("I")  # names are padded to whole numbers
    found, place = [], 0
    while place < len(data):
        watch, mask, _, length = numbers[place // 4 : place // 4 + 4]
        name = data[place + _HEADER : place + _HEADER + length].rstrip(b"\0")
        found.append(Event(watch, mask, name))
        place += _HEADER + length
    return found
