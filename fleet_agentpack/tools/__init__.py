"""The MCP surface: typed functions of a few lines, one file per domain."""

from fleet_agentpack.fastmcp_setup import import_fastmcp

import_fastmcp()
