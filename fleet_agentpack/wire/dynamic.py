"""Tools that come and go while clients are connected: any JSON Schema, no Python signature."""

from __future__ import annotations

import contextlib
import inspect
import json
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio.to_thread
from fastmcp.server.dependencies import get_context
from fastmcp.server.providers.base import Provider
from fastmcp.tools.base import Tool, ToolResult
from mcp_types import ListToolsResult, ToolAnnotations
from mcp_types import Tool as WireTool
from mcp_types.methods import serialize_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import PrivateAttr

from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.stamps import Stamp
from fleet_agentpack.settings import SettingsError
from fleet_agentpack.wire.call import Call, running_call, session_of
from fleet_agentpack.wire.installed_state import (
    InstalledState,
    ListedTool,
    read_state,
    state_path,
)
from fleet_agentpack.wire.known_shapes import MODERN
from fleet_agentpack.wire.limits import bounded
from fleet_agentpack.wire.provider import READS, SLOW, WRITES_TAG, DomainTools, Services, tags_of
from fleet_agentpack.wire.queues import turn
from fleet_agentpack.wire.replies import ToolRefused, written
from fleet_agentpack.wire.schema import without_nulls
from fleet_agentpack.wire.selection import LONGEST_NAME, shortened

if TYPE_CHECKING:
    from fastmcp.utilities.components import FastMCPComponent
    from fastmcp.utilities.versions import VersionSpec


@dataclass(frozen=True, eq=False)
class DynamicTool:
    """A tool described by data; `run` takes the raw arguments and checks them itself.

    A plain function runs in a worker thread.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    run: Callable[[dict[str, Any], Call], Any]
    output_schema: dict[str, Any] | None = None
    title: str | None = None
    annotations: ToolAnnotations = field(default_factory=lambda: READS)


class Catalogue(Protocol):
    """Where a domain's dynamic tools come from."""

    def tools(self, session: str | None) -> Sequence[DynamicTool]:
        """The tools that a session sees now; cheap, since every list asks for it."""

    def find(self, name: str, session: str | None) -> DynamicTool | None:
        """One of them by its MCP name."""

    def fingerprint(self) -> object:
        """A value that differs when the tools may have changed; made of a few stats."""

    def sources(self) -> Mapping[str, Stamp | None]:
        """The files whose change may change the tools, as they were when last read.

        While none of them exists there are no tools.
        """


class ProjectedTool(Tool):
    """A dynamic tool as FastMCP sees it."""

    _tool: DynamicTool = PrivateAttr()
    _place: str = PrivateAttr()

    @classmethod
    def of(cls, tool: DynamicTool, place: str) -> ProjectedTool:
        """The FastMCP tool for a described one."""
        projected = cls(
            name=tool.name,
            title=tool.title,
            description=tool.description,
            parameters=tool.input_schema,
            output_schema=tool.output_schema,
            annotations=tool.annotations,
            tags=tags_of(tool.annotations),
        )
        projected._tool, projected._place = tool, place
        return projected

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Hand the raw arguments to the described tool."""
        run, given = self._tool.run, without_nulls(arguments, self.parameters)
        context = get_context()
        async with running_call(context) as call:
            try:
                if inspect.iscoroutinefunction(run):
                    value = await run(given, call)
                else:
                    async with turn(context, SLOW):
                        value = await anyio.to_thread.run_sync(run, given, call)
            except AppError as error:
                raise ToolRefused(error) from error
            return bounded(written(value), self._place)

    def to_mcp_tool(self, **overrides: Any) -> WireTool:
        """The tool as listed; its title only when it has one."""
        return super().to_mcp_tool(**{"title": self.title, "_meta": None, **overrides})


class DynamicTools(Provider):
    """Serves a domain's catalogue to FastMCP; nothing is registered, so nothing goes stale."""

    kind = "tools"

    def __init__(
        self, domain: DomainTools, services: Services, fixed: Collection[str], prefix: str = ""
    ) -> None:
        super().__init__()
        self._domain, self._services = domain, services
        self._longest = LONGEST_NAME - len(prefix)
        self._fixed = fixed  # names that are taken: a call of one never looks into the catalogue
        self._wrapped: weakref.WeakKeyDictionary[DynamicTool, ProjectedTool]
        self._wrapped = weakref.WeakKeyDictionary()
        self._catalogues: dict[object, Catalogue] = {}  # by the service that it is of
        self._kept_stamps: Mapping[str, Stamp | None] | None = None

    def fingerprint(self) -> object:
        """See `Catalogue.fingerprint`."""
        try:
            self._catalogue()
            return [each.fingerprint() for each in list(self._catalogues.values())]
        except (AppError, SettingsError) as error:  # a domain that cannot be opened has no tools
            return str(error)

    async def get_tasks(self) -> Sequence[FastMCPComponent]:
        """None: a dynamic tool never runs as a background task."""
        return []

    def sources(self) -> Mapping[str, Stamp | None]:
        """See `Catalogue.sources`."""
        try:
            return self._catalogue().sources()
        except (AppError, SettingsError):
            return {}

    async def _list_tools(self) -> Sequence[Tool]:
        session = session_of(get_context())
        tools = [self._wrap(tool) for tool in self._catalogue().tools(session)]
        if session is None:
            await anyio.to_thread.run_sync(self._keep_for_the_front, tools)
        return tools

    def _keep_for_the_front(self, tools: Sequence[ProjectedTool]) -> None:
        """Write down how these tools are listed, so that the next start can tell without us."""
        stamps = self.sources()
        if stamps == self._kept_stamps:
            return
        self._kept_stamps = stamps
        path = Path(state_path(str(self._services.settings.directories.cache), self._domain.name))
        with contextlib.suppress(OSError, ValueError):  # a cache: done without
            state = InstalledState(stamps, tuple(map(_listed, tools)))
            # A name without this may belong to a tool of ours that is not served here.
            told_apart = all("__" in tool.name for tool in tools)
            if state.certain and told_apart and read_state(str(path)) != state:
                write_atomic(path, state.to_json())

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:  # noqa: ARG002
        if name in self._fixed:
            return None
        session = session_of(get_context())
        tool = self._catalogue().find(name, session)
        if tool is None and len(name) == self._longest:
            every = self._catalogue().tools(session)
            tool = next((each for each in every if shortened(each.name, len(name)) == name), None)
        return None if tool is None else self._wrap(tool)

    def _wrap(self, tool: DynamicTool) -> ProjectedTool:
        """The FastMCP tool for a described one, made once: a list may have hundreds."""
        if tool not in self._wrapped:
            self._wrapped[tool] = ProjectedTool.of(tool, self._domain.place_of(tool.name))
        return self._wrapped[tool]

    def _catalogue(self) -> Catalogue:
        assert self._domain.catalogue is not None  # noqa: S101 - made only for domains that have one
        service = self._services.get(self._domain)
        if service not in self._catalogues:
            self._catalogues[service] = self._domain.catalogue(service)
        return self._catalogues[service]


def _listed(tool: ProjectedTool) -> ListedTool:
    """A tool as the SDK writes it in either era."""
    result = ListToolsResult(tools=[tool.to_mcp_tool(name=tool.name)])
    plain = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    legacy, modern = (
        json.dumps(
            serialize_server_result("tools/list", version, plain)["tools"][0],
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for version in (LATEST_HANDSHAKE_VERSION, MODERN)
    )
    return ListedTool(legacy, modern, writes=WRITES_TAG in tool.tags)
