"""Imports FastMCP so that only our own settings steer it.

FastMCP reads `.env` in the working directory, which is the user's project, and `FASTMCP_*`
variables meant for the user's own servers. Neither may change ours, and children must inherit the
environment as it was.
"""

from __future__ import annotations

import os
import sys

from fleet_agentpack.kit.private import models_built_on_first_use


def import_fastmcp() -> None:
    """Import FastMCP once, with no configuration but its defaults and no logging of its own."""
    if "fastmcp" in sys.modules:
        return
    hidden = {
        name: os.environ.pop(name) for name in list(os.environ) if name.startswith("FASTMCP_")
    }
    ours = {"FASTMCP_ENV_FILE": os.devnull, "FASTMCP_LOG_ENABLED": "false"}
    os.environ.update(ours)
    try:
        with models_built_on_first_use():
            import fastmcp
            import fastmcp.server.server  # noqa: F401
            import mcp_types.methods  # noqa: F401
    finally:
        for name in ours:
            del os.environ[name]
        os.environ.update(hidden)
