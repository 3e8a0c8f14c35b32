"""The one place that confirms, refuses and turns errors into results."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastmcp.exceptions import DisabledError, NotFoundError
from fastmcp.server.middleware.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolRequestParams

from fleet_agentpack.wire.register import Domain, Spec, ToolRefused, error_result

if TYPE_CHECKING:
    from fastmcp import FastMCP

logger = logging.getLogger(__name__)

LONGEST_NAME_SHOWN = 128


class Guard(Middleware):
    """Around every tool call: mutations need `yes: true`, errors take their domain's shape."""

    def __init__(self, tools: Mapping[str, tuple[Domain, Spec]], fallback: Domain) -> None:
        self._tools = tools
        self._fallback = fallback  # whose error shape a tool outside the table has

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """Confirm, run, and answer whatever happens."""
        name = context.message.name
        domain, spec = self._tools.get(name, (self._fallback, None))
        if spec and spec.confirm and (context.message.arguments or {}).get("yes") is not True:
            return error_result(domain.error.confirm_required(name).payload())
        try:
            return await call_next(context)
        except ToolRefused as refused:
            return error_result(refused.error.payload())
        except (NotFoundError, DisabledError):
            return error_result(await self._unknown_tool(name, context))
        except MCPError as error:
            if error.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
                raise
            return self._unexpected(domain, name)
        except Exception:  # noqa: BLE001 - the one catch-all: FastMCP has logged the trace to stderr
            return self._unexpected(domain, name)

    @staticmethod
    def _unexpected(domain: Domain, name: str) -> ToolResult:
        logger.error("%s failed unexpectedly; the trace is above", name)
        return error_result(domain.error.unexpected(name).payload())

    @staticmethod
    async def _unknown_tool(name: str, context: MiddlewareContext[Any]) -> dict[str, Any]:
        assert context.fastmcp_context is not None  # noqa: S101 - FastMCP always sets it for a call
        server: FastMCP[Any] = context.fastmcp_context.fastmcp
        known = [tool.name for tool in await server.list_tools(run_middleware=False)]
        shown = name if len(name) <= LONGEST_NAME_SHOWN else name[:LONGEST_NAME_SHOWN] + "…"
        similar = difflib.get_close_matches(shown, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(similar)}?" if similar else "tools/list names the tools."
        return {
            "error": "unknown_tool",
            "message": f"There is no tool {shown!r}; {hint}",
            "details": {"tool": shown, "similar": similar},
        }
