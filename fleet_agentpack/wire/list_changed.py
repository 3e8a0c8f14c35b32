"""Tells connected clients that the list of tools or prompts changed, in both protocol eras."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import anyio
from fastmcp.server.middleware.middleware import CallNext, Middleware, MiddlewareContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import InitializeResult

from fleet_agentpack.kit.private import ClientConnection, connection_of
from fleet_agentpack.kit.stamps import Stamp
from fleet_agentpack.kit.watch import POLL_INTERVAL_S, Watch, open_watch
from fleet_agentpack.wire.installed_state import stamps_of

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 5.0


class WatchedItems(Protocol):
    """What comes and goes: how to see a change, and which files to watch for it."""

    kind: str  # "tools" or "prompts"

    def fingerprint(self) -> object:
        """A value that differs when they have changed."""

    def sources(self) -> Mapping[str, Stamp | None]:
        """The files whose change may change them."""


class ListChanged(Middleware):
    """Knows who is connected and brings them `tools/list_changed` and `prompts/list_changed`."""

    def __init__(
        self,
        session_ended: Callable[[str], Awaitable[None]],
        listed: Mapping[str, Stamp | None] | None = None,
    ) -> None:
        self._connections: weakref.WeakSet[ClientConnection] = weakref.WeakSet()
        self._bus = _Bus(before_subscribing=self._look_once)
        self._session_ended = session_ended
        self._items: Sequence[WatchedItems] = ()
        self._seen: list[object] | None = None  # None while nobody listens
        self._looking = anyio.Lock()
        self._wanted = anyio.Event()  # somebody listens
        self._listed = listed  # all files behind the list that the front gave, while they stay so

    def attach(self, items: Sequence[WatchedItems]) -> None:
        """Watch these."""
        self._items = items

    @property
    def bus(self) -> InMemorySubscriptionBus:
        """What `subscriptions/listen` hears, the handshake-less way."""
        return self._bus

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
            changed = await anyio.to_thread.run_sync(self._changed)
        for kind in changed:
            await self._publish(kind)

    def _changed(self) -> list[str]:
        """The kinds of lists that are other ones now."""
        if self._listed is not None:
            now = stamps_of(self._listed)
            if now == self._listed:
                return []  # known without opening the domain, which takes its time
            changed = {path for path, stamp in now.items() if stamp != self._listed[path]}
            self._listed, self._seen = None, self._look()
            return self._kinds(changed & each.sources().keys() for each in self._items) or ["tools"]
        before = self._seen
        self._seen = before and self._look()
        if not before or not self._seen:
            return []
        return self._kinds(old != new for old, new in zip(before, self._seen, strict=True))

    def _kinds(self, changed: Iterable[object]) -> list[str]:
        pairs = zip(self._items, changed, strict=True)
        return list(dict.fromkeys(each.kind for each, is_changed in pairs if is_changed))

    async def _publish(self, kind: str) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(Exception), anyio.move_on_after(SEND_TIMEOUT_S):
                if kind == "prompts":
                    await connection.send_prompt_list_changed()
                else:
                    await connection.send_tool_list_changed()
        await self._bus.publish(PromptsListChanged() if kind == "prompts" else ToolsListChanged())

    async def watch(self) -> None:
        """Publish whenever a list changes; looks only while somebody listens."""
        if not self._items:
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
        return watch.arm([path for each in self._items for path in each.sources()])

    def _look_once(self) -> None:
        """What the first listener may take for granted, noted before it is answered."""
        self._wanted.set()
        if self._seen is None and self._listed is None:
            self._seen = self._look()

    def _look(self) -> list[object]:
        return [each.fingerprint() for each in self._items]

    async def _forget(self, connection: ClientConnection) -> None:
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
