"""What every tool call passes through."""

from fleet_agentpack.wire.fastmcp_setup import import_fastmcp

import_fastmcp()
