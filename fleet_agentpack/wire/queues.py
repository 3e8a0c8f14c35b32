"""A queue for each client and kind of work, so that slow calls only wait for calls like them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.to_thread
from fastmcp.server.context import Context
from fastmcp.server.dependencies import get_access_token, get_http_request

from fleet_agentpack.kit.private import connection_of
from fleet_agentpack.wire.peers import Peers

QUEUES: Final = "queues"  # in the server's lifespan context
AT_ONCE = 8  # calls of one client and kind that run at the same time


class Queues:
    """Who may work in a thread now, and who waits."""

    def __init__(self) -> None:
        self.peers = Peers()
        self._places: dict[tuple[str | None, str], anyio.Semaphore] = {}

    def place(self, client: str | None, kind: str) -> anyio.Semaphore:
        """The places for one kind of a client's calls."""
        return self._places.setdefault((client, kind), anyio.Semaphore(AT_ONCE))

    def tidy(self, client: str | None, kind: str) -> None:
        """Drop a queue that nobody is in; clients come and go."""
        place = self.place(client, kind)
        if place.value == AT_ONCE and not place.statistics().tasks_waiting:
            del self._places[client, kind]


def let_queues_decide() -> None:
    """Take away anyio's own bound on threads, which is one for all clients and kinds of work."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = math.inf


@asynccontextmanager
async def turn(context: Context, kind: str) -> AsyncIterator[None]:
    """Wait for a place among this client's calls of a kind, and hold it."""
    queues: Queues = context.lifespan_context[QUEUES]
    client = await _client_of(context, queues.peers)
    try:
        async with queues.place(client, kind):
            yield
    finally:
        queues.tidy(client, kind)


async def _client_of(context: Context, peers: Peers) -> str | None:
    """Who waits: a session, else the client behind a connection; one alone on stdio.

    A client without a session may open a connection for every call. So it is the program that
    has them, on this machine, else the machine they come from; and what it calls itself, since
    others may come through the same program.
    """
    connection = connection_of(context)
    if connection and connection.session_id:
        return str(connection.session_id)
    try:
        request = get_http_request()
    except RuntimeError:
        return None
    peer, here = request.client, request.scope.get("server")
    if not peer or not here:
        return None
    program = await anyio.to_thread.run_sync(peers.program, (*peer,), (*here,))
    token = get_access_token()
    known = (token.client_id if token else None, peer.host, program, _called(context))
    return repr(known)


def _called(context: Context) -> object:
    """What a client calls itself."""
    said = context.session.client_params
    return (said.client_info.name, said.client_info.version) if said else None
