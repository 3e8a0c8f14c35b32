"""One MCP server for agent configuration, agent fleets, tools, definitions and prompts."""

from fleet_agentpack.version import __version__

__all__ = ["__version__"]
