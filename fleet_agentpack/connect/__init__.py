"""MCP clients on this machine: where each keeps its servers, and how to tell it about this one."""
