"""The tool registry on the wire: six meta-tools, and every installed tool as its own tool."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

from fastmcp.dependencies import Depends
from mcp_types import ToolAnnotations
from pydantic import Field

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import is_builtin
from fleet_agentpack.kit.actions import Action, named
from fleet_agentpack.kit.fit import Text
from fleet_agentpack.kit.results import jsonable, to_text
from fleet_agentpack.kit.stamps import Stamp
from fleet_agentpack.kit.visible import visible_throughout
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.call import Call, CurrentCall
from fleet_agentpack.wire.dynamic import DynamicTool
from fleet_agentpack.wire.provider import (
    DESTROYS,
    DESTROYS_REMOTE,
    READS,
    READS_REMOTE,
    SLOW,
    WRITES_REMOTE,
    DomainTools,
)
from fleet_agentpack.wire.replies import Reply
from fleet_agentpack.wire.resources import told

if TYPE_CHECKING:
    from fleet_agentpack.enact import results
    from fleet_agentpack.enact.manifest import Manifest, Script
    from fleet_agentpack.enact.projection import Projected, Projection
    from fleet_agentpack.enact.service import EnactService

ToolName = Annotated[str, Field(description="Tool name (e.g., 'alice/utils/weather')")]
ToolVersion = Annotated[
    str | None, Field(description="Specific version (optional, defaults to latest)")
]
META_KEY = "fleet-agentpack/run"
MOST_NAMED = 5  # of a tool with many scripts


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
    instructions="enact: tools from a registry, for work that no tool here does. [Call"
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
    installed = enact.install(tool, version, call.session, call.report)
    call.tools_changed()
    return replace(installed, message=f"{installed.message}. {_ways_to_run(enact, tool, call)}")


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


@mcp.tool(annotations=DESTROYS_REMOTE, tags={SLOW})
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
    return _shown(enact.run(tool, args, call.session, call.report))


@mcp.collection("skill://")
def skills(enact: "EnactService", session: str | None) -> object:
    """Every installed tool; skill://NAME documents one."""
    return enact.installed(session)


@mcp.resource("skill://{name*}", mime_type="text/markdown")
def skill(
    name: str, enact: "EnactService" = Depends(mcp.service), call: Call = CurrentCall()
) -> str:
    """What an installed tool does and how it is used."""
    try:
        return enact.documentation(name, call.session)
    except EnactError as error:
        raise told(error) from error


@mcp.completes("skill://{name*}", "name")
def skill_names(enact: "EnactService", _given: Mapping[str, str]) -> list[str]:
    """The names of the installed tools."""
    return [tool.name for tool in enact.installed().tools]


def _ways_to_run(enact: "EnactService", tool: str, call: Call) -> str:
    """How to call what was just installed: not every client sees new tools before it restarts."""
    run = Action("enact__run", {"tool": tool.partition("@")[0]}, "call {}")
    own = enact.mcp_names(tool, call.session)
    if not own:
        return f"To run it, {run.for_agent()}."
    called = " or ".join(name for name in map(named, own[:MOST_NAMED]) if name)
    return f"To run it, call {called}; if your client does not list that, {run.for_agent()}."


def _describe(enact: "EnactService", tool: "Projected") -> DynamicTool:
    """An installed tool with its own schema and description; hints come from its permissions."""
    from fleet_agentpack.enact.permissions import asked_for, is_read_only

    script, manifest = tool.script, tool.installed.manifest
    schema = script.input_schema if script else {"type": "object", "properties": {}}
    output = script.output_schema if script else None
    declared = output if output and output.get("type") == "object" else None
    described = script.description if script else manifest.description
    asked = asked_for(manifest, script)
    confined = enact.is_confined(manifest.name)
    read_only = is_read_only(manifest, script, confined=confined)
    network = bool(manifest.network) or not confined

    def run(arguments: dict[str, Any], call: Call) -> Reply:
        return _reply(_shown(enact.call(tool, arguments, call.report)), tool.mcp_name, declared)

    return DynamicTool(
        name=tool.mcp_name,
        description=f"{described}\n\nAsks for {asked}." if asked else described,
        input_schema=schema,
        run=run,
        output_schema=declared,
        title=_title(manifest, script),
        annotations=_annotations(read_only=read_only, network=network and script is not None),
    )


def _title(manifest: "Manifest", script: "Script | None") -> str | None:
    """The title of a tool of this package; another publisher's could pass for one."""
    ours = is_builtin(manifest.name)
    title = script.annotations.get("title") if script and ours else None
    return title if isinstance(title, str) else None


def _annotations(*, read_only: bool, network: bool) -> ToolAnnotations:
    """A tool's hints, from what it can reach and never from what its publisher says."""
    if read_only:
        return ToolAnnotations(read_only_hint=True, open_world_hint=network)
    return ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=network)


def _shown(result: "results.RunResult") -> "results.RunResult":
    """A result for a model to read: what a tool may have hidden in its output is made visible."""
    return replace(result, output=visible_throughout(result.output))


def _reply(result: "results.RunResult", tool: str, schema: Mapping[str, Any] | None) -> Reply:
    """The tool's own output as the result; how it ran is beside it."""
    output = result.output
    ran = {key: getattr(result, key) for key in ("exit_code", "duration_ms", "provider")}
    facts = {META_KEY: ran}
    if isinstance(output, str):
        text = (Text("text"),)
        return Reply(output, {"text": output}, facts, lambda cut: str(cut["text"]), text)
    structured = output if isinstance(output, dict) else {"result": output}
    reply = Reply(to_text(jsonable(structured)), structured, facts)
    if schema is None:
        return reply
    return replace(
        reply,
        conforms=partial(_conforms, tool, schema),
        too_long=partial(EnactError.output_too_long, tool),
    )


def _conforms(tool: str, schema: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    from fleet_agentpack.enact.schemas import check

    return not check(tool, schema, value)
