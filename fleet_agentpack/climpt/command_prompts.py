"""Every command as an MCP prompt: its name, its arguments, and the files that decide which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.project_files import DEFAULT_AGENT, NAME, ProjectFiles
from fleet_agentpack.climpt.registry import Command
from fleet_agentpack.kit.results import UNKNOWN, Maybe

LONGEST_DESCRIPTION = 1_000  # a client shows a line of it


@dataclass(frozen=True)
class Argument:
    """An argument of a prompt; its name is that of the option of `execute`."""

    name: str
    description: str


@dataclass(frozen=True)
class CommandPrompt:
    """A command of an agent under the name that clients show."""

    name: str
    agent: str
    command: Command

    @property
    def description(self) -> str:
        """What a person reads before choosing it."""
        text = self.command.description or self.command.title or self.command.name
        return text if len(text) <= LONGEST_DESCRIPTION else f"{text[:LONGEST_DESCRIPTION]}…"

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its variables first: a client that takes arguments by position fills these."""
        return tuple(_arguments(self.command))


def named(commands: Iterable[tuple[str, Command]]) -> list[CommandPrompt]:
    """Prompts for the commands that can be rendered; of two equal names the later gets a number."""
    found: dict[str, CommandPrompt] = {}
    for agent, command in commands:
        if not all(NAME.fullmatch(part) for part in command.key):
            continue  # it cannot be rendered; `execute` says why
        own = () if agent == DEFAULT_AGENT else (agent,)
        base = name = "-".join([*own, *command.key])
        number = 1
        while name in found:
            number += 1
            name = f"{base}-{number}"
        found[name] = CommandPrompt(name, agent, command)
    return list(found.values())


def agents_with_registry(files: ProjectFiles) -> list[str]:
    """The agents whose registries make prompts, the default one first."""
    try:
        return files.agents()
    except ClimptError:  # a registry_config.json that cannot be read; every tool reports it
        return [DEFAULT_AGENT]


def _arguments(command: Command) -> Iterator[Argument]:
    for name, purpose in command.variables.items():
        yield Argument(f"uv-{name}", purpose or name)
    options = command.options
    if options.stdin is True:
        yield Argument("stdin", "The input text")
    if options.file is True:
        yield Argument("file", "The file it is about, relative to the project")
    if options.destination is True:
        yield Argument("destination", "Where its result should go")
    for name, values in (("edition", options.edition), ("adaptation", options.adaptation)):
        if choices := _choices(values):
            yield Argument(name, f"One of {', '.join(choices)}")


def _choices(values: Maybe[tuple[str, ...]]) -> tuple[str, ...]:
    return () if values is UNKNOWN or len(values) < 2 else values
