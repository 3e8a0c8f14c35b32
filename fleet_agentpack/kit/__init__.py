"""What two or more domains share; knows nothing of any domain or of MCP."""
