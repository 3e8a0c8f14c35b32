"""Hints that tools carry, and the call's own side channel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Hints:
    """What a client may assume about a tool."""

    read_only: bool
    destructive: bool = False
    idempotent: bool = False  # says something of writers only
    open_world: bool = False


READS = Hints(read_only=True)
READS_REMOTE = Hints(read_only=True, open_world=True)
WRITES = Hints(read_only=False)
WRITES_REMOTE = Hints(read_only=False, open_world=True)
DESTROYS = Hints(read_only=False, destructive=True)
DESTROYS_REMOTE = Hints(read_only=False, destructive=True, open_world=True)


class CallCancelled(Exception):
    """Raised inside a running call by `Call.report` once the client has cancelled it."""


class Call:
    """One running tool call: its progress, its cancellation, the session it belongs to.

    `report` may be called from the event loop and from worker threads alike.
    """

    def __init__(
        self,
        send_progress: Callable[[float, float | None, str], Awaitable[None]],
        *,
        session: str | None = None,
        tools_changed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.session = session
        self._send_progress = send_progress
        self._tools_changed = tools_changed
        self._loop = asyncio.get_running_loop()
        self._pending: list[asyncio.Task[Any]] = []
        self._cancelled = threading.Event()

    def report(self, done: float, total: float | None = None, text: str = "") -> None:
        """Tell the client how far the work is. Raises `CallCancelled` once nobody wants it."""
        if self._cancelled.is_set():
            raise CallCancelled
        self._schedule(self._send_progress, done, total, text)

    def tools_changed(self) -> None:
        """Have every connected client told if the list of tools is another one now."""
        if self._tools_changed is not None:
            self._schedule(self._tools_changed)

    def cancel(self) -> None:
        """Make the next `report` raise."""
        self._cancelled.set()

    async def settle(self) -> None:
        """Wait until everything reported has been sent."""
        while self._pending:
            await asyncio.gather(self._pending.pop(0), return_exceptions=True)

    def _schedule(self, send: Callable[..., Awaitable[None]], *values: Any) -> None:
        async def deliver() -> None:
            await send(*values)

        def start() -> None:
            self._pending.append(self._loop.create_task(deliver()))

        if _running(self._loop):
            start()
        else:
            self._loop.call_soon_threadsafe(start)


def _running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
