"""An MCP client for this server as a process of its own: what the demo plays its story with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet_agentpack.wire.fastmcp_setup import import_fastmcp

import_fastmcp()

from fastmcp import Client  # noqa: E402 - configured above
from fastmcp.client.transports import StdioTransport  # noqa: E402

__all__ = ["Client", "client_of"]


def client_of(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path
) -> Client[StdioTransport]:
    """A client that starts this command; entered, it has shaken hands."""
    transport = StdioTransport(
        command[0], list(command[1:]), env=dict(env), cwd=str(cwd), keep_alive=False, log_file=log
    )
    return Client(transport)
