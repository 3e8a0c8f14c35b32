"""One event loop on a thread of its own, for synchronous callers of asynchronous work.

Its connections outlive a call. `asyncio.run` in the caller's thread would close them, and would
end each call by waiting for name lookups that hang.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TICK_S = 0.5
_starting = threading.Lock()


def run(work: Coroutine[Any, Any, T], tick: Callable[[], None] | None = None) -> T:
    """The result of the work, waited for in this thread; not to be called from a coroutine.

    `tick` is called in this thread, first at once and then twice a second; it may raise to give up.
    """
    with _starting:
        future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        while tick is not None:
            tick()
            try:
                return future.result(TICK_S)
            except TimeoutError:
                if future.done():  # the work's own
                    raise
        return future.result()
    except BaseException:
        future.cancel()
        raise


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="background", daemon=True).start()
    return loop
