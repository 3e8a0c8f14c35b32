"""FastMCP's per-session state in a dictionary.

FastMCP looks into this store on every `tools/list`; importing its own costs a fifth of the start-up
time, and no tool here keeps state in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastmcp import FastMCP


class MemoryState:
    """The three operations that FastMCP uses."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    @classmethod
    def install(cls, mcp: FastMCP[Any]) -> None:
        """Put a store of ours in the place where FastMCP would make its own."""
        mcp._FastMCP__state_store = cls()  # type: ignore[attr-defined]

    async def get(self, key: str, **_: Any) -> Any:
        """The value of a key, or None."""
        return self._values.get(key)

    async def put(self, key: str, value: Any, **_: Any) -> None:
        """Keep a value."""
        self._values[key] = value

    async def delete(self, key: str, **_: Any) -> bool:
        """Forget a key; says whether it was there."""
        return self._values.pop(key, None) is not None
