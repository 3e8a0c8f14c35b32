"""The shape of agent and tool definitions: small checks that report every fault with its path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fleet_agentpack.forge.parsing import KeyPath, type_name


@dataclass(frozen=True)
class Fault:
    """One thing wrong at one place of a definition."""

    path: KeyPath
    message: str


Rule = Callable[[Any, KeyPath], Iterator[Fault]]


@dataclass(frozen=True)
class Field:
    """What a field must be, and whether it must be there."""

    check: Rule
    required: bool = True


def optional(check: Rule) -> Field:
    """A field that may be missing."""
    return Field(check, required=False)


def typed(kind: type, name: str) -> Rule:
    """A value of one JSON type."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            yield Fault(path, f"expected {name}, received {type_name(value)}")

    return check


text = typed(str, "string")
boolean = typed(bool, "boolean")
mapping = typed(dict, "object")
array = typed(list, "array")


def anything(_: Any, __: KeyPath) -> Iterator[Fault]:
    """A value of any kind."""
    yield from ()


def matching(pattern: str, hint: str) -> Rule:
    """Text of a certain form."""
    compiled = re.compile(pattern, re.ASCII)

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        if not isinstance(value, str):
            yield from text(value, path)
        elif not compiled.fullmatch(value):
            yield Fault(path, hint)

    return check


def one_of(*values: str) -> Rule:
    """One of some texts."""
    listed = " | ".join(values)

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        if value not in values or not isinstance(value, str):
            received = repr(value)[:40] if isinstance(value, str) else type_name(value)
            yield Fault(path, f"expected {listed}, received {received}")

    return check


def number(low: float | None = None, high: float | None = None) -> Rule:
    """A number within bounds, both included."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield Fault(path, f"expected number, received {type_name(value)}")
        elif low is not None and not value >= low:
            yield Fault(path, f"must be at least {low:g}")
        elif high is not None and not value <= high:
            yield Fault(path, f"must be at most {high:g}")

    return check


def list_of(item: Rule) -> Rule:
    """A list whose items all pass a check."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        if not isinstance(value, list):
            yield from array(value, path)
            return
        for index, each in enumerate(value):
            yield from item(each, (*path, index))

    return check


def map_of(item: Rule) -> Rule:
    """An object whose values all pass a check."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        if not isinstance(value, dict):
            yield from mapping(value, path)
            return
        for key, each in value.items():
            yield from item(each, (*path, str(key)))

    return check


def record(fields: Mapping[str, Field]) -> Rule:
    """An object with these fields; others are not looked at."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        if not isinstance(value, dict):
            yield from mapping(value, path)
            return
        for name, field in fields.items():
            if value.get(name) is not None or (name in value and field.required):
                yield from field.check(value[name], (*path, name))
            elif field.required:
                yield Fault((*path, name), "required")

    return check


def variant(tag: str, kinds: Mapping[str, Rule]) -> Rule:
    """An object whose `tag` decides how the rest looks."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        if not isinstance(value, dict):
            yield from mapping(value, path)
        elif value.get(tag) is None:
            yield Fault((*path, tag), "required")
        elif not isinstance(value[tag], str) or value[tag] not in kinds:
            yield from one_of(*kinds)(value[tag], (*path, tag))
        else:
            yield from kinds[value[tag]](value, path)

    return check


def _url(value: Any, path: KeyPath) -> Iterator[Fault]:
    if not isinstance(value, str):
        yield from text(value, path)
        return
    try:
        valid = bool(urlsplit(value).scheme) and " " not in value
    except ValueError:
        valid = False
    if not valid:
        yield Fault(path, "not a URL")


def _parameter(value: Any, path: KeyPath) -> Iterator[Fault]:
    yield from _PARAMETER(value, path)


def _custom_tool(value: Any, path: KeyPath) -> Iterator[Fault]:
    yield from TOOL(value, path)


_VERSION = Field(matching(r"\d+\.\d+\.\d+", "must be three numbers such as 1.0.0"))
_STRINGS = list_of(text)
_JSON_TYPES = ("string", "integer", "number", "boolean", "object", "array")
_PARAMETER = record(
    {
        "type": Field(one_of(*_JSON_TYPES)),
        "required": Field(boolean),
        "description": optional(text),
        "default": optional(anything),
        "enum": optional(array),
        "properties": optional(map_of(_parameter)),
    }
)
_SANDBOX = record(
    {
        "enabled": Field(boolean),
        "allowlisted_commands": optional(_STRINGS),
        "network_access": optional(boolean),
        "max_execution_time": optional(number()),
        "env_vars": optional(_STRINGS),
    }
)
_IMPLEMENTATION = variant(
    "type",
    {
        "bash": record(
            {"bash": Field(record({"command": Field(text), "sandbox": optional(_SANDBOX)}))}
        ),
        "python": record(
            {"python": Field(record({"module": Field(text), "function": Field(text)}))}
        ),
        "http": record(
            {
                "http": Field(
                    record(
                        {
                            "method": Field(one_of("GET", "POST", "PUT", "DELETE")),
                            "url": Field(_url),
                            "headers": optional(map_of(text)),
                            "body_template": optional(text),
                        }
                    )
                )
            }
        ),
    },
)
_CACHE_SOURCE = record(
    {
        "type": Field(one_of("file", "glob", "inline", "codex")),
        "label": Field(text),
        "path": optional(text),
        "pattern": optional(text),
        "content": optional(text),
        "uri": optional(text),
        "ttl": optional(number()),
    }
)

TOOL_FIELDS = {
    "name": Field(matching(r"[a-zA-Z0-9\-_]+", "only letters, digits, `-` and `_` are allowed")),
    "type": Field(one_of("tool")),
    "description": optional(text),  # missing is a warning: the contract's own example is valid
    "version": _VERSION,
    "tags": Field(_STRINGS),
    "parameters": Field(map_of(_parameter)),
    "implementation": Field(_IMPLEMENTATION),
    "extends": optional(text),
    "extended_description": optional(text),
    "depends_on": optional(_STRINGS),
    "output": optional(mapping),
    "author": optional(text),
}
TOOL = record(TOOL_FIELDS)

AGENT_FIELDS = {
    "name": Field(
        matching(r"[a-zA-Z0-9\-_:]+", "only letters, digits, `-`, `_` and `:` are allowed")
    ),
    "type": Field(one_of("agent")),
    "description": optional(text),
    "version": _VERSION,
    "tags": Field(_STRINGS),
    "llm": Field(
        record(
            {
                "provider": Field(one_of("anthropic", "openai", "google")),
                "model": Field(text),
                "temperature": optional(number(0, 1)),
                "max_tokens": optional(number(1, 200_000)),
            }
        )
    ),
    "tools": Field(_STRINGS),
    "extends": optional(text),
    "system_prompt": optional(text),
    "custom_tools": optional(list_of(_custom_tool)),
    "caching": optional(
        record({"enabled": Field(boolean), "cache_sources": Field(list_of(_CACHE_SOURCE))})
    ),
    "config": optional(mapping),
    "author": optional(text),
}
AGENT = record(AGENT_FIELDS)

# Fields that other parts of forge read, though the schema itself does not know them.
ALSO_KNOWN = ("license", "fork_of", "fork", "homepage", "repository")
