"""The four climpt tools: find, describe and render prompt commands, reload their registry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastmcp.dependencies import Depends
from pydantic import Field, WithJsonSchema

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.project_files import FOLDER
from fleet_agentpack.kit.results import UNKNOWN, jsonable, to_text
from fleet_agentpack.wire.call import Call, CurrentCall
from fleet_agentpack.wire.dynamic_prompts import DynamicPrompt, PromptText
from fleet_agentpack.wire.provider import READS, DomainTools
from fleet_agentpack.wire.replies import Reply
from fleet_agentpack.wire.resources import bounded_text, told

if TYPE_CHECKING:
    from fleet_agentpack.climpt.command_prompts import CommandPrompt
    from fleet_agentpack.climpt.render import Rendered
    from fleet_agentpack.climpt.results import Description, Reloaded
    from fleet_agentpack.climpt.service import ClimptService
    from fleet_agentpack.kit.stamps import Stamp
    from fleet_agentpack.settings import Settings

# The original's list of command line options is taken too, but not advertised.
Options = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "object",
            "description": "edition, adaptation, file, destination, stdin, uv-<name>",
        }
    ),
]
Agent = Annotated[str, Field(description='"climpt"[, unless {search} was asked for another]')]
NO_OPTIONS: dict[str, Any] = {}
UNFILLED = "climpt/unfilled"
COMMAND = "climpt://commands/{c1}/{c2}/{c3}"


def open_service(settings: "Settings") -> "ClimptService":
    """The service for the project that the server was started in."""
    from fleet_agentpack.climpt.service import open_climpt

    return open_climpt(settings)


@dataclass(frozen=True)
class CommandPrompts:
    """The commands as MCP prompts."""

    climpt: "ClimptService"

    def prompts(self) -> list[DynamicPrompt]:
        """One for each command."""
        return [self._prompt(each) for each in self.climpt.prompts()]

    def sources(self) -> "dict[str, Stamp | None]":
        """The registries and the folders that they may be in."""
        return self.climpt.prompt_sources()

    def _prompt(self, prompt: "CommandPrompt") -> DynamicPrompt:
        async def render(arguments: Mapping[str, str]) -> PromptText:
            made = await self.climpt.render(prompt, arguments)
            return PromptText(made.text, unfilled(made))

        arguments = [(each.name, each.description) for each in prompt.arguments]
        return DynamicPrompt(prompt.name, prompt.description, arguments, render)


def unfilled(prompt: "Rendered") -> dict[str, tuple[str, ...]] | None:
    """What a result's `_meta` says of variables that no value was given for."""
    return {UNFILLED: prompt.unfilled} if prompt.unfilled else None


mcp = DomainTools(
    "climpt",
    server_name="climpt",
    instructions="climpt: ready prompts for recurring work such as commits and branches. [Call"
    " {search, describe, execute}.] [Then follow the prompt that {execute} gives.]",
    error=ClimptError,
    open_service=open_service,
    prompt_catalogue=CommandPrompts,
    prompt_folder=FOLDER,
)


@mcp.tool(annotations=READS)
def search(
    *, climpt: "ClimptService" = Depends(mcp.service), query: str, agent: str = "climpt"
) -> Reply:
    """Find this project's prompt commands (c1, c2, c3) for a task described in plain words.

    [Call {describe or execute} next.]
    """
    found = climpt.search(query, agent)
    plain = jsonable(found)
    # A client may show the text alone, and an empty list is no help.
    note = found.warnings[0] if found.warnings is not UNKNOWN and not found.results else None
    return Reply(
        to_text(plain["results"]), plain, write=lambda cut: to_text(cut["results"]), note=note
    )


@mcp.tool(annotations=READS)
def describe(
    *,
    climpt: "ClimptService" = Depends(mcp.service),
    c1: str,
    c2: str,
    c3: str,
    agent: str = "climpt",
) -> "Description":
    """Show a prompt command's usage and options[; {search} gives c1, c2 and c3].

    [Call {execute} next.]
    """
    return climpt.describe(c1, c2, c3, agent)


@mcp.tool(annotations=READS)
async def execute(
    *,
    climpt: "ClimptService" = Depends(mcp.service),
    agent: Agent,
    c1: str,
    c2: str,
    c3: str,
    options: Options = NO_OPTIONS,
) -> Reply:
    """Get a prompt command's instructions as text and follow them; nothing is executed here.

    [Call {describe} first for its options.]
    """
    prompt = await climpt.execute(agent, c1, c2, c3, options)
    return Reply(prompt.text, meta=unfilled(prompt))


@mcp.tool(annotations=READS)
def reload(
    *,
    climpt: "ClimptService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    agent: str = "climpt",
) -> "Reloaded":
    """Reload the registry of prompt commands after its file changed. [Call {search} next.]"""
    done = climpt.reload(agent)
    call.tools_changed()  # the commands are prompts, too
    return done


@mcp.resource(COMMAND, mime_type="application/json")
def command(c1: str, c2: str, c3: str, climpt: "ClimptService" = Depends(mcp.service)) -> str:
    """A prompt command's usage and options."""
    try:
        return bounded_text(climpt.describe(c1, c2, c3), mcp.place_of("describe"))
    except ClimptError as error:
        raise told(error) from error


@mcp.completes(COMMAND, "c1")
def first_names(climpt: "ClimptService", _given: Mapping[str, str]) -> list[str]:
    """The domains of the commands."""
    return [each.c1 for each in climpt.commands()]


@mcp.completes(COMMAND, "c2")
def second_names(climpt: "ClimptService", given: Mapping[str, str]) -> list[str]:
    """The actions of the domain that was given."""
    return [each.c2 for each in climpt.commands(given.get("c1"))]


@mcp.completes(COMMAND, "c3")
def third_names(climpt: "ClimptService", given: Mapping[str, str]) -> list[str]:
    """The targets of the domain and the action that were given."""
    return [each.c3 for each in climpt.commands(given.get("c1"), given.get("c2"))]
