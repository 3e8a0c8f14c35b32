"""The options of `execute`: an object, or the original's list of command line arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet_agentpack.climpt.errors import ClimptError
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
        values: dict[str, str] = {}
        for pair in pairs:
            if isinstance(pair, Problem):
                continue
            if pair[0] in values:
                problems.append(_wrong(pair[0], "given twice"))
            values[pair[0]] = pair[1]
        if problems:
            raise ClimptError.invalid_arguments("execute", problems)
        variables = {k.removeprefix("uv-"): v for k, v in values.items() if k.startswith("uv-")}
        return cls(**{k: v for k, v in values.items() if k in _NAMES}, variables=variables)

    def arguments(self) -> list[str]:
        """The options as arguments of the original's command line; `stdin` is piped instead."""
        named = {
            "edition": self.edition,
            "adaptation": self.adaptation,
            "from": self.file,
            "destination": self.destination,
            **{f"uv-{name}": value for name, value in self.variables.items()},
        }
        return [f"--{name}={value}" for name, value in named.items() if value is not None]


Pair = tuple[str, str]


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
