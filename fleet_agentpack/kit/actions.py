"""What to do next: a tool call for an agent, a command line for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from fleet_agentpack.kit.program import NAME, located, program
from fleet_agentpack.kit.results import to_text

PROGRAM = NAME

# How a room's tools are called on the command line: `{"enact__install": "tool install {tool}"}`.
# An argument without a place in braces becomes a flag, a place without an argument is shown as
# `TOOL`.
Commands = Mapping[str, str]

# How the caller knows a tool; empty for one that it cannot call. A server may rename its tools or
# leave some out, which is nothing that a room should know.
_NAMED: ContextVar[Callable[[str], str]] = ContextVar("named", default=str)


@contextmanager
def names_of_tools(named: Callable[[str], str]) -> Iterator[None]:
    """While an answer is made, tools have the names that its reader knows."""
    token = _NAMED.set(named)
    try:
        yield
    finally:
        _NAMED.reset(token)


def named(tool: str) -> str:
    """A tool's name as the caller knows it; empty for one that it cannot call."""
    return _NAMED.get()(tool)


def called(tool: str) -> str:
    """A tool's name for a message about it, whether it can be called or not."""
    return named(tool) or tool


@dataclass(frozen=True)
class Action:
    """One step that a caller can take.

    `text` is the sentence for an agent and `person` the one for people, where it differs. In both,
    `{}` stands for the step itself: the call of the tool, or the command line.
    """

    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    text: str = "{}"
    person: str = ""
    words: tuple[str, ...] = ()  # the command line of a step for which there is no tool

    @classmethod
    def command(cls, *words: str, text: str = "{}", person: str = "") -> Action:
        """A step that exists only on the command line, such as `forge login NAME`."""
        return cls(text=text, person=person, words=words)

    @classmethod
    def instruction(cls, text: str, person: str = "") -> Action:
        """A step without a tool or a command, such as "wait a minute, then call again"."""
        return cls(text=text, person=person)

    @property
    def is_possible(self) -> bool:
        """Whether an agent can take this step: the server may have left the tool out."""
        return not self.tool or bool(named(self.tool))

    def for_agent(self) -> str:
        """The step as an agent takes it: by calling the tool."""
        return located(self.text).replace("{}", self._call() if self.tool else self._line({}))

    def for_person(self, commands: Commands) -> str:
        """The step as a person takes it: on the command line."""
        return located(self.person or self.text).replace("{}", self._line(commands))

    def _call(self) -> str:
        given = ", ".join(f"{name}: {to_text(value)}" for name, value in self.arguments.items())
        tool = called(self.tool)
        return f"{tool} with {given}" if given else tool

    def _line(self, commands: Commands) -> str:
        import shlex  # here, since every start of the server imports this module

        if not self.tool:
            return f"{program()} {shlex.join(self.words)}" if self.words else "{}"
        if self.tool not in commands:
            return self._call()
        return f"{program()} {shlex.join(_command_line(commands[self.tool], self.arguments))}"


def steps(actions: Iterable[Action]) -> list[str]:
    """The steps that an agent can take, as it takes them."""
    return [action.for_agent() for action in actions if action.is_possible]


def _command_line(pattern: str, arguments: Mapping[str, Any]) -> list[str]:
    flags = {
        name: value for name, value in arguments.items() if not (value is None or value is False)
    }
    words = []
    for word in pattern.split():
        name = word.strip("{}")
        words.append(word if name == word else str(flags.pop(name, name.upper())))
    for name, value in flags.items():
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else [str(value)]
    return words
