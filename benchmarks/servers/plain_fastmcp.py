"""A plain FastMCP server with COUNT no-op tools, as its documentation would have it written."""

import sys
from typing import Literal

from fastmcp import FastMCP

mcp = FastMCP("plain")


def make(number: int):
    def tool(
        name: str,
        limit: int = 10,
        kind: Literal["a", "b", "c"] = "a",
        verbose: bool = False,
        note: str | None = None,
    ) -> dict[str, str]:
        """Do nothing, with a few arguments of the usual kinds."""
        return {"name": name}

    tool.__name__ = f"tool_{number}"
    return tool


for number in range(int(sys.argv[1])):
    mcp.tool(make(number))


@mcp.tool
async def noop(text: str = "") -> dict[str, str]:
    """Do nothing."""
    return {"text": text}


if __name__ == "__main__":
    if len(sys.argv) > 2:
        mcp.run(
            "http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False, log_level="WARNING"
        )
    else:
        mcp.run("stdio", show_banner=False, log_level="WARNING")
