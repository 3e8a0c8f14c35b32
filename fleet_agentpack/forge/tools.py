"""The eighteen forge tools, three resources and three prompts."""

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fastmcp.dependencies import Depends
from fastmcp.exceptions import FastMCPError, PromptError, ResourceError, ValidationError
from fastmcp.resources.base import ResourceContent, ResourceResult
from pydantic import Field

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.kit.actions import called
from fleet_agentpack.kit.results import jsonable
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.call import Call, CurrentCall
from fleet_agentpack.wire.provider import DESTROYS, READS, READS_REMOTE, DomainTools, needs

if TYPE_CHECKING:
    from fleet_agentpack.forge import results
    from fleet_agentpack.forge.service import ForgeService

Answer = TypeVar("Answer")
MIME_TYPES = {
    "md": "text/markdown",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "json": "application/json",
}
EVERYTHING = 1_000_000  # more definitions than anybody has
Source = Literal["local", "global", "stockyard", "all"]
Tags = Annotated[list[str] | None, Field(description="Any of these tags")]
Limit = Annotated[int, Field(ge=1, le=1000)]
Offset = Annotated[int, Field(ge=0)]
Version = Annotated[str | None, Field(description="Version or npm range")]
AgentPath = Annotated[str | None, Field(description="Definition file; not together with name")]


def open_service(settings: Settings) -> "ForgeService":
    """The service for these settings."""
    from fleet_agentpack.forge import service

    return service.open_service(settings)


mcp = DomainTools(
    "forge",
    server_name="fractary-forge",
    instructions="forge: look up and validate agent, tool and plugin definitions. [Begin with"
    " {fractary_forge_agent_list, fractary_forge_tool_list or fractary_forge_plugin_list}.]",
    error=ForgeError,
    open_service=open_service,
)


@mcp.tool(annotations=READS_REMOTE)
def fractary_forge_agent_list(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    tags: Tags = None,
    source: Source = "all",
    limit: Limit = 100,
    offset: Offset = 0,
) -> "results.AgentList | results.ToolList":
    """List agent definitions (not running agents), optionally filtered by tags and source.

    [Call {fractary_forge_agent_info} next with one of the names.]
    """
    return forge.listing(
        "agent", tags=tags or (), source=source, limit=limit, offset=offset, report=call.report
    )


@mcp.tool(annotations=READS_REMOTE)
def fractary_forge_agent_info(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    name: str,
    version: Version = None,
    source: Source = "all",
) -> "results.AgentInfo | results.ToolInfo":
    """Read one agent definition (prompt, tools, base, dependencies) before you use, fork or change
    it. [Call {fractary_forge_agent_validate} next to check it.]
    """
    return forge.info("agent", name, version, source)


@mcp.tool(annotations=READS)
def fractary_forge_agent_validate(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    path: AgentPath = None,
    name: str | None = None,
    strict: bool = False,
) -> "results.Validation":
    """Check an agent definition by path or name, after writing or changing it.

    Fix what `errors` lists, then call it again.
    """
    return forge.validate("agent", path=path, name=name, strict=strict)


@mcp.tool(annotations=READS_REMOTE)
def fractary_forge_tool_list(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    tags: Tags = None,
    source: Source = "all",
    limit: Limit = 100,
    offset: Offset = 0,
) -> "results.AgentList | results.ToolList":
    """List tool definitions that agents can be given, optionally filtered by tags and source.

    [Call {fractary_forge_tool_info} next with one of the names.]
    """
    return forge.listing(
        "tool", tags=tags or (), source=source, limit=limit, offset=offset, report=call.report
    )


@mcp.tool(annotations=READS_REMOTE)
def fractary_forge_tool_info(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    name: str,
    version: Version = None,
    source: Source = "all",
) -> "results.AgentInfo | results.ToolInfo":
    """Read one tool definition with its inputs and outputs as JSON Schema, before you use or change
    it. [Call {fractary_forge_tool_validate} next to check it.]
    """
    return forge.info("tool", name, version, source)


@mcp.tool(annotations=READS)
def fractary_forge_tool_validate(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    path: AgentPath = None,
    name: str | None = None,
    strict: bool = False,
) -> "results.Validation":
    """Check a tool definition by path or name, after writing or changing it.

    Fix what `errors` lists, then call it again.
    """
    return forge.validate("tool", path=path, name=name, strict=strict)


@mcp.tool(annotations=READS_REMOTE)
def fractary_forge_plugin_list(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    scope: Literal["global", "local", "all"] = "all",
    outdated: Annotated[bool, Field(description="Only those with an update")] = False,
) -> "results.PluginList":
    """List installed plugins, or only those with a newer version in a registry.

    [Call {fractary_forge_plugin_info} next to see what one contains.]
    """
    return forge.plugin_list(scope, outdated=outdated)


@mcp.tool(annotations=READS_REMOTE)
def fractary_forge_plugin_info(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    plugin: str,
    version: Version = None,
    remote: Annotated[bool, Field(description="Ask the registries")] = False,
) -> "results.PluginInfo":
    """Show a plugin's components, dependencies and versions, as installed or as a registry offers
    it. The user installs it with: fleet-agentpack forge install NAME.
    """
    return forge.plugin_info(plugin, version, remote=remote)


@mcp.tool(annotations=READS_REMOTE)
def fractary_forge_plugin_search(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    query: str,
    tags: Tags = None,
    limit: int = 20,
    offset: int = 0,
) -> "results.PluginSearch":
    """Search the registries for plugins to install; an empty query lists all.

    [Call {fractary_forge_plugin_info} next, with remote: true.]
    """
    return forge.plugin_search(query, tags or (), limit, offset)


@mcp.tool(annotations=READS)
def fractary_forge_config_get(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    key: Annotated[str, Field(description='Dotted path, e.g. "registries.0.url"')],
) -> "results.ConfigValue":
    """Get one forge configuration value by its key.

    [Call {fractary_forge_config_show} for all keys.]
    """
    return forge.config_get(key)


@mcp.tool(annotations=READS)
def fractary_forge_config_show(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    includeDefaults: bool = True,
    format: Literal["json", "yaml"] = "json",
) -> "results.ConfigView":
    """Show the whole forge configuration and the files it comes from; call it when something is not
    found. [Call {fractary_forge_config_registry_list} next for the registries' logins.]
    """
    return forge.config_show(include_defaults=includeDefaults, layout=format)


@mcp.tool(annotations=READS)
def fractary_forge_config_registry_list(
    forge: "ForgeService" = Depends(mcp.service),
) -> "results.RegistryList":
    """List the plugin registries in lookup order, with their login status.

    [Call {fractary_forge_plugin_search} next to search them.]
    """
    return forge.registry_list()


@mcp.tool(annotations=READS)
def fractary_forge_cache_stats(
    forge: "ForgeService" = Depends(mcp.service),
) -> "results.CacheStats":
    """Show the size and age of the forge cache; call it when a registry's answers look outdated.

    [Call {fractary_forge_cache_clear} next to have them fetched again.]
    """
    return forge.cache_stats()


@mcp.tool(annotations=DESTROYS)
def fractary_forge_cache_clear(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    type: Literal["manifests", "downloads", "all"] = "all",
    olderThan: Annotated[int | None, Field(description="Only entries older than N days")] = None,
) -> "results.CacheCleared":
    """Clear the forge cache (all of it by default), so that registries are queried again.

    [Call {fractary_forge_cache_stats} first to see what it holds.]
    """
    return forge.cache_clear(type, olderThan)


@mcp.tool(annotations=READS)
def fractary_forge_fork_list(
    *, forge: "ForgeService" = Depends(mcp.service), type: Literal["agent", "tool", "all"] = "all"
) -> "results.ForkList":
    """List forked agents and tools, as far as they are known offline.

    [Call {fractary_forge_fork_check} next to look for upstream updates.]
    """
    return forge.fork_list(type)


@mcp.tool(annotations=READS_REMOTE)
def fractary_forge_fork_info(
    *, forge: "ForgeService" = Depends(mcp.service), name: str
) -> "results.ForkInfo":
    """Show where one fork comes from, with its versions and dates.

    [Call {fractary_forge_fork_diff} next to see what differs.]
    """
    return forge.fork_info(name)


@mcp.tool(annotations=READS_REMOTE)
def fractary_forge_fork_diff(
    *,
    forge: "ForgeService" = Depends(mcp.service),
    name: str,
    format: Literal["unified", "json"] = "unified",
) -> "results.ForkDiff":
    """Show field by field how a fork differs from its newest upstream, before merging the two.

    The user merges with: fleet-agentpack forge merge NAME.
    """
    return forge.fork_diff(name, format)


@mcp.tool(annotations=READS_REMOTE)
def fractary_forge_fork_check(
    *, forge: "ForgeService" = Depends(mcp.service), name: str | None = None
) -> "results.ForkCheck":
    """Check one fork, or all forks, for upstream updates and breaking changes.

    [Call {fractary_forge_fork_diff} next for one that has an update.]
    """
    return forge.fork_check(name)


@mcp.collection("forge://agents")
def forge_agents(forge: "ForgeService", _session: str | None) -> object:
    """Every agent definition, as far as it is known."""
    return forge.listing("agent", limit=EVERYTHING)


@mcp.collection("forge://tools")
def forge_tools(forge: "ForgeService", _session: str | None) -> object:
    """Every tool definition, as far as it is known."""
    return forge.listing("tool", limit=EVERYTHING)


@mcp.collection("forge://plugins")
def forge_plugins(forge: "ForgeService", _session: str | None) -> object:
    """Every installed plugin."""
    return forge.plugin_list()


@mcp.resource("forge://agents/{name*}", name="forge_agent")
def agent_definition(name: str, forge: "ForgeService" = Depends(mcp.service)) -> ResourceResult:
    """The definition of an agent"""
    return _text_resource(lambda: forge.definition_text("agent", name))


@mcp.resource("forge://tools/{name*}", name="forge_tool")
def tool_definition(name: str, forge: "ForgeService" = Depends(mcp.service)) -> ResourceResult:
    """The definition of a tool"""
    return _text_resource(lambda: forge.definition_text("tool", name))


@mcp.resource("forge://plugins/{name*}", name="forge_plugin")
def plugin_manifest(name: str, forge: "ForgeService" = Depends(mcp.service)) -> ResourceResult:
    """The manifest of an installed plugin"""
    return _text_resource(lambda: forge.plugin_manifest_text(name))


# What the `name` of each can be.
mcp.completes("forge://agents/{name*}", "name")(lambda forge, _: forge.names("agent"))
mcp.completes("forge://tools/{name*}", "name")(lambda forge, _: forge.names("tool"))
mcp.completes("forge://plugins/{name*}", "name")(lambda forge, _: forge.names("plugin"))
mcp.completes("forge_resolve_fork", "name")(lambda forge, _: forge.names("fork"))


@mcp.prompt
@needs("fractary_forge_plugin_search", "fractary_forge_plugin_info")
def forge_search_plugins(
    task: Annotated[str, Field(description="What it should help with")],
) -> str:
    """Find a plugin for a task, compare the candidates, say how to install one"""
    return (
        f"Find a plugin for this task: {task}\n\n"
        f"1. Call {called('fractary_forge_plugin_search')} with the task in a few words, then in"
        " others.\n"
        f"2. Call {called('fractary_forge_plugin_info')} with remote: true for the best three"
        " results.\n"
        "3. Compare what their agents, tools and commands do for the task; name the licence and "
        "what each depends on.\n"
        "4. Recommend one, or none, and say why. The user installs it with: "
        "fleet-agentpack forge install NAME\n"
    )


@mcp.prompt
@needs("fractary_forge_config_show")
def forge_setup_configuration(forge: "ForgeService" = Depends(mcp.service)) -> str:
    """Set up the forge configuration of this project step by step"""
    return _asked(PromptError, lambda: _set_up(forge))


@mcp.prompt
@needs("fractary_forge_agent_validate", "fractary_forge_tool_validate")
def forge_resolve_fork(
    name: Annotated[str, Field(description="The forked agent or tool")],
    forge: "ForgeService" = Depends(mcp.service),
) -> str:
    """Bring a fork up to date with its upstream and settle each conflict"""
    return _asked(PromptError, lambda: _resolve_fork(forge, name))


def _set_up(forge: "ForgeService") -> str:
    state = forge.config_show()
    return (
        "Help me set up the forge configuration of this project. This is the current state:\n\n"
        f"```json\n{json.dumps(jsonable(state), indent=2)}\n```\n\n"
        "Ask one question at a time, and explain each choice in a sentence:\n"
        "1. Which registries should be searched, and in what order? "
        "(fleet-agentpack forge registry add OWNER/REPO --priority N)\n"
        "2. Does one of them need a token? (fleet-agentpack forge login NAME)\n"
        "3. Should definitions come from this project, from ~/.fractary, from a stockyard? "
        "(`resolution` in .fractary/config.json)\n"
        "At the end show me the commands to run; without a configuration file the first is: "
        f"fleet-agentpack forge init. Then check with {called('fractary_forge_config_show')}.\n"
    )


def _resolve_fork(forge: "ForgeService", name: str) -> str:
    plan = forge.merge_plan(name)
    return (
        f"Help me bring the fork {name} up to date with its upstream. This is the three-way "
        "comparison: base is what was forked, local the fork, upstream its newest version.\n\n"
        f"```json\n{json.dumps(jsonable(plan), indent=2)}\n```\n\n"
        "1. Say in a few words what upstream changed and what the fork changed.\n"
        "2. For every entry of `conflicts` propose the value that keeps the intent of both sides, "
        "and ask me before you go on.\n"
        "3. Then tell me the command: fleet-agentpack forge merge "
        f"{name} (with --theirs or --ours where all conflicts go one way). Else it leaves"
        " a copy with both sides between markers: settle those there, then use --resolved.\n"
        f"4. Afterwards check with {called('fractary_forge_agent_validate')} or"
        f" {called('fractary_forge_tool_validate')}.\n"
    )


def _text_resource(look_up: Callable[[], tuple[str, str]]) -> ResourceResult:
    text, ending = _asked(ResourceError, look_up)
    return ResourceResult([ResourceContent(text, mime_type=MIME_TYPES.get(ending))])


def _asked(otherwise: type[FastMCPError], answer: Callable[[], Answer]) -> Answer:
    """An answer; an error tells what to do next, and a wrong or unknown name is the caller's."""
    try:
        return answer()
    except ForgeError as error:
        is_callers = error.code == "VALIDATION_ERROR" or error.code.endswith("_NOT_FOUND")
        message = ". ".join([str(error), *error.suggestions])
        kind = ValidationError if is_callers else otherwise
        raise kind(message, log_level=logging.DEBUG) from error
