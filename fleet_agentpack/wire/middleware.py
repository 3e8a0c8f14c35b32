"""The one place that confirms, refuses and turns errors into results."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastmcp.exceptions import DisabledError, NotFoundError
from fastmcp.server.middleware.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolRequestParams

from fleet_agentpack.kit.actions import names_of_tools
from fleet_agentpack.kit.approval import NotApprovedError
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.wire.limits import error_result
from fleet_agentpack.wire.progress import progress_of
from fleet_agentpack.wire.recorded import known_tools
from fleet_agentpack.wire.replies import ToolRefused
from fleet_agentpack.wire.selected import LeftOutError

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from fleet_agentpack.wire.provider import DomainTools
    from fleet_agentpack.wire.selection import Choice

logger = logging.getLogger(__name__)

LONGEST_NAME_SHOWN = 128


@dataclass(frozen=True)
class UnknownToolDetails:
    """The name that was called, and names like it."""

    tool: str
    similar: tuple[str, ...]


@dataclass(frozen=True)
class UnknownTool:
    """The answer to a call of a tool that does not exist."""

    error: str = field(default="unknown_tool", init=False)
    message: str
    details: UnknownToolDetails


class CallBoundary(Middleware):
    """Around every tool call: mutations need `yes: true`, errors take their domain's shape."""

    def __init__(
        self, owners: Mapping[str, DomainTools], otherwise: DomainTools, choice: Choice
    ) -> None:
        self._owners = owners  # of the tools that are always there
        self._otherwise = otherwise  # whose shape the failure of any other tool has
        self._choice = choice

    async def on_message(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> object:
        """Whatever is answered names the tools as this server does."""
        with names_of_tools(self._choice.name):
            return await call_next(context)

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """Confirm, run, and answer whatever happens."""
        called = context.message.name
        # From here on the tool has our own name for it, whatever it is called here.
        name = self._choice.selection.own_name(called)
        if not name:
            return error_result(await self._unknown_tool(called, context))
        message = context.message.model_copy(update={"name": name})
        context = context.copy(message=message)
        owner = self._owners.get(name)
        error = (owner or self._otherwise).error
        # Before anything else looks at the arguments: an unconfirmed call has no effect at all.
        confirmed = (context.message.arguments or {}).get("yes") is True
        if owner and owner.tools[name].needs_yes and not confirmed:
            return error_result(error.confirm_required(name).payload())
        try:
            with progress_of(called, context.fastmcp_context):
                return await _with_remedy(context, call_next, error, name)
        except ToolRefused as refused:
            place = (owner or self._otherwise).place_of(name)
            return error_result(refused.error.payload(), place)
        except LeftOutError as left_out:
            return error_result(_left_out(called, left_out.option))
        except (NotFoundError, DisabledError):
            return error_result(await self._unknown_tool(called, context))
        except MCPError as failure:
            if failure.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
                raise
            return self._unexpected(error, name)
        except Exception:  # noqa: BLE001 - the one catch-all: FastMCP has logged the trace to stderr
            return self._unexpected(error, name)

    @staticmethod
    def _unexpected(error: type[AppError], name: str) -> ToolResult:
        logger.error("%s failed unexpectedly; the trace is above", name)
        return error_result(error.unexpected(name).payload())

    async def _unknown_tool(self, called: str, context: MiddlewareContext[Any]) -> UnknownTool:
        selection = self._choice.selection
        for name in (selection.own_name(called), called):
            facts = known_tools().get(name)
            if facts and (option := selection.why_left_out(name, facts)):
                return _left_out(called, option)
        assert context.fastmcp_context is not None  # noqa: S101 - FastMCP always sets it for a call
        server: FastMCP[Any] = context.fastmcp_context.fastmcp
        known = [tool.name for tool in await server.list_tools(run_middleware=False)]
        prefixed = [name for name in known if name == selection.prefix + called]
        similar = prefixed or difflib.get_close_matches(_shown(called), known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(similar)}?" if similar else "tools/list names the tools."
        details = UnknownToolDetails(_shown(called), tuple(similar))
        return UnknownTool(f"There is no tool {_shown(called)!r}; {hint}", details)


async def _with_remedy(
    context: MiddlewareContext[CallToolRequestParams],
    call_next: CallNext[CallToolRequestParams, ToolResult],
    error: type[AppError],
    name: str,
) -> ToolResult:
    """Run a call; where a person could agree to what it lacks, and can be asked, ask and try again.

    Raises `ToolRefused`.
    """
    try:
        return await call_next(context)
    except ToolRefused as refused:
        if refused.error.remedy is None or context.fastmcp_context is None:
            raise
        from fleet_agentpack.wire.approval import remedied

        try:
            told = await remedied(
                refused.error, context.fastmcp_context, lambda: call_next(context)
            )
        except NotApprovedError as not_approved:
            raise ToolRefused(error.not_approved(name, not_approved.refusal)) from refused
        if told is None:
            raise
        return told


def _left_out(called: str, option: str) -> UnknownTool:
    """The answer to a call of a tool that there would be without an option of the server."""
    message = (
        f"The tool {_shown(called)!r} is left out by {option}; the user can start the server"
        " without that option."
    )
    return UnknownTool(message, UnknownToolDetails(_shown(called), ()))


def _shown(name: str) -> str:
    return name if len(name) <= LONGEST_NAME_SHOWN else name[:LONGEST_NAME_SHOWN] + "…"
