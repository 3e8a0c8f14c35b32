"""What to do next: a tool call for an agent, a command line for a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet_agentpack.kit.results import to_text

PROGRAM = "fleet-agentpack"

# How a room's tools are called on the command line: `{"enact__install": "tool install {tool}"}`.
# An argument without a place in braces becomes a flag, a place without an argument is shown as
# `TOOL`.
Commands = Mapping[str, str]


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

    def for_agent(self) -> str:
        """The step as an agent takes it: by calling the tool."""
        return self.text.replace("{}", self._call() if self.tool else self._line({}))

    def for_person(self, commands: Commands) -> str:
        """The step as a person takes it: on the command line."""
        return (self.person or self.text).replace("{}", self._line(commands))

    def _call(self) -> str:
        given = ", ".join(f"{name}: {to_text(value)}" for name, value in self.arguments.items())
        return f"{self.tool} with {given}" if given else self.tool

    def _line(self, commands: Commands) -> str:
        import shlex  # here, since every start of the server imports this module

        if not self.tool:
            return shlex.join([PROGRAM, *self.words]) if self.words else "{}"
        if self.tool not in commands:
            return self._call()
        return shlex.join([PROGRAM, *_words(commands[self.tool], self.arguments)])


def _words(pattern: str, arguments: Mapping[str, Any]) -> list[str]:
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
