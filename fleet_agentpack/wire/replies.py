"""What a tool's value looks like on the wire: structured content and the same JSON as text."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastmcp.exceptions import FastMCPError
from fastmcp.tools.base import ToolResult
from mcp_types import TextContent

from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.results import clean, jsonable, to_text


@dataclass(frozen=True)
class Reply:
    """A result whose text is not simply its structured content."""

    text: str
    structured: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None
    note: str | None = None  # a second text, for what the first has no room for


class ToolRefused(FastMCPError):
    """Carries a domain's error to the middleware, which alone makes a result of it."""

    def __init__(self, error: AppError) -> None:
        super().__init__(str(error), log_level=logging.DEBUG)
        self.error = error


def result_of(value: object) -> ToolResult:
    """The wire result of a tool's value."""
    if isinstance(value, Reply):
        structured = None if value.structured is None else jsonable(value.structured)
        meta = None if value.meta is None else jsonable(value.meta)
        texts = [value.text] if value.note is None else [value.text, value.note]
        return ToolResult([_text(clean(text)) for text in texts], structured, meta)
    plain = jsonable(value)
    return ToolResult([_text(to_text(plain))], plain)


def error_result(payload: object) -> ToolResult:
    """The wire result of a domain's error."""
    plain = jsonable(payload)
    return ToolResult([_text(to_text(plain))], plain, is_error=True)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)
