"""Tells connected clients that the list of tools changed, in both protocol eras."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio
from fastmcp.server.middleware.middleware import CallNext, Middleware, MiddlewareContext
from mcp.server.connection import Connection
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types import SubscriptionsListenRequestParams

if TYPE_CHECKING:
    from fastmcp import FastMCP

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.5
SEND_TIMEOUT_S = 5.0


class ListChanged(Middleware):
    """Knows who is connected and brings them `tools/list_changed`."""

    def __init__(self, session_ended: Callable[[str], Awaitable[None]]) -> None:
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._bus = _CountingBus()
        self._session_ended = session_ended

    def attach(self, mcp: FastMCP[Any]) -> None:
        """Serve `subscriptions/listen`, the way of clients without a handshake."""
        mcp._mcp_server.add_request_handler(
            "subscriptions/listen", SubscriptionsListenRequestParams, ListenHandler(self._bus)
        )

    async def on_initialize(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Any:
        """Remember who shook hands, until the connection ends."""
        result = await call_next(context)
        if context.fastmcp_context is not None:
            connection = context.fastmcp_context.session._connection
            self._connections.add(connection)
            connection.exit_stack.push_async_callback(self._forget, connection)
        return result

    async def publish(self) -> None:
        """Tell every connected client."""
        for connection in list(self._connections):
            with contextlib.suppress(Exception), anyio.move_on_after(SEND_TIMEOUT_S):
                await connection.send_tool_list_changed()
        await self._bus.publish(ToolsListChanged())

    async def watch(self, fingerprints: Sequence[Callable[[], object]]) -> None:
        """Publish whenever a fingerprint changes; looks only while somebody listens."""
        seen: list[object] | None = None
        while fingerprints:
            if self._connections or self._bus.listeners:
                now = [await anyio.to_thread.run_sync(look) for look in fingerprints]
                if seen is not None and now != seen:
                    await self.publish()
                seen = now
            else:
                seen = None
            await anyio.sleep(POLL_INTERVAL_S)

    async def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.session_id:
            await self._session_ended(connection.session_id)


class _CountingBus(InMemorySubscriptionBus):
    """A bus that can tell whether anybody listens."""

    @property
    def listeners(self) -> int:
        return len(self._listeners)
