"""Where FastMCP's own commands look for a server: `fastmcp inspect fleet_agentpack/server.py`."""

from __future__ import annotations

from fleet_agentpack.wire.server import build_server

__all__ = ["build_server"]


def __getattr__(name: str) -> object:
    """`mcp`, the server for this environment, made when somebody asks for it."""
    if name == "mcp":
        return build_server()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
