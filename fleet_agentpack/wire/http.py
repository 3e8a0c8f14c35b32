"""Serves over streamable HTTP: loopback by default, Host and Origin checked, bearer token."""

from __future__ import annotations

import hashlib
import hmac
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvicorn
from fastmcp.server.auth import AccessToken, TokenVerifier
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.settings import APP, HttpSettings
from fleet_agentpack.version import __version__
from fleet_agentpack.wire.http_sessions import BoundedSessions

if TYPE_CHECKING:
    from fastmcp import FastMCP

MCP_PATH = "/mcp"
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


async def serve_http(mcp: FastMCP[Any], http: HttpSettings, log_level: str) -> None:
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
    await _Server(config).serve()


class _Server(uvicorn.Server):
    """Says where it listens, once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in self.servers:
            host, port = each.sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            sys.stderr.write(f"{APP} {__version__} listens on http://{shown}:{port}{MCP_PATH}\n")


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok")
