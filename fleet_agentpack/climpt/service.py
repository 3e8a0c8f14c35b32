"""climpt's four use cases; knows nothing of MCP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fleet_agentpack.climpt.command_index import CommandIndex
from fleet_agentpack.climpt.command_prompts import CommandPrompt, agents_with_registry, named
from fleet_agentpack.climpt.deno_cli import run_deno
from fleet_agentpack.climpt.errors import ClimptError, RenderError
from fleet_agentpack.climpt.library import with_titles
from fleet_agentpack.climpt.options import Options, PromptRequest
from fleet_agentpack.climpt.project_files import (
    DEFAULT_AGENT,
    NAME,
    ProjectFiles,
    UnusableFileError,
    registry_errors,
)
from fleet_agentpack.climpt.registry import NO_OPTIONS, Command, parse
from fleet_agentpack.climpt.render import Rendered, render
from fleet_agentpack.climpt.results import Description, Found, Reloaded
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.errors import Problem
from fleet_agentpack.kit.results import UNKNOWN, Maybe
from fleet_agentpack.kit.stamps import Stamp, certain_stamp, stamp
from fleet_agentpack.settings import Settings

SEARCH = Action("search", text="call {} with a description of the task", person="try {}")

MOST_DOMAINS_NAMED = 20

Executor = Callable[[PromptRequest], Awaitable[Rendered]]


@dataclass(frozen=True)
class _Loaded:
    """An agent's registry as it was last read."""

    index: CommandIndex
    warnings: tuple[str, ...]


class ClimptService:
    """Finds, describes and executes the commands of the agents' registries."""

    def __init__(self, files: ProjectFiles, execute: Executor) -> None:
        self._files = files
        self._execute = execute
        self._loaded: dict[str, _Loaded] = {}
        self._loading = threading.Lock()

    def search(self, query: str, agent: str = DEFAULT_AGENT) -> Found:
        """The commands that fit a query best. Raises `ClimptError`."""
        _require("search", query=query)
        loaded = self._registry("search", agent)
        matches = loaded.index.search(query)
        nothing = () if matches else (_what_there_is(loaded.index),)
        return Found(tuple(matches), _told((*nothing, *loaded.warnings)))

    def describe(self, c1: str, c2: str, c3: str, agent: str = DEFAULT_AGENT) -> Description:
        """One command with its usage and options. Raises `ClimptError`."""
        _require("describe", c1=c1, c2=c2, c3=c3)
        return _description(self._command("describe", agent, c1, c2, c3))

    def commands(self, c1: str | None = None, c2: str | None = None) -> list[Command]:
        """Every command, or those of a domain and an action. Raises `ClimptError`."""
        return self._registry("search", DEFAULT_AGENT).index.named(c1, c2)

    async def execute(self, agent: str, c1: str, c2: str, c3: str, options: Any = ()) -> Rendered:
        """The instruction prompt of a command. Raises `ClimptError`."""
        _require("execute", agent=agent, c1=c1, c2=c2, c3=c3)
        request = PromptRequest(agent, c1, c2, c3, Options.of(options))
        await asyncio.to_thread(self._command, "execute", agent, c1, c2, c3)
        return await self._rendered(request)

    async def _rendered(self, request: PromptRequest) -> Rendered:
        try:
            return await self._execute(request)
        except RenderError as error:
            told = {"command": request.command, "stderr": str(error)}
            raise ClimptError("Execution failed", **told, hint=error.hint) from error

    def prompts(self) -> list[CommandPrompt]:
        """Every command of every agent as a prompt, from the files as they are now."""
        commands = [
            (agent, command)
            for agent in agents_with_registry(self._files)
            for command in self._commands_now(agent)
        ]
        return named(commands)

    def prompt_sources(self) -> dict[str, Stamp | None]:
        """The files that decide which prompts there are, as they are now."""
        return {str(p): certain_stamp(stamp(p)) for p in self._files.prompt_sources()}

    async def render(self, prompt: CommandPrompt, arguments: Mapping[str, str]) -> Rendered:
        """What `execute` gives for a prompt's command. Raises `ClimptError`."""
        options = Options.of(dict(arguments))
        return await self._rendered(PromptRequest(prompt.agent, *prompt.command.key, options))

    def _commands_now(self, agent: str) -> list[Command]:
        try:
            registry = parse(self._files.registry(agent).text)
        except (ClimptError, UnusableFileError):  # the tools report it
            return []
        return CommandIndex(registry.commands).all()

    def reload(self, agent: str = DEFAULT_AGENT) -> Reloaded:
        """Read an agent's registry again; a broken one leaves the last good one in use.

        Raises `ClimptError`.
        """
        agent = _agent("reload", agent)
        with self._loading:
            loaded = self._load(agent)
        count = loaded.index.size
        message = (
            f"Successfully reloaded {count} commands for agent '{agent}'"
            if count
            else f"No commands found for agent '{agent}' - please check its registry"
        )
        return Reloaded(
            success=True,
            agent=agent,
            commandCount=count,
            message=message,
            warnings=_told(loaded.warnings),
        )

    def _command(self, tool: str, agent: str, c1: str, c2: str, c3: str) -> Command:
        index = self._registry(tool, agent).index
        command = index.get(c1, c2, c3)
        if command is None:
            near = "; ".join(index.similar(c1, c2, c3))
            hint = f"near: {near}" if near else SEARCH
            raise ClimptError("Command not found", c1=c1, c2=c2, c3=c3, hint=hint)
        return command

    def _registry(self, tool: str, agent: str) -> _Loaded:
        agent = _agent(tool, agent)
        loaded = self._loaded.get(agent)
        if loaded:
            return loaded
        with self._loading:
            return self._loaded.get(agent) or self._load(agent)

    def _load(self, agent: str) -> _Loaded:
        file = self._files.registry(agent)
        with registry_errors(file.shown):
            registry = parse(file.text)
        commands = with_titles(self._files, agent, registry.commands)
        named = tuple(f"{file.shown}: {warning}" for warning in registry.warnings)
        loaded = self._loaded[agent] = _Loaded(CommandIndex(commands), named)
        return loaded


def _agent(tool: str, agent: str) -> str:
    """The agent's name, which becomes part of a path; empty means the default."""
    if agent and not NAME.fullmatch(agent):
        problem = Problem("agent", "value_error", "letters, digits, '-' and '_' only")
        raise ClimptError.invalid_arguments(tool, [problem])
    return agent or DEFAULT_AGENT


def _require(tool: str, **texts: str) -> None:
    empty = [name for name, text in texts.items() if not text.strip()]
    if empty:
        problems = [Problem(name, "value_error", "must not be empty") for name in empty]
        raise ClimptError.invalid_arguments(tool, problems)


def _description(command: Command) -> Description:
    return Description(
        *command.key,
        command.description,
        usage=_usage(command) or UNKNOWN,
        options=UNKNOWN if command.options == NO_OPTIONS else command.options,
    )


def _usage(command: Command) -> str:
    """The usage line, and what each variable is for, which has no field of its own."""
    variables = command.variables
    usage = command.usage or (command.name if variables else "")
    missing = [f"--uv-{name}=<{name}>" for name in variables if f"uv-{name}" not in usage]
    purposes = [f"uv-{name}: {purpose}" for name, purpose in variables.items() if purpose]
    return "\n".join(filter(None, [" ".join(filter(None, [usage, *missing])), *purposes]))


def _what_there_is(index: CommandIndex) -> str:
    """What an agent that found nothing can look for."""
    domains = index.domains()
    if not domains:
        return "The registry has no commands."
    named = [f"{name} ({count})" for name, count in list(domains.items())[:MOST_DOMAINS_NAMED]]
    more = ", …" if len(domains) > MOST_DOMAINS_NAMED else ""
    return f"No command matches. There are commands for {', '.join(named)}{more}; try other words."


def _told(warnings: tuple[str, ...]) -> Maybe[tuple[str, ...]]:
    return warnings or UNKNOWN


def files_of(settings: Settings) -> ProjectFiles:
    """Where the project that the settings name keeps its prompts."""
    return ProjectFiles(settings.project, settings.home, settings.place.advice)


def open_climpt(settings: Settings) -> ClimptService:
    """The service for the project that the settings name. Raises `ClimptError`."""
    files = files_of(settings)
    execute = settings.value("climpt", "execute")
    if execute in (None, "render"):
        return ClimptService(files, lambda request: asyncio.to_thread(render, files, request))
    if execute == "cli":
        return ClimptService(files, partial(run_deno, files, settings.environ))
    raise ClimptError("Invalid configuration", details='[climpt] execute must be "render" or "cli"')
