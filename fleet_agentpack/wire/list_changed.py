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
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import InitializeResult, SubscriptionsListenRequestParams

from fleet_agentpack.kit.private import connection_of, protocol_server

if TYPE_CHECKING:
    from fastmcp import FastMCP

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.5
SEND_TIMEOUT_S = 5.0


class ListChanged(Middleware):
    """Knows who is connected and brings them `tools/list_changed`."""

    def __init__(self, session_ended: Callable[[str], Awaitable[None]]) -> None:
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._bus = _Bus(before_subscribing=self._look_once)
        self._session_ended = session_ended
        self._fingerprints: Sequence[Callable[[], object]] = ()
        self._seen: list[object] | None = None  # None while nobody listens
        self._looking = anyio.Lock()

    def attach(self, mcp: FastMCP[Any], fingerprints: Sequence[Callable[[], object]]) -> None:
        """Watch these fingerprints, and serve `subscriptions/listen`, the handshake-less way."""
        self._fingerprints = fingerprints
        inner = protocol_server(mcp)
        if inner is not None:
            inner.add_request_handler(
                "subscriptions/listen", SubscriptionsListenRequestParams, ListenHandler(self._bus)
            )

    async def on_initialize(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> InitializeResult | None:
        """Remember who shook hands, until the connection ends."""
        result: InitializeResult | None = await call_next(context)
        connection = connection_of(context.fastmcp_context)
        if connection is not None:
            self._look_once()
            self._connections.add(connection)
            connection.exit_stack.push_async_callback(self._forget, connection)
        return result

    async def look(self) -> None:
        """Tell the clients if the list is another one than they know; nobody hears of it twice."""
        async with self._looking:
            now = await anyio.to_thread.run_sync(self._look)
            if self._seen is None or now == self._seen:
                return
            self._seen = now
        await self._publish()

    async def _publish(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(Exception), anyio.move_on_after(SEND_TIMEOUT_S):
                await connection.send_tool_list_changed()
        await self._bus.publish(ToolsListChanged())

    async def watch(self) -> None:
        """Publish whenever a fingerprint changes; looks only while somebody listens."""
        while self._fingerprints:
            await anyio.sleep(POLL_INTERVAL_S)
            if not self._connections and not self._bus.listeners:
                self._seen = None
                continue
            await self.look()

    def _look_once(self) -> None:
        """What the first listener may take for granted, noted before it is answered."""
        if self._seen is None:
            self._seen = self._look()

    def _look(self) -> list[object]:
        return [fingerprint() for fingerprint in self._fingerprints]

    async def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.session_id:
            await self._session_ended(connection.session_id)


class _Bus(InMemorySubscriptionBus):
    """A bus that tells when somebody starts to listen, and whether anybody does."""

    def __init__(self, before_subscribing: Callable[[], None]) -> None:
        super().__init__()
        self._before_subscribing = before_subscribing

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        self._before_subscribing()
        return super().subscribe(listener)
