"""What `execute` is asked for; its options are an object, or the original's list of arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.project_files import DEFAULT_AGENT
from fleet_agentpack.kit.errors import Problem

_FLAGS = {
    "-e": "edition",
    "--edition": "edition",
    "-a": "adaptation",
    "--adaptation": "adaptation",
    "-f": "file",
    "--from": "file",
    "--file": "file",
    "-o": "destination",
    "--destination": "destination",
}
_NAMES = ("edition", "adaptation", "file", "destination", "stdin")
_VARIABLE = re.compile(r"[A-Za-z0-9_-]{1,100}")
_RESERVED = ("input_text", "input_text_file", "destination_path", "schema_file")

_KNOWN = "edition, adaptation, file, destination, stdin, uv-<name>"
_KNOWN_FLAGS = "--edition=, --adaptation=, --from=, --destination=, --uv-<name>="


@dataclass(frozen=True)
class Options:
    """The options that a caller gave; None where one was left out."""

    edition: str | None = None
    adaptation: str | None = None
    file: str | None = None
    destination: str | None = None
    stdin: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)  # without the `uv-`

    @classmethod
    def of(cls, given: Any) -> Options:
        """Read either form. Raises `ClimptError` that names everything that does not fit."""
        if isinstance(given, Mapping):
            pairs = list(_from_object(given))
        elif isinstance(given, list | tuple):
            pairs = [_from_argument(item) for item in given]
        else:
            pairs = [_wrong("", f"must be an object with any of {_KNOWN}")]
        problems = [pair for pair in pairs if isinstance(pair, Problem)]
        fitting = [pair for pair in pairs if not isinstance(pair, Problem)]
        names = [name for name, _ in fitting]
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        problems += [_wrong(name, "given twice") for name in twice]
        if problems:
            raise ClimptError.invalid_arguments("execute", problems)
        values = dict(fitting)
        variables = {k.removeprefix("uv-"): v for k, v in values.items() if k.startswith("uv-")}
        return cls(**{k: v for k, v in values.items() if k in _NAMES}, variables=variables)

    def named(self) -> dict[str, str]:
        """What was given, by the names of the original's command line; `stdin` is piped instead."""
        named = {
            "edition": self.edition,
            "adaptation": self.adaptation,
            "from": self.file,
            "destination": self.destination,
            **{f"uv-{name}": value for name, value in self.variables.items()},
        }
        return {name: value for name, value in named.items() if value is not None}

    def arguments(self) -> list[str]:
        """The options as arguments of that command line."""
        return [f"--{name}={value}" for name, value in self.named().items()]


@dataclass(frozen=True)
class PromptRequest:
    """A command of an agent and the options for it."""

    agent: str
    c1: str
    c2: str
    c3: str
    options: Options

    @property
    def profile(self) -> str:
        """The name of the configuration that the command is rendered with."""
        return profile_name(self.agent, self.c1)

    @property
    def command(self) -> str:
        """The command as errors name it."""
        return f"{self.agent}-{self.c1} {self.c2} {self.c3}"


Pair = tuple[str, str]


def profile_name(agent: str, c1: str) -> str:
    """The name of the configuration of an agent's domain."""
    return c1 if agent == DEFAULT_AGENT else f"{agent}-{c1}"


def _from_object(given: Mapping[Any, Any]) -> Iterator[Pair | Problem]:
    """Pairs of an object; null, false and empty text count as left out."""
    for key, value in given.items():
        name = "file" if key == "from" else str(key)
        if value is None or value is False or value == "":
            continue
        if name == "uv":
            yield from _from_variables(value)
        elif name.startswith("uv-"):
            yield _variable(name, value)
        elif name not in _NAMES:
            yield _wrong(name, f"unknown option; use one of {_KNOWN}")
        elif not isinstance(value, str):
            yield _wrong(name, "must be text")
        else:
            yield name, value


def _from_variables(value: Any) -> Iterator[Pair | Problem]:
    if not isinstance(value, Mapping):
        yield _wrong("uv", "must be an object of names and values")
        return
    for name, text in value.items():
        if text is not None and text != "":
            yield _variable(f"uv-{str(name).removeprefix('uv-')}", text)


def _variable(name: str, value: Any) -> Pair | Problem:
    bare = name.removeprefix("uv-")
    if not _VARIABLE.fullmatch(bare):
        return _wrong(name, "a variable's name has letters, digits, '-' and '_' only")
    if bare in _RESERVED:
        return _wrong(name, "this name is reserved")
    if isinstance(value, bool):
        return name, str(value).lower()
    if not isinstance(value, str | int | float):
        return _wrong(name, "must be text or a number")
    return (name, str(value)) if value != "" else _wrong(name, "must not be empty")


def _from_argument(item: Any) -> Pair | Problem:
    if not isinstance(item, str):
        return _wrong("", f"the list form takes text such as {_KNOWN_FLAGS}")
    flag, equals, value = item.partition("=")
    if not equals:
        return _wrong(item[:80], f"write it as flag=value, with one of {_KNOWN_FLAGS}")
    if flag.startswith("--uv-"):
        return _variable(flag[2:], value)
    if flag not in _FLAGS:
        return _wrong(flag[:80], f"unknown option; use one of {_KNOWN_FLAGS}")
    return _FLAGS[flag], value


def _wrong(name: str, message: str) -> Problem:
    return Problem(f"options.{name}" if name else "options", "value_error", message)
