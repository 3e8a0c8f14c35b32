"""The tool registry on the wire: six meta-tools, and every installed tool as one of its own."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

from pydantic import Field

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.kit.results import jsonable, to_text
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.dynamic import DynamicTool
from fleet_agentpack.wire.params import (
    DESTROYS,
    DESTROYS_REMOTE,
    READS,
    READS_REMOTE,
    WRITES_REMOTE,
    Call,
    Hints,
)
from fleet_agentpack.wire.register import Domain, Reply, Spec

if TYPE_CHECKING:
    from fleet_agentpack.enact.projection import Projected, Projection
    from fleet_agentpack.enact.results import RunResult
    from fleet_agentpack.enact.service import EnactService

ToolName = Annotated[str, Field(description="Tool name (e.g., 'alice/utils/weather')")]
ToolVersion = Annotated[
    str | None, Field(description="Specific version (optional, defaults to latest)")
]
META_KEY = "fleet-agentpack/run"


def enact__search(
    enact: "EnactService",
    *,
    query: Annotated[str, Field(description="Search query (keywords, descriptions, or tags)")],
    limit: Annotated[float, Field(description="Maximum results to return")] = 10,
) -> Any:
    """Search the Enact registry for tools. Returns matching tools with descriptions."""
    return enact.search(query, limit)


def enact__learn(
    enact: "EnactService", call: Call, *, tool: ToolName, version: ToolVersion = None
) -> Any:
    """Get documentation for a tool. Returns the full enact.md content including usage instructions."""  # noqa: E501 - the seed's words
    return enact.learn(tool, version, call.session)


def enact__install(
    enact: "EnactService", call: Call, *, tool: ToolName, version: ToolVersion = None
) -> Any:
    """Install a tool globally. After installation, the tool becomes available as a callable MCP tool."""  # noqa: E501 - the seed's words
    result = enact.install(tool, version, call.session, call.report)
    call.tools_changed()
    return result


def enact__uninstall(
    enact: "EnactService",
    call: Call,
    *,
    tool: Annotated[str, Field(description="Tool name to uninstall")],
) -> Any:
    """Uninstall a globally installed tool."""
    result = enact.uninstall(tool, call.session)
    call.tools_changed()
    return result


def enact__list(enact: "EnactService", call: Call) -> Any:
    """List all globally installed tools. These are the tools available for direct execution."""
    return enact.installed(call.session)


def enact__run(
    enact: "EnactService",
    call: Call,
    *,
    tool: Annotated[
        str,
        Field(description="Tool name (e.g., 'alice/utils/weather' or 'alice/utils/weather@1.0.0')"),
    ],
    args: Annotated[
        dict[str, Any] | None, Field(description="Arguments to pass to the tool")
    ] = None,
) -> Any:
    """Run any tool by name, even if not installed. For installed tools, prefer calling them directly."""  # noqa: E501 - the seed's words
    return enact.run(tool, args, call.session, call.report)


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

    def _described(self, session: str | None) -> dict[str, DynamicTool]:
        projection = self._enact.projection(session)
        if projection not in self._made:
            self._made[projection] = {
                name: _describe(self._enact, each) for name, each in projection.callables.items()
            }
        return self._made[projection]


def _describe(enact: "EnactService", tool: "Projected") -> DynamicTool:
    """An installed tool with its own schema, description and annotations."""
    from fleet_agentpack.enact.arguments import writes

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
        hints=Hints(
            # A tool that may write to a directory of the user only says that it reads.
            read_only=given.get("readOnlyHint", False) and not writes(schema),
            destructive=given.get("destructiveHint", True),
            idempotent=given.get("idempotentHint", False),
            open_world=given.get("openWorldHint", manifest.network),
        ),
    )


def _reply(result: "RunResult") -> Reply:
    """The tool's own output as the result; how it ran is beside it."""
    output = result.output
    if isinstance(output, str):
        return Reply(output, {"text": output}, {META_KEY: _facts(result)})
    structured = output if isinstance(output, dict) else {"result": output}
    return Reply(to_text(jsonable(structured)), structured, {META_KEY: _facts(result)})


def _facts(result: "RunResult") -> dict[str, Any]:
    return {
        "exit_code": result.exit_code,
        "duration_ms": result.duration_ms,
        "provider": result.provider,
    }


def open_service(settings: Settings) -> "EnactService":
    """The service for this user, this directory and this configuration."""
    from fleet_agentpack.enact.service import EnactService
    from fleet_agentpack.enact.settings import EnactSettings

    return EnactService(EnactSettings.of(settings))


def _end_session(enact: "EnactService", session: str) -> None:
    enact.end_session(session)


DOMAIN = Domain(
    name="enact",
    server_name="enact-mcp-server",
    instructions="enact: find, read about, install and run tools from a registry; enact__search, "
    "enact__learn, enact__install, then call the tool by its own name.",
    error=EnactError,
    open=open_service,
    tools=[
        Spec(enact__search, READS_REMOTE),
        Spec(enact__learn, READS_REMOTE),
        Spec(enact__install, WRITES_REMOTE),
        Spec(enact__uninstall, DESTROYS),
        Spec(enact__list, READS),
        Spec(enact__run, DESTROYS_REMOTE),
    ],
    catalogue=InstalledTools,
    end_session=_end_session,
)
