"""The MCP SDK's low-level server with COUNT static tools and no validation."""

import sys

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "limit": {"type": "integer", "default": 10},
        "kind": {"type": "string", "enum": ["a", "b", "c"], "default": "a"},
        "verbose": {"type": "boolean", "default": False},
        "note": {"type": "string"},
    },
    "required": ["name"],
}
NAMES = [*(f"tool_{number}" for number in range(int(sys.argv[1]))), "noop"]
TOOLS = [
    types.Tool(name=name, description="Do nothing, with a few arguments.", input_schema=SCHEMA)
    for name in NAMES
]


async def list_tools(_context, _params):
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(_context, params):
    text = (params.arguments or {}).get("text", "")
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content={"text": text}
    )


server = Server("bare")
server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
