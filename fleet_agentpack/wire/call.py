"""The running tool call as domain code sees it: progress, cancellation, the session it is from."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, ParamSpec, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from fastmcp.dependencies import CurrentContext, Depends
from fastmcp.server.context import Context
from fastmcp.server.dependencies import get_access_token

from fleet_agentpack.kit.private import connection_of
from fleet_agentpack.kit.results import clean
from fleet_agentpack.wire.progress import PROGRESS

P = ParamSpec("P")
T = TypeVar("T")
TOOLS_CHANGED: Final = "tools_changed"  # in the server's lifespan context


class Call:
    """One running tool call. `report` may be called from the event loop and from any thread."""

    def __init__(self, context: Context) -> None:
        self.session = session_of(context)
        self._context = context
        self._progress = PROGRESS.get()
        self._loop = asyncio.get_running_loop()
        self._pending: list[asyncio.Task[Any]] = []

    def report(self, done: float, total: float | None = None, text: str = "") -> None:
        """Tell the client how far the work is; in a worker thread, stop if it was cancelled."""
        if self._progress:
            self._schedule(self._progress.report, done, total, clean(text))
        else:  # called from inside the process, past the middleware
            self._schedule(self._context.report_progress, done, total, clean(text) or None)

    def tools_changed(self) -> None:
        """Tell the clients that the tools may have changed, before this call is answered."""
        self._schedule(self._context.lifespan_context[TOOLS_CHANGED])

    async def settle(self) -> None:
        """Wait until everything reported has been sent."""
        while self._pending:
            await asyncio.gather(self._pending.pop(0), return_exceptions=True)

    def _schedule(self, send: Callable[..., Awaitable[None]], *values: Any) -> None:
        def start() -> None:
            self._pending.append(self._loop.create_task(_awaited(send(*values))))

        if _is_running_here(self._loop):
            start()
            return
        with contextlib.suppress(RuntimeError):  # a thread that the domain started itself
            anyio.from_thread.check_cancelled()
        self._loop.call_soon_threadsafe(start)


@asynccontextmanager
async def running_call(context: Context = CurrentContext()) -> AsyncIterator[Call]:
    """The call under way; what it has reported is sent before it is answered."""
    call = Call(context)
    try:
        yield call
    finally:
        with anyio.CancelScope(shield=True):
            await call.settle()


def CurrentCall() -> Call:
    """A tool's parameter default that brings the running `Call`."""
    return Depends(running_call)


def in_thread(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """A function that blocks, as one that can be awaited; `Call.report` stops it if cancelled."""

    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await anyio.to_thread.run_sync(functools.partial(function, *args, **kwargs))

    return run


def session_of(context: Context) -> str | None:
    """Who is asking: the HTTP session, else the token's client; nobody in particular on stdio."""
    connection = connection_of(context)
    if connection is None:  # asked from inside the process, by no client at all
        return None
    if connection.session_id:
        return str(connection.session_id)
    token = get_access_token()
    return token.client_id if token else None


async def _awaited(sending: Awaitable[None]) -> None:
    await sending


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
