"""What every tool call passes through."""

from fleet_agentpack.fastmcp_setup import import_fastmcp

import_fastmcp()
