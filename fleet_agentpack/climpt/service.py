"""climpt's four use cases; knows nothing of MCP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.options import Options
from fleet_agentpack.climpt.places import DEFAULT_AGENT, NAME, Places
from fleet_agentpack.climpt.registry import Command, RegistryFormatError, parse
from fleet_agentpack.climpt.request import Request
from fleet_agentpack.climpt.search import CommandIndex, Found
from fleet_agentpack.kit.errors import Problem

Executor = Callable[[Request], Awaitable[str]]


class ClimptService:
    """Finds, describes and executes the commands of the agents' registries."""

    def __init__(self, places: Places, execute: Executor) -> None:
        self._places = places
        self._execute = execute
        self._indexes: dict[str, CommandIndex] = {}
        self._loading = threading.Lock()

    def search(self, query: str, agent: str = DEFAULT_AGENT) -> list[Found]:
        """The commands that fit a query best. Raises `ClimptError`."""
        _require("search", query=query)
        return self._index("search", agent).search(query)

    def describe(self, c1: str, c2: str, c3: str, agent: str = DEFAULT_AGENT) -> dict[str, Any]:
        """One command in the seed's shape. Raises `ClimptError`."""
        _require("describe", c1=c1, c2=c2, c3=c3)
        return _description(self._command("describe", agent, c1, c2, c3))

    async def execute(self, agent: str, c1: str, c2: str, c3: str, options: Any = ()) -> str:
        """The instruction prompt of a command. Raises `ClimptError`."""
        _require("execute", agent=agent, c1=c1, c2=c2, c3=c3)
        given = Options.of(options)
        await asyncio.to_thread(self._command, "execute", agent, c1, c2, c3)
        return await self._execute(Request(agent, c1, c2, c3, given))

    def reload(self, agent: str = DEFAULT_AGENT) -> dict[str, Any]:
        """Read an agent's registry again; a broken one leaves the last good one in use.

        Raises `ClimptError`.
        """
        agent = _agent("reload", agent)
        with self._loading:
            count = self._load(agent).size
        message = (
            f"Successfully reloaded {count} commands for agent '{agent}'"
            if count
            else f"No commands found for agent '{agent}' - please check its registry"
        )
        return {"success": True, "agent": agent, "commandCount": count, "message": message}

    def _command(self, tool: str, agent: str, c1: str, c2: str, c3: str) -> Command:
        index = self._index(tool, agent)
        command = index.get(c1, c2, c3)
        if command is None:
            near = "; ".join(index.similar(c1, c2, c3))
            hint = f"near: {near}" if near else "call search with a description of the task"
            raise ClimptError.command_not_found(c1, c2, c3, hint)
        return command

    def _index(self, tool: str, agent: str) -> CommandIndex:
        agent = _agent(tool, agent)
        loaded = self._indexes.get(agent)
        if loaded:
            return loaded
        with self._loading:
            return self._indexes.get(agent) or self._load(agent)

    def _load(self, agent: str) -> CommandIndex:
        file = self._places.registry(agent)
        try:
            index = CommandIndex(parse(file.text))
        except RegistryFormatError as error:
            hint = "correct the file, then call reload"
            raise ClimptError.registry_unreadable(file.shown, str(error), hint) from error
        self._indexes[agent] = index
        return index


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


def _description(command: Command) -> dict[str, Any]:
    options: dict[str, Any] = {**{k: list(v) for k, v in command.choices.items()}, **command.flags}
    usage = _usage(command)
    return {
        "c1": command.c1,
        "c2": command.c2,
        "c3": command.c3,
        "description": command.description,
        **({"usage": usage} if usage else {}),
        **({"options": options} if options else {}),
    }


def _usage(command: Command) -> str | None:
    """The usage line and the variables it does not mention, which have no field of their own."""
    usage = command.usage or ""
    missing = [
        f"--uv-{name}=<{purpose or name}>"
        for name, purpose in command.variables.items()
        if f"uv-{name}" not in usage
    ]
    if missing and not usage:
        usage = " ".join(command.key)
    return " ".join([usage, *missing]) or None
