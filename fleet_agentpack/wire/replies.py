"""What a tool's value looks like on the wire: structured content and the same JSON as text."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastmcp.exceptions import FastMCPError
from fastmcp.tools.base import ToolResult
from mcp_types import TextContent

from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.fit import Part
from fleet_agentpack.kit.program import located_throughout
from fleet_agentpack.kit.results import clean, jsonable, to_text


@dataclass(frozen=True)
class Reply:
    """A result whose text is not simply its structured content; text alone is never cut.

    If it is too long, its structured content is shortened and `write` makes the text of that.
    Where the shortened content does not `conform`, `too_long` is the error, told what to read.
    """

    text: str
    structured: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None
    write: Callable[[Mapping[str, Any]], str] = to_text
    parts: tuple[Part, ...] = ()
    conforms: Callable[[Mapping[str, Any]], bool] | None = None
    too_long: Callable[[str], AppError] | None = None
    note: str | None = None  # a second text, for what the first has no room for


@dataclass(frozen=True)
class Written:
    """A value as it goes out, and the value itself, which knows what of it may be cut."""

    value: object
    text: str
    structured: dict[str, Any] | None
    meta: dict[str, Any] | None = None
    is_error: bool = False
    note: str | None = None

    def result(self) -> ToolResult:
        """The wire result."""
        texts = [self.text] if self.note is None else [self.text, self.note]
        content = [TextContent(type="text", text=text) for text in texts]
        return ToolResult(content, self.structured, self.meta, is_error=self.is_error)


class ToolRefused(FastMCPError):
    """Carries a domain's error to the middleware, which alone makes a result of it."""

    def __init__(self, error: AppError) -> None:
        super().__init__(str(error), log_level=logging.DEBUG)
        self.error = error


def written(value: object, *, is_error: bool = False) -> Written:
    """A tool's value, or a domain's error, as it goes out if it is not too long."""
    if isinstance(value, Reply):
        structured = None if value.structured is None else jsonable(value.structured)
        meta = None if value.meta is None else jsonable(value.meta)
        return Written(value, clean(value.text), structured, meta, note=value.note)
    plain = jsonable(value)
    if is_error:
        plain = located_throughout(plain)
    return Written(value, to_text(plain), plain, is_error=is_error)
