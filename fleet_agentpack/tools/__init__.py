"""The MCP surface: typed functions of a few lines, one file per domain."""
