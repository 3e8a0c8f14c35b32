"""The tool registry on the wire: six meta-tools, and every installed tool as its own tool."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

from fastmcp.dependencies import Depends
from mcp_types import ToolAnnotations
from pydantic import Field

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.kit.results import jsonable, to_text
from fleet_agentpack.kit.stamps import Stamp
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.call import Call, CurrentCall
from fleet_agentpack.wire.dynamic import DynamicTool
from fleet_agentpack.wire.provider import (
    DESTROYS,
    DESTROYS_REMOTE,
    READS,
    READS_REMOTE,
    WRITES_REMOTE,
    DomainTools,
)
from fleet_agentpack.wire.replies import Reply

if TYPE_CHECKING:
    from fleet_agentpack.enact import results
    from fleet_agentpack.enact.projection import Projected, Projection
    from fleet_agentpack.enact.service import EnactService

ToolName = Annotated[str, Field(description="Tool name (e.g., 'alice/utils/weather')")]
ToolVersion = Annotated[
    str | None, Field(description="Specific version (optional, defaults to latest)")
]
META_KEY = "fleet-agentpack/run"


def open_service(settings: Settings) -> "EnactService":
    """The service for this user, this directory and this configuration."""
    from fleet_agentpack.enact.service import EnactService
    from fleet_agentpack.enact.settings import EnactSettings

    return EnactService(EnactSettings.of(settings))


class InstalledTools:
    """The catalogue of installed tools; the described tools are made once per change."""

    def __init__(self, enact: "EnactService") -> None:
        self._enact = enact
        self._made: WeakKeyDictionary[Projection, dict[str, DynamicTool]] = WeakKeyDictionary()

    def tools(self, session: str | None) -> Sequence[DynamicTool]:
        """The tools that a session sees now."""
        return list(self._described(session).values())

    def find(self, name: str, session: str | None) -> DynamicTool | None:
        """One of them by its MCP name."""
        return self._described(session).get(name)

    def fingerprint(self) -> object:
        """A value that differs when the tools may have changed."""
        return self._enact.fingerprint()

    def sources(self) -> Mapping[str, Stamp | None]:
        """The files whose change may change the tools, as last read."""
        return self._enact.sources()

    def _described(self, session: str | None) -> dict[str, DynamicTool]:
        projection = self._enact.projection(session)
        if projection not in self._made:
            self._made[projection] = {
                name: _describe(self._enact, each) for name, each in projection.callables.items()
            }
        return self._made[projection]


mcp = DomainTools(
    "enact",
    server_name="enact-mcp-server",
    instructions="enact: find, read about, install and run tools from a registry. [Call"
    " {enact__search, enact__learn}[, {enact__install}, then the tool by its own name].]",
    error=EnactError,
    open_service=open_service,
    catalogue=InstalledTools,
    end_session=lambda enact, session: enact.end_session(session),
)


@mcp.tool(annotations=READS_REMOTE)
def enact__search(
    *,
    enact: "EnactService" = Depends(mcp.service),
    query: Annotated[str, Field(description="Search query (keywords, descriptions, or tags)")],
    limit: Annotated[float, Field(description="Maximum results to return")] = 10,
) -> "results.SearchResult":
    """Search the Enact registry for tools. Returns matching tools with descriptions."""
    return enact.search(query, limit)


@mcp.tool(annotations=READS_REMOTE)
def enact__learn(
    *,
    enact: "EnactService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    tool: ToolName,
    version: ToolVersion = None,
) -> "results.LearnResult":
    """Get documentation for a tool. Returns the full enact.md content including usage instructions."""  # noqa: E501 - the contract's words
    return enact.learn(tool, version, call.session)


@mcp.tool(annotations=WRITES_REMOTE)
def enact__install(
    *,
    enact: "EnactService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    tool: ToolName,
    version: ToolVersion = None,
) -> "results.ChangeResult":
    """Install a tool globally. After installation, the tool becomes available as a callable MCP tool."""  # noqa: E501 - the contract's words
    result = enact.install(tool, version, call.session, call.report)
    call.tools_changed()
    return result


@mcp.tool(annotations=DESTROYS)
def enact__uninstall(
    *,
    enact: "EnactService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    tool: Annotated[str, Field(description="Tool name to uninstall")],
) -> "results.ChangeResult":
    """Uninstall a globally installed tool."""
    result = enact.uninstall(tool, call.session)
    call.tools_changed()
    return result


@mcp.tool(annotations=READS)
def enact__list(
    enact: "EnactService" = Depends(mcp.service),
    call: Call = CurrentCall(),
) -> "results.ToolList":
    """List all globally installed tools. These are the tools available for direct execution."""
    return enact.installed(call.session)


@mcp.tool(annotations=DESTROYS_REMOTE)
def enact__run(
    *,
    enact: "EnactService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    tool: Annotated[
        str,
        Field(description="Tool name (e.g., 'alice/utils/weather' or 'alice/utils/weather@1.0.0')"),
    ],
    args: Annotated[
        dict[str, Any] | None, Field(description="Arguments to pass to the tool")
    ] = None,
) -> "results.RunResult":
    """Run any tool by name, even if not installed. For installed tools, prefer calling them directly."""  # noqa: E501 - the contract's words
    return enact.run(tool, args, call.session, call.report)


def _describe(enact: "EnactService", tool: "Projected") -> DynamicTool:
    """An installed tool with its own schema, description and annotations."""
    script, manifest = tool.script, tool.installed.manifest
    schema = script.input_schema if script else {"type": "object", "properties": {}}
    given: Mapping[str, Any] = script.annotations if script else {"readOnlyHint": True}
    output = script.output_schema if script else None

    def run(arguments: dict[str, Any], call: Call) -> Reply:
        return _reply(enact.call(tool, arguments, call.report))

    return DynamicTool(
        name=tool.mcp_name,
        description=script.description if script else manifest.description,
        input_schema=schema,
        run=run,
        output_schema=output if output and output.get("type") == "object" else None,
        title=given.get("title"),
        annotations=_annotations(given, schema, network=manifest.network),
    )


def _annotations(
    given: Mapping[str, Any], schema: Mapping[str, Any], *, network: bool
) -> ToolAnnotations:
    """A tool's hints; those that only repeat a default are left out."""
    from fleet_agentpack.enact.arguments import writes

    open_world = given.get("openWorldHint", network)
    # A tool that may write to a directory of the user does more than read, whatever it says.
    if given.get("readOnlyHint", False) and not writes(schema):
        return ToolAnnotations(read_only_hint=True, open_world_hint=open_world)
    return ToolAnnotations(
        read_only_hint=False,
        destructive_hint=given.get("destructiveHint", True),
        idempotent_hint=given.get("idempotentHint", False) or None,
        open_world_hint=open_world,
    )


def _reply(result: "results.RunResult") -> Reply:
    """The tool's own output as the result; how it ran is beside it."""
    output = result.output
    ran = {key: getattr(result, key) for key in ("exit_code", "duration_ms", "provider")}
    facts = {META_KEY: ran}
    if isinstance(output, str):
        return Reply(output, {"text": output}, facts)
    structured = output if isinstance(output, dict) else {"result": output}
    return Reply(to_text(jsonable(structured)), structured, facts)
