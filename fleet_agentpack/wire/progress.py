"""Progress of one call: what its tool reports, and a sign of life where that says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastmcp.server.context import Context

Send = Callable[[float, float | None, str | None], Awaitable[None]]

FIRST_S = 1.0  # a call that takes longer than this says so
NEXT_S = 5.0
STEP = 0.01


class Progress:
    """Numbers that only grow, as the protocol wants, and news at least every few seconds."""

    def __init__(self, name: str, send: Send, loop: asyncio.AbstractEventLoop) -> None:
        self._name, self._send, self._loop = name, send, loop
        self._started = loop.time()
        self._done, self._text = -STEP, ""
        self._total: float | None = None
        self._timer = loop.call_later(FIRST_S, self._beat)
        self._beating: asyncio.Task[None] | None = None

    async def report(self, done: float, total: float | None, text: str) -> None:
        """What the tool says."""
        self._text = text
        self._again(NEXT_S)
        await self._tell(done, total, text)

    def stop(self) -> None:
        """The call is over; nothing is sent after its answer."""
        self._timer.cancel()
        if self._beating:
            self._beating.cancel()

    def _beat(self) -> None:
        self._again(NEXT_S)
        seconds = f"{self._loop.time() - self._started:.0f} s"
        text = f"{self._text or self._name} ({seconds})"
        self._beating = self._loop.create_task(self._tell(self._done + STEP, self._total, text))

    def _again(self, after_s: float) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_later(after_s, self._beat)

    async def _tell(self, done: float, total: float | None, text: str) -> None:
        step = STEP if total else 1.0
        self._done = done if done > self._done else self._done + step
        self._total = total if total is None or total >= self._done else None
        await self._send(self._done, self._total, text or None)


PROGRESS: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def progress_of(name: str, context: Context | None) -> Iterator[None]:
    """While a call runs, its client hears of it."""
    assert context is not None  # noqa: S101 - FastMCP always sets it for a call
    progress = Progress(name, context.report_progress, asyncio.get_running_loop())
    token = PROGRESS.set(progress)
    try:
        yield
    finally:
        progress.stop()
        PROGRESS.reset(token)
