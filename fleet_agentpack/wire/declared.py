"""A domain's tools as they were declared, each made when it is first asked for.

To make one takes pydantic about a millisecond. The front has told a client which there are, so the
first call needs but one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from fastmcp.decorators import get_fastmcp_meta
from fastmcp.tools.function_tool import ToolMeta

T = TypeVar("T")
Function = Callable[..., Any]


class DeclaredTools(Mapping[str, T], Generic[T]):
    """Tools by name; names and what `@mcp.tool` was told are known without making any."""

    def __init__(self, make: Callable[[Function], T]) -> None:
        self._make = make
        self._functions: dict[str, Function] = {}
        self._made: dict[str, T] = {}

    def declare(self, function: Function) -> None:
        """Add a function that `@mcp.tool` has marked."""
        name = declaration(function).name or function.__name__
        if name in self._functions:
            raise ValueError(f"there is a tool {name!r} already")
        self._functions[name] = function

    def declarations(self) -> dict[str, ToolMeta]:
        """What was declared of each tool."""
        return {name: declaration(function) for name, function in self._functions.items()}

    def __getitem__(self, name: str) -> T:
        if name not in self._made:
            self._made[name] = self._make(self._functions[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)


def declaration(function: Function) -> ToolMeta:
    """What `@mcp.tool` was told. Raises `TypeError` for a function that it has not marked."""
    found = get_fastmcp_meta(function)
    if not isinstance(found, ToolMeta):
        raise TypeError("register a function with @mcp.tool")
    return found


@contextmanager
def only_its_parameters(function: Function) -> Iterator[str]:
    """Hide what FastMCP need not look at, and give the docstring in one line.

    From a docstring it would import a parser, from a result's type it would build a schema.
    """
    doc, returns = function.__doc__ or "", function.__annotations__.pop("return", None)
    function.__doc__ = None
    try:
        yield " ".join(doc.split())
    finally:
        function.__doc__ = doc
        function.__annotations__["return"] = returns
