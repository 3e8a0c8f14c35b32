"""Tells connected clients that the list of tools changed, in both protocol eras."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

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
from fleet_agentpack.kit.stamps import Stamp
from fleet_agentpack.kit.watch import POLL_INTERVAL_S, Watch, open_watch
from fleet_agentpack.wire.installed_state import stamps_of

if TYPE_CHECKING:
    from fastmcp import FastMCP

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 5.0


class WatchedTools(Protocol):
    """Tools that come and go: how to see a change, and which files to watch for it."""

    def fingerprint(self) -> object:
        """A value that differs when the tools have changed."""

    def sources(self) -> Mapping[str, Stamp | None]:
        """The files whose change may change them."""


class ListChanged(Middleware):
    """Knows who is connected and brings them `tools/list_changed`."""

    def __init__(
        self,
        session_ended: Callable[[str], Awaitable[None]],
        listed: Mapping[str, Stamp | None] | None = None,
    ) -> None:
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._bus = _Bus(before_subscribing=self._look_once)
        self._session_ended = session_ended
        self._tools: Sequence[WatchedTools] = ()
        self._seen: list[object] | None = None  # None while nobody listens
        self._looking = anyio.Lock()
        self._wanted = anyio.Event()  # somebody listens
        self._listed = listed  # all files behind the list that the front gave, while they stay so

    def attach(self, mcp: FastMCP[Any], tools: Sequence[WatchedTools]) -> None:
        """Watch these tools, and serve `subscriptions/listen`, the handshake-less way."""
        self._tools = tools
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
            if not await anyio.to_thread.run_sync(self._has_changed):
                return
        await self._publish()

    def _has_changed(self) -> bool:
        if self._listed is not None:
            if stamps_of(self._listed) == self._listed:
                return False  # known without opening the domain, which takes its time
            self._listed, self._seen = None, self._look()
            return True
        before = self._seen
        self._seen = before and self._look()
        return self._seen != before

    async def _publish(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(Exception), anyio.move_on_after(SEND_TIMEOUT_S):
                await connection.send_tool_list_changed()
        await self._bus.publish(ToolsListChanged())

    async def watch(self) -> None:
        """Publish whenever the tools change; looks only while somebody listens."""
        if not self._tools:
            return
        await self._wanted.wait()
        watch = open_watch()
        try:
            while True:
                listed = self._listed
                complete = watch is not None and await anyio.to_thread.run_sync(self._arm, watch)
                if self._connections or self._bus.listeners:
                    await self.look()  # after arming: what happened before is seen now
                else:
                    self._seen = None
                if listed is not self._listed:
                    continue  # other files count from now on
                await _something_happened(watch, None if complete else POLL_INTERVAL_S)
        finally:
            if watch is not None:
                watch.close()

    def _arm(self, watch: Watch) -> bool:
        watch.drain()
        if self._listed is not None:
            return watch.arm(self._listed)
        return watch.arm([path for each in self._tools for path in each.sources()])

    def _look_once(self) -> None:
        """What the first listener may take for granted, noted before it is answered."""
        self._wanted.set()
        if self._seen is None and self._listed is None:
            self._seen = self._look()

    def _look(self) -> list[object]:
        return [each.fingerprint() for each in self._tools]

    async def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.session_id:
            await self._session_ended(connection.session_id)


async def _something_happened(watch: Watch | None, timeout_s: float | None) -> None:
    with anyio.move_on_after(timeout_s):
        if watch is None:
            await anyio.sleep_forever()
        else:
            await anyio.wait_readable(watch.fileno())


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
