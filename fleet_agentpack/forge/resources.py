"""Definitions and plugin manifests as MCP resources, and three guided tasks as prompts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from fastmcp.exceptions import FastMCPError, PromptError, ResourceError, ValidationError
from fastmcp.prompts.base import Prompt, PromptArgument, PromptResult
from fastmcp.resources.base import ResourceContent, ResourceResult
from fastmcp.resources.template import ResourceTemplate
from pydantic import PrivateAttr

from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.results import jsonable

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from fleet_agentpack.forge.service import ForgeService

GetService = Callable[[], "ForgeService"]

MIME_TYPES = {
    "md": "text/markdown",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "json": "application/json",
}
NAME_PARAMETER = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}


def add(mcp: FastMCP[Any], service: GetService) -> None:
    """Register the resources and the prompts; the service is made on the first read."""
    for template in (
        TextTemplate.of(
            "forge_agent",
            "forge://agents/{name*}",
            "The definition of an agent",
            lambda name: service().definition_text("agent", name),
        ),
        TextTemplate.of(
            "forge_tool",
            "forge://tools/{name*}",
            "The definition of a tool",
            lambda name: service().definition_text("tool", name),
        ),
        TextTemplate.of(
            "forge_plugin",
            "forge://plugins/{name*}",
            "The manifest of an installed plugin",
            lambda name: service().plugin_manifest_text(name),
        ),
    ):
        mcp.add_template(template)
    for prompt in _prompts(service):
        mcp.add_prompt(prompt)


class TextTemplate(ResourceTemplate):
    """A resource whose text is looked up by name."""

    _look_up: Callable[[str], tuple[str, str]] = PrivateAttr()

    @classmethod
    def of(
        cls, name: str, uri: str, description: str, look_up: Callable[[str], tuple[str, str]]
    ) -> TextTemplate:
        """The template for one kind of thing."""
        template = cls(
            name=name, uri_template=uri, description=description, parameters=NAME_PARAMETER
        )
        template._look_up = look_up
        return template

    async def _read(self, uri: str, params: dict[str, Any]) -> ResourceResult:  # noqa: ARG002
        try:
            text, ending = await anyio.to_thread.run_sync(self._look_up, params["name"])
        except AppError as error:
            raise _refusal(error, ResourceError) from error
        return ResourceResult([ResourceContent(text, mime_type=MIME_TYPES.get(ending))])


class GuidedPrompt(Prompt):
    """A prompt written from the state of things when it is asked for."""

    _write: Callable[[dict[str, str]], str] = PrivateAttr()

    @classmethod
    def of(
        cls,
        name: str,
        description: str,
        write: Callable[[dict[str, str]], str],
        *arguments: PromptArgument,
    ) -> GuidedPrompt:
        """The prompt for one task."""
        prompt = cls(name=name, description=description, arguments=list(arguments))
        prompt._write = write
        return prompt

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """The prompt's text as one message of the user."""
        given = {key: str(value) for key, value in (arguments or {}).items()}
        missing = [a.name for a in self.arguments or [] if a.required and not given.get(a.name)]
        if missing:
            names = ", ".join(missing)
            message = f"{self.name} needs the argument {names}"
            raise ValidationError(message, log_level=logging.DEBUG)
        try:
            return PromptResult(await anyio.to_thread.run_sync(self._write, given))
        except AppError as error:
            raise _refusal(error, PromptError) from error


def _prompts(service: GetService) -> list[Prompt]:
    return [
        GuidedPrompt.of(
            "forge_search_plugins",
            "Find a plugin for a task, compare the candidates, say how to install one",
            _search,
            PromptArgument(name="task", description="What it should help with", required=True),
        ),
        GuidedPrompt.of(
            "forge_setup_configuration",
            "Set up the forge configuration of this project step by step",
            lambda _: _setup(service()),
        ),
        GuidedPrompt.of(
            "forge_resolve_fork",
            "Bring a fork up to date with its upstream and settle each conflict",
            lambda given: _resolve_fork(service(), given["name"]),
            PromptArgument(name="name", description="The forked agent or tool", required=True),
        ),
    ]


def _search(given: dict[str, str]) -> str:
    return (
        f"Find a plugin for this task: {given['task']}\n\n"
        "1. Call fractary_forge_plugin_search with two or three short queries, one word each.\n"
        "2. Call fractary_forge_plugin_info with remote: true for the best three results.\n"
        "3. Compare what their agents, tools and commands do for the task; name the licence and "
        "what each depends on.\n"
        "4. Recommend one, or none, and say why. The user installs it with: "
        "fleet-agentpack forge install NAME\n"
    )


def _setup(service: ForgeService) -> str:
    state = service.config_show()
    return (
        "Help me set up the forge configuration of this project. This is what counts now:\n\n"
        f"```json\n{json.dumps(jsonable(state), indent=2)}\n```\n\n"
        "Ask one question at a time, and explain each choice in a sentence:\n"
        "1. Which registries should be asked, in which order? "
        "(fleet-agentpack forge registry add NAME URL --priority N)\n"
        "2. Does one of them need a token? (fleet-agentpack forge login NAME)\n"
        "3. Should definitions come from this project, from ~/.fractary, from a stockyard? "
        "(`resolution` in .fractary/config.json)\n"
        "At the end show me the commands to run; without a configuration file the first is: "
        "fleet-agentpack forge init. Then check with fractary_forge_config_show.\n"
    )


def _resolve_fork(service: ForgeService, name: str) -> str:
    plan = service.merge_plan(name)
    return (
        f"Help me bring the fork {name} up to date with its upstream. This is the three-way "
        "comparison: base is what was forked, local the fork, upstream its newest version.\n\n"
        f"```json\n{json.dumps(jsonable(plan), indent=2)}\n```\n\n"
        "1. Say in a few words what upstream changed and what the fork changed.\n"
        "2. For every entry of `conflicts` propose the value that keeps the intent of both sides, "
        "and ask me before you go on.\n"
        "3. Then tell me the command: fleet-agentpack forge merge "
        f"{name} (with --theirs or --ours where all conflicts go one way), or the edit to make in "
        "the fork's file first.\n"
        "4. Afterwards check with fractary_forge_agent_validate or fractary_forge_tool_validate.\n"
    )


def _refusal(error: AppError, otherwise: type[FastMCPError]) -> FastMCPError:
    """An error with what to do next; a name that is wrong or unknown is the caller's."""
    payload = error.payload()
    is_callers = payload["code"] == "VALIDATION_ERROR" or payload["code"].endswith("_NOT_FOUND")
    kind = ValidationError if is_callers else otherwise
    message = ". ".join([str(error), *payload["suggestions"]])
    return kind(message, log_level=logging.DEBUG)
