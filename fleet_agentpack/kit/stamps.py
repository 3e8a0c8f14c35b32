"""Tells whether a file has changed since it was looked at, and keeps values until one has."""

from __future__ import annotations

import os
import time
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:  # the front imports this, and little else
    from collections.abc import Callable
    from pathlib import Path

Stamp = tuple[int, int, int, int, int]  # mtime_ns, ctime_ns, inode, size, device

UNCERTAIN: Stamp = (0, 0, 0, 0, 0)  # equals no file's stamp
FINE_CLOCK_NS = 100_000_000  # above the 10 ms tick of a kernel's coarse clock
COARSE_CLOCK_NS = 2_000_000_000  # FAT keeps even seconds, HFS+ whole ones

T = TypeVar("T")


# A value that differs when a file was changed or replaced, or its mode changed.
stamp_of: Callable[[os.stat_result], Stamp] = attrgetter(
    "st_mtime_ns", "st_ctime_ns", "st_ino", "st_size", "st_dev"
)


def stamp(path: str | Path) -> Stamp | None:
    """The stamp of what a path leads to; None when there is nothing to see."""
    try:
        return stamp_of(os.stat(path))  # noqa: PTH116 - hundreds of these, twice a second
    except (OSError, ValueError):
        return None


def settled(found: Stamp, now: int | None = None) -> bool:
    """Whether a later change is bound to show; within one tick of the clock it may not."""
    mtime, ctime = found[0], found[1]
    age = (time.time_ns() if now is None else now) - (mtime if mtime > ctime else ctime)
    if age > COARSE_CLOCK_NS:
        return True
    coarse = mtime % 1_000_000_000 == 0 and ctime % 1_000_000_000 == 0
    return age > FINE_CLOCK_NS and not coarse


def certain_stamp(found: Stamp | None) -> Stamp | None:
    """A stamp just taken; `UNCERTAIN` while a further change might not show."""
    return found if found is None or settled(found) else UNCERTAIN


class Remembered(Generic[T]):
    """The last value made from some files, made again when one of them may have changed."""

    def __init__(self) -> None:
        self._kept: tuple[object, T] | None = None

    def get(self, make: Callable[[], T], *paths: str | Path) -> T:
        """The value that belongs to these files as they are now."""
        stamps = [stamp(path) for path in paths]  # before they are read: a change then shows later
        kept = self._kept
        if kept is not None and kept[0] == (paths, stamps):
            return kept[1]
        value = make()
        certain = all(each is None or settled(each) for each in stamps)
        self._kept = ((paths, stamps), value) if certain else None
        return value
