"""Keeps the number of HTTP sessions bounded: the one that was idle longest ends for a new one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_SESSIONS = 256
_SESSION_HEADER = b"mcp-session-id"


@dataclass
class _Session:
    scope: Scope  # of the request that opened it: who may end it
    under_way: int = 0


class BoundedSessions:
    """ASGI middleware around the MCP endpoint."""

    def __init__(self, app: App, most: int = MOST_SESSIONS) -> None:
        self._app, self._most = app, most
        self._sessions: dict[bytes, _Session] = {}  # the one used last is the last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note which session a request uses or opens."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = dict(scope["headers"]).get(_SESSION_HEADER)

        async def noting(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                opened = dict(message.get("headers", ())).get(_SESSION_HEADER)
                if opened and message["status"] < 300 and opened not in self._sessions:
                    self._sessions[opened] = _Session(scope)
                if name and message["status"] == 404:  # it has ended
                    self._sessions.pop(name, None)
            await send(message)

        used = self._sessions.pop(name, None) if name else None
        if name and used:
            self._sessions[name] = used
            used.under_way += 1
        try:
            await self._app(scope, receive, noting)
        finally:
            if used:
                used.under_way -= 1
            if name and scope["method"] == "DELETE":
                self._sessions.pop(name, None)
        await self._end_the_oldest()

    async def _end_the_oldest(self) -> None:
        idle = [name for name, session in self._sessions.items() if not session.under_way]
        for name in idle[: max(0, len(self._sessions) - self._most)]:
            await self._end(name, self._sessions.pop(name))

    async def _end(self, name: bytes, session: _Session) -> None:
        """End a session as its own client would."""
        kept = (b"host", b"authorization", b"mcp-protocol-version")
        headers = [pair for pair in session.scope["headers"] if pair[0] in kept]

        async def receive() -> MutableMapping[str, str | bytes | bool]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: MutableMapping[str, Any]) -> None:
            return None

        scope = {
            **session.scope,
            "method": "DELETE",
            "headers": [*headers, (_SESSION_HEADER, name)],
            "state": dict(session.scope.get("state", {})),
        }
        await self._app(scope, receive, send)
