"""Turns a domain's plain functions into MCP tools: one registration path for all of them.

A tool function takes its domain's service first, the running `Call` second if it wants it, and its
wire arguments as keywords after `*`. A plain `def` runs in a worker thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from fastmcp.exceptions import FastMCPError
from fastmcp.server.context import Context
from fastmcp.server.dependencies import get_access_token, get_context
from fastmcp.tools.base import Tool, ToolResult
from mcp_types import TextContent, ToolAnnotations
from mcp_types import Tool as WireTool
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, create_model

from fleet_agentpack.kit.errors import AppError, Problem
from fleet_agentpack.kit.results import clean, jsonable, to_text
from fleet_agentpack.settings import SettingsError
from fleet_agentpack.wire.params import Call, Hints
from fleet_agentpack.wire.schema import tidy

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from fleet_agentpack.settings import Settings
    from fleet_agentpack.wire.dynamic import Catalogue


@dataclass(frozen=True)
class Spec:
    """One tool: its function, what a client may assume of it, whether it needs `yes: true`."""

    function: Callable[..., Any]
    hints: Hints
    confirm: bool = False

    @property
    def name(self) -> str:
        """The tool's name on the wire."""
        return self.function.__name__

    @property
    def description(self) -> str:
        """The tool's description on the wire: the function's docstring in one line."""
        return " ".join((self.function.__doc__ or "").split())


@dataclass(frozen=True)
class Domain:
    """One row of the inventory: everything the server needs to serve a domain."""

    name: str
    server_name: str  # what the server calls itself when it serves this domain alone
    instructions: str
    error: type[AppError]
    open: Callable[[Settings], Any]  # makes the service; called on the domain's first use
    tools: Sequence[Spec] = ()
    extend: Callable[[FastMCP[Any], Services], None] | None = None  # resources and prompts
    catalogue: Callable[[Any], Catalogue] | None = None  # tools that come and go
    end_session: Callable[[Any, str], None] | None = None  # told when a session is over


class Services:
    """The domains' services, each made when first asked for and closed with the server."""

    def __init__(self, settings: Settings, domains: Sequence[Domain]) -> None:
        self.settings = settings
        self._domains = {domain.name: domain for domain in domains}
        self._opened: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """The service of a domain."""
        if name not in self._opened:
            self._opened[name] = self._domains[name].open(self.settings)
        return self._opened[name]

    async def end_session(self, session: str) -> None:
        """Tell the services that asked for it that a session is over."""
        for name, service in self._opened.items():
            end = self._domains[name].end_session
            if end:
                await anyio.to_thread.run_sync(end, service, session)

    async def close(self) -> None:
        """Close every service that has a `close` method."""
        for service in self._opened.values():
            close = getattr(service, "close", None)
            result = close() if close else None
            if inspect.isawaitable(result):
                await result
        self._opened.clear()


@dataclass(frozen=True)
class Reply:
    """A result whose text is not simply its structured content."""

    text: str
    structured: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None


class ToolRefused(FastMCPError):
    """Carries a domain's error to the middleware, which alone makes a result of it."""

    def __init__(self, error: AppError) -> None:
        super().__init__(str(error), log_level=logging.DEBUG)
        self.error = error


@dataclass(frozen=True)
class Runtime:
    """What running tools share: the services and a way to say that the tools changed."""

    services: Services
    tools_changed: Callable[[], Awaitable[None]] | None = None


class TypedTool(Tool):
    """A tool whose schema comes from a function's signature and whose service is handed in."""

    _spec: Spec = PrivateAttr()
    _domain: Domain = PrivateAttr()
    _arguments: type[BaseModel] = PrivateAttr()
    _runtime: Runtime = PrivateAttr()

    @classmethod
    def of(cls, spec: Spec, domain: Domain, runtime: Runtime) -> TypedTool:
        """The tool for one row of a domain's table."""
        arguments = _arguments_model(spec.function)
        tool = cls(
            name=spec.name,
            description=spec.description,
            parameters=input_schema(arguments),
            annotations=wire_hints(spec.hints),
            tags={domain.name},
        )
        tool._spec, tool._domain = spec, domain
        tool._arguments, tool._runtime = arguments, runtime
        return tool

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Check the arguments, call the function, turn its value into a result."""
        try:
            checked = self._arguments.model_validate(arguments)
        except ValidationError as error:
            raise self._refused(problems_of(error)) from error
        values = {name: getattr(checked, name) for name in type(checked).model_fields}
        return await run_call(self._runtime, functools.partial(self._invoke, values))

    async def _invoke(self, values: dict[str, Any], call: Call) -> Any:
        function = self._spec.function
        try:
            service = self._runtime.services.get(self._domain.name)
        except SettingsError as error:
            raise self._refused([Problem("", "settings", str(error))]) from error
        leading = (service, call) if _wants_call(function) else (service,)
        if inspect.iscoroutinefunction(function):
            return await function(*leading, **values)
        return await in_thread(functools.partial(function, *leading, **values), call)

    def _refused(self, problems: Sequence[Problem]) -> ToolRefused:
        return ToolRefused(self._domain.error.invalid_arguments(self.name, problems))

    def to_mcp_tool(self, **overrides: Any) -> WireTool:
        """The tool as listed: no made-up title, no bookkeeping, which would cost context."""
        return super().to_mcp_tool(**{"title": None, "_meta": None, **overrides})


def register(mcp: FastMCP[Any], domain: Domain, runtime: Runtime, *, read_only: bool) -> None:
    """Add a domain's tools, resources and prompts to a server."""
    for spec in domain.tools:
        if spec.hints.read_only or not read_only:
            mcp.add_tool(TypedTool.of(spec, domain, runtime))
    if domain.extend:
        domain.extend(mcp, runtime.services)


async def run_call(runtime: Runtime, work: Callable[[Call], Awaitable[Any]]) -> ToolResult:
    """Run a tool's work with its own `Call` and make a result of what it returns."""
    context = get_context()
    call = Call(
        _progress_sender(context),
        session=session_of(context),
        tools_changed=runtime.tools_changed,
    )
    try:
        value = await work(call)
    except AppError as error:
        raise ToolRefused(error) from error
    finally:
        with anyio.CancelScope(shield=True):
            await call.settle()
    return result_of(value)


def result_of(value: Any) -> ToolResult:
    """The wire result of a function's value: structured content and the same JSON as text."""
    if isinstance(value, Reply):
        structured = None if value.structured is None else jsonable(value.structured)
        meta = None if value.meta is None else jsonable(value.meta)
        return ToolResult(_text(clean(value.text)), structured, meta)
    plain = jsonable(value)
    return ToolResult(_text(to_text(plain)), plain)


def error_result(payload: Mapping[str, Any]) -> ToolResult:
    """The wire result of a domain's error."""
    plain = jsonable(payload)
    return ToolResult(_text(to_text(plain)), plain, is_error=True)


def wire_hints(hints: Hints) -> ToolAnnotations:
    """A tool's hints as the protocol writes them; hints that only repeat a default are left out."""
    if hints.read_only:
        return ToolAnnotations(read_only_hint=True, open_world_hint=hints.open_world)
    return ToolAnnotations(
        read_only_hint=False,
        destructive_hint=hints.destructive,
        idempotent_hint=hints.idempotent or None,
        open_world_hint=hints.open_world,
    )


def wire_form(spec: Spec) -> dict[str, Any]:
    """A tool as `tools/list` shows it."""
    return {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": input_schema(_arguments_model(spec.function)),
        "annotations": wire_hints(spec.hints).model_dump(by_alias=True, exclude_none=True),
    }


def input_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """The advertised schema of a tool's arguments."""
    schema: dict[str, Any] = tidy(arguments.model_json_schema())
    return schema


def problems_of(error: ValidationError) -> list[Problem]:
    """What pydantic found, without the values that the caller sent."""
    return [
        Problem(".".join(str(part) for part in row["loc"]), row["type"], _plain_message(row))
        for row in error.errors(include_url=False, include_input=False)
    ]


def _plain_message(row: Any) -> str:
    if row["type"] == "extra_forbidden":
        return "no such argument"
    if row["type"] == "missing":
        return "required"
    return str(row["msg"])


def _arguments_model(function: Callable[..., Any]) -> type[BaseModel]:
    fields = {
        name: (
            parameter.annotation,
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    model: type[BaseModel] = create_model(function.__name__, __config__=config, **fields)  # type: ignore[call-overload]
    return model


@functools.cache
def _wants_call(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters) > 1


async def in_thread(work: Callable[[], Any], call: Call) -> Any:
    """Run blocking work in a thread; a cancelled call is told so, then waited for."""
    running = asyncio.ensure_future(anyio.to_thread.run_sync(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        call.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([running])
        raise


def _progress_sender(context: Context) -> Callable[[float, float | None, str], Awaitable[None]]:
    async def send(done: float, total: float | None, text: str) -> None:
        await context.report_progress(done, total, clean(text) or None)

    return send


def session_of(context: Context) -> str | None:
    """Who is asking: the HTTP session, else the token's client; nobody in particular on stdio."""
    try:
        connection = context.session._connection
    except RuntimeError:  # listed from inside the process, by no client at all
        return None
    if connection.session_id:
        return connection.session_id
    token = get_access_token()
    return token.client_id if token else None


def _text(text: str) -> list[TextContent]:
    return [TextContent(type="text", text=text)]
