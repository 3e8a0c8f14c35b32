"""Tells clients that a resource which they subscribed to is another one now, in both eras."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.subscriptions import ListenHandler, ResourceUpdated, SubscriptionBus
from mcp_types import (
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.private import ClientConnection, connection_of, protocol_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastmcp import FastMCP

    from fleet_agentpack.wire.provider import DomainTools, Services

POLL_S = 3.0
SEND_TIMEOUT_S = 5.0
MOST_WATCHED = 64  # addresses; further ones are taken and never told of

# Takes the service and an address; what it returns differs once the resource does.
Fingerprint = Callable[[Any, str], Awaitable[object]]


@dataclass
class _Subscribed:
    """One address that somebody has subscribed to."""

    look: Callable[[], Awaitable[object]]
    seen: object = None
    connections: weakref.WeakSet[ClientConnection] = field(default_factory=weakref.WeakSet)
    listeners: int = 0


class ResourceUpdates:
    """Looks at what clients have subscribed to, and only while somebody has."""

    def __init__(self, domains: Sequence[DomainTools], services: Services) -> None:
        self._domains, self._services = domains, services
        self._subscribed: dict[str, _Subscribed] = {}
        self._wanted = anyio.Event()
        self._bus: SubscriptionBus | None = None

    def attach(self, mcp: FastMCP[Any], bus: SubscriptionBus) -> None:
        """Serve `resources/subscribe` and `subscriptions/listen`."""
        inner = protocol_server(mcp)
        if inner is None:
            return
        self._bus, listen = bus, ListenHandler(bus)

        async def listening(
            context: Any, params: SubscriptionsListenRequestParams
        ) -> SubscriptionsListenResult:
            with await self._listening(params.notifications.resource_subscriptions or ()):
                return await listen(context, params)

        inner.add_request_handler(
            "subscriptions/listen", SubscriptionsListenRequestParams, listening
        )
        inner.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        inner.add_request_handler(
            "resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe
        )

    async def watch(self) -> None:
        """Publish whenever a resource changes that somebody has subscribed to."""
        while True:
            await self._wanted.wait()
            await anyio.sleep(POLL_S)
            self._drop_unwanted()
            for address, each in list(self._subscribed.items()):
                now = await _seen(each.look)
                if now != each.seen:
                    each.seen = now
                    await self._publish(address, each)

    async def _publish(self, address: str, each: _Subscribed) -> None:
        for connection in list(each.connections):
            with contextlib.suppress(Exception), anyio.move_on_after(SEND_TIMEOUT_S):
                await connection.send_resource_updated(address)
        if self._bus is not None:
            await self._bus.publish(ResourceUpdated(address))

    async def _subscribe(self, context: Any, params: SubscribeRequestParams) -> EmptyResult:
        address, connection = str(params.uri), connection_of(context)
        each = await self._wanting(address)
        if each and connection is not None:
            each.connections.add(connection)
        return EmptyResult()

    async def _unsubscribe(self, context: Any, params: UnsubscribeRequestParams) -> EmptyResult:
        each, connection = self._subscribed.get(str(params.uri)), connection_of(context)
        if each and connection is not None:
            each.connections.discard(connection)
        return EmptyResult()

    async def _listening(self, addresses: Iterable[str]) -> contextlib.AbstractContextManager[None]:
        found = [await self._wanting(str(address)) for address in addresses]
        return _counted([each for each in found if each])

    async def _wanting(self, address: str) -> _Subscribed | None:
        """The subscription to an address; None for what cannot be watched."""
        known = self._subscribed.get(address)
        if known or len(self._subscribed) >= MOST_WATCHED:
            return known
        for domain in self._domains:
            for prefix, fingerprint in domain.watched.items():
                if address.startswith(prefix):
                    return await self._begin(domain, fingerprint, address)
        return None

    async def _begin(
        self, domain: DomainTools, fingerprint: Fingerprint, address: str
    ) -> _Subscribed | None:
        try:
            service = self._services.get(domain)  # of the project that the request names
        except Exception:  # noqa: BLE001 - reading the resource says what is wrong
            return None

        async def look() -> object:
            return await fingerprint(service, address)

        made = _Subscribed(look, await _seen(look))
        self._subscribed[address] = made
        self._wanted.set()
        return made

    def _drop_unwanted(self) -> None:
        kept = {
            address: each
            for address, each in self._subscribed.items()
            if each.listeners or each.connections
        }
        self._subscribed = kept
        if not kept:
            self._wanted = anyio.Event()


@contextmanager
def _counted(subscribed: list[_Subscribed]) -> Iterator[None]:
    for each in subscribed:
        each.listeners += 1
    try:
        yield
    finally:
        for each in subscribed:
            each.listeners -= 1


async def _seen(look: Callable[[], Awaitable[object]]) -> object:
    try:
        return await look()
    except AppError as error:
        return str(error)
