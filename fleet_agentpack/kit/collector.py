"""Python's garbage collector, kept quiet while many small objects are made at once."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """For a block or a function that makes many small objects: no search for cycles meanwhile.

    Among tens of thousands of new tuples it would find none, and cost a fifth of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not _is_frozen():
                gc.freeze()  # together: what was made counts as old, unlooked at
                gc.unfreeze()
            gc.enable()


_frozen = threading.Event()  # a server has frozen what it imported, which is never undone


def _is_frozen() -> bool:
    # Counting takes milliseconds where there is something to count: a server does it once.
    if not _frozen.is_set() and gc.get_freeze_count():
        _frozen.set()
    return _frozen.is_set()
