"""Waits for a condition; no test sleeps for a fixed time in the hope that it suffices."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

LIMIT_S = 90.0  # on a machine that has much else to do
POLL_S = 0.02


async def until(check: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return once the condition holds; fail after a generous time."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        found = check()
        if await found if inspect.isawaitable(found) else found:
            return
        assert time.monotonic() < deadline, "the condition never became true"
        await asyncio.sleep(POLL_S)
