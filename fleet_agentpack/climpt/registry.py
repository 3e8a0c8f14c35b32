"""The registry's content: commands, leniently read where the original writes several shapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

from fleet_agentpack.climpt.project_files import UnusableFileError
from fleet_agentpack.climpt.results import CommandOptions, NamedCommand
from fleet_agentpack.kit.results import UNKNOWN

T = TypeVar("T")
NO_OPTIONS = CommandOptions()


class RegistryFormatError(UnusableFileError):
    """Text that is not a registry; says what is wrong and where."""


@dataclass(frozen=True)
class Command(NamedCommand):
    """One record of the registry."""

    usage: str | None = None
    options: CommandOptions = NO_OPTIONS
    variables: Mapping[str, str] = field(default_factory=dict)  # uv name → what it is for
    title: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What search looks at."""
        return " ".join([self.name, self.description, self.title, *self.aliases])


@dataclass(frozen=True)
class Registry:
    """The commands of a registry file, in its order, and what is wrong with records left out."""

    commands: tuple[Command, ...]
    warnings: tuple[str, ...] = ()


def parse(text: str) -> Registry:
    """Read a registry; a bad record is left out and named. Raises `RegistryFormatError`."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise RegistryFormatError(
            f"not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RegistryFormatError(
            "not usable JSON: a number or the nesting is too large"
        ) from error
    records = _member(_member(data, "tools", dict, "tools"), "commands", list, "tools.commands")
    commands, warnings = [], []
    for i, record in enumerate(records):
        try:
            commands.append(command_of(record, f"tools.commands[{i}]"))
        except RegistryFormatError as error:
            if len(records) == 1:
                raise
            warnings.append(f"{error}; this record is left out")
    if warnings and not commands:
        raise RegistryFormatError(f"no record can be used: {warnings[0]}")
    return Registry(tuple(commands), tuple(warnings))


def merged(variants: Sequence[Command]) -> Command:
    """The first of several records for one command, with the options of all of them."""
    options = {}
    for name, (_, combine) in _OPTIONS.items():
        given = [getattr(variant.options, name) for variant in variants]
        if known := [value for value in given if value is not UNKNOWN]:
            options[name] = combine(known)
    return replace(
        variants[0],
        options=CommandOptions(**options),
        variables={name: text for v in reversed(variants) for name, text in v.variables.items()},
    )


def _member(data: object, key: str, kind: type[T], place: str) -> T:
    if not isinstance(data, dict) or key not in data:
        raise RegistryFormatError(f"{place} is missing")
    found = data[key]
    if not isinstance(found, kind):
        wanted = {"dict": "an object", "list": "a list", "str": "text"}[kind.__name__]
        raise RegistryFormatError(f"{place} must be {wanted}")
    return found


def _name(record: object, key: str, place: str) -> str:
    name = _member(record, key, str, f"{place}.{key}")
    if not name.strip():
        raise RegistryFormatError(f"{place}.{key} is empty")
    return name


def command_of(record: object, place: str) -> Command:
    """The command that a record or a header describes. Raises `RegistryFormatError`."""
    if not isinstance(record, dict):
        raise RegistryFormatError(f"{place} must be an object")
    description = record.get("description")
    if not isinstance(description, str | None):
        raise RegistryFormatError(f"{place}.description must be text")
    options = record.get("options")
    options = options if isinstance(options, dict) else {}
    usage = record.get("usage")
    return Command(
        c1=_name(record, "c1", place),
        c2=_name(record, "c2", place),
        c3=_name(record, "c3", place),
        description=description or "",
        usage=usage if isinstance(usage, str) and usage else None,
        title=_text(record.get("title")),
        aliases=_texts(record.get("aliases", ())),
        options=CommandOptions(
            **{name: read(options[name]) for name, (read, _) in _OPTIONS.items() if name in options}
        ),
        variables={**_variables(options.get("uv")), **_variables(record.get("uv"))},
    )


def _is_true(value: object) -> bool:
    return value is True


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list | tuple) else [value]
    return tuple(item for item in items if isinstance(item, str))


def _union(texts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(texts)))


# Option → how its value is read, and how the values of several records become one.
_OPTIONS: Mapping[str, tuple[Callable[[object], Any], Callable[[Iterable[Any]], Any]]] = {
    **dict.fromkeys(("edition", "adaptation"), (_texts, _union)),
    **dict.fromkeys(("file", "stdin", "destination"), (_is_true, any)),
}


def _variables(value: object) -> dict[str, str]:
    """User variables in any of the original's shapes: a map, one-key maps, or name with text."""
    if isinstance(value, dict):
        return dict(_pairs(value.items()))
    found: dict[str, str] = {}
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict):
            named = item.get("name")
            pairs = [(named, item.get("description"))] if isinstance(named, str) else item.items()
            found.update(_pairs(pairs))
    return found


def _pairs(items: Iterable[tuple[object, object]]) -> Iterable[tuple[str, str]]:
    return (
        (name.removeprefix("uv-"), text if isinstance(text, str) else "")
        for name, text in items
        if isinstance(name, str) and name
    )
