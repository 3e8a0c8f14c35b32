"""The MCP server: its transports, what every call passes through, and its providers.

Nothing is imported here: the command line takes the wire before anything heavy is.
"""
