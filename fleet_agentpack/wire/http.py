"""Serves over streamable HTTP: loopback by default, Host and Origin checked, bearer token."""

from __future__ import annotations

import errno
import hashlib
import hmac
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.settings import APP, HttpSettings
from fleet_agentpack.version import __version__
from fleet_agentpack.wire.fastmcp_setup import import_fastmcp
from fleet_agentpack.wire.http_sessions import BoundedSessions

import_fastmcp()

from fastmcp.server.auth import AccessToken, TokenVerifier  # noqa: E402 - configured above

if TYPE_CHECKING:
    from fastmcp import FastMCP

MCP_PATH = "/mcp"
BACKLOG = 2048
SHUTDOWN_GRACE_S = 2
SESSION_IDLE_S = 30 * 60.0  # a client that comes back later shakes hands again


class BearerToken(TokenVerifier):
    """Accepts exactly one token, compared in constant time."""

    def __init__(self, token: Secret) -> None:
        super().__init__()
        self._token = token

    async def verify_token(self, token: str) -> AccessToken | None:
        """The caller's identity, or None for any other token."""
        if not hmac.compare_digest(token.encode(), self._token.reveal().encode()):
            return None
        client = hashlib.sha256(b"client:" + token.encode()).hexdigest()[:16]
        return AccessToken(token=token, client_id=client, scopes=[])


class ListenError(AppError):
    """The address cannot be listened on; the message says why and what to do."""


def listen(http: HttpSettings) -> list[socket.socket]:
    """Open the sockets to listen on. Raises `ListenError`."""
    place = f"port {http.port} on {http.host}"
    found: list[socket.socket] = []
    try:
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        for each in socket.getaddrinfo(http.host, http.port, type=kind, flags=flags):
            opened = socket.create_server(each[4], family=each[0], backlog=BACKLOG)
            # asyncio turns off Nagle's delay only for sockets that say that they are TCP.
            found.append(socket.socket(each[0], kind, socket.IPPROTO_TCP, opened.detach()))
    except OSError as error:
        for opened in found:
            opened.close()
        raise ListenError(_why(error, place)) from error
    return found


def _why(error: OSError, place: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{place} is in use; choose another with --port, or end what listens there"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{place} is not yours to listen on; choose one above 1023 with --port"
    reason = (error.strerror or str(error)).lower()
    return f"cannot listen on {place}: {reason}; check --host"


async def serve_http(
    mcp: FastMCP[Any], http: HttpSettings, log_level: str, sockets: list[socket.socket]
) -> None:
    """Serve until a signal ends it."""
    mcp.custom_route("/health", methods=["GET"])(_health)
    app = mcp.http_app(
        path=MCP_PATH,
        host_origin_protection=True,
        allowed_hosts=list(http.allowed_hosts),
        json_response=False,
        stateless_http=False,
        session_idle_timeout=SESSION_IDLE_S,
    )
    config = uvicorn.Config(
        BoundedSessions(app),
        host=http.host,
        port=http.port,
        log_config=None,
        log_level=log_level,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
    )
    await _Server(config).serve(sockets)


class _Server(uvicorn.Server):
    """Says where it listens, once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or []:
            host, port = each.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            sys.stderr.write(f"{APP} {__version__} listens on http://{shown}:{port}{MCP_PATH}\n")


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok")
