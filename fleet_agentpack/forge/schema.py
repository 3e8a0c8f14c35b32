"""The shape of agent and tool definitions: small checks that report every fault with its path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, NotRequired, TypedDict
from urllib.parse import urlsplit

from fleet_agentpack.forge.definition import KeyPath, version_of
from fleet_agentpack.forge.names import Kind, is_kebab
from fleet_agentpack.kit.mappings import type_name

Weight = Literal["error", "error if strict", "advice"]
STRICT: Final = "error if strict"


@dataclass(frozen=True)
class Fix:
    """A line that can be written without asking anybody what was meant."""

    line: int
    text: str
    is_new: bool = False  # comes before the line instead of replacing it


@dataclass(frozen=True)
class Fault:
    """One thing wrong, or to improve, at one place of a definition."""

    path: KeyPath
    message: str
    weight: Weight = "error"
    fix: Fix | None = None


Rule = Callable[[Any, KeyPath], Iterable[Fault]]


def anything(_: Any, __: KeyPath) -> Iterable[Fault]:
    """A value of any kind."""
    return ()


def typed(kind: type | UnionType, name: str, then: Rule = anything) -> Rule:
    """A value of one JSON type that passes a further check."""

    def check(value: Any, path: KeyPath) -> Iterable[Fault]:
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return then(value, path)
        return [Fault(path, f"expected {name}, received {type_name(value)}")]

    return check


text = typed(str, "string")
boolean = typed(bool, "boolean")
mapping = typed(dict, "object")
array = typed(list, "array")
number = typed(int | float, "number")


def valid(is_valid: Callable[[str], object], hint: str) -> Rule:
    """Text of a certain form."""
    return typed(str, "string", lambda value, at: () if is_valid(value) else [Fault(at, hint)])


def matching(pattern: str, hint: str) -> Rule:
    """Text that fits a pattern."""
    return valid(re.compile(pattern, re.ASCII).fullmatch, hint)


def one_of(*values: str) -> Rule:
    """One of some texts."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        if value not in values or not isinstance(value, str):
            received = repr(value)[:40] if isinstance(value, str) else type_name(value)
            yield Fault(path, f"expected {' | '.join(values)}, received {received}")

    return check


def within(low: float, high: float) -> Rule:
    """A number within bounds, both included."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        if not value >= low:
            yield Fault(path, f"must be at least {low:g}")
        elif not value <= high:
            yield Fault(path, f"must be at most {high:g}")

    return typed(int | float, "number", check)


def list_of(item: Rule) -> Rule:
    """A list whose items all pass a check."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        for index, each in enumerate(value):
            yield from item(each, (*path, index))

    return typed(list, "array", check)


def map_of(item: Rule) -> Rule:
    """An object whose values all pass a check."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        for key, each in value.items():
            yield from item(each, (*path, str(key)))

    return typed(dict, "object", check)


def record(fields: Mapping[str, Rule]) -> Rule:
    """An object with these fields, `name?` for one that may be missing; others are ignored."""

    def check(value: Any, path: KeyPath) -> Iterator[Fault]:
        for key, rule in fields.items():
            name, required = key.removesuffix("?"), not key.endswith("?")
            if value.get(name) is not None or (name in value and required):
                yield from rule(value[name], (*path, name))
            elif required:
                yield Fault((*path, name), "required")

    return typed(dict, "object", check)


def variant(tag: str, kinds: Mapping[str, Rule]) -> Rule:
    """An object whose `tag` decides how the rest looks."""

    def check(value: Any, path: KeyPath) -> Iterable[Fault]:
        kind = value.get(tag)
        if kind is None:
            return [Fault((*path, tag), "required")]
        known = isinstance(kind, str) and kind in kinds
        return kinds[kind](value, path) if known else one_of(*kinds)(kind, (*path, tag))

    return typed(dict, "object", check)


def _is_url(value: str) -> bool:
    try:
        return bool(urlsplit(value).scheme) and " " not in value
    except ValueError:
        return False


def _parameter(value: Any, path: KeyPath) -> Iterable[Fault]:
    return _PARAMETER(value, path)


def is_json_schema(parameters: Any) -> bool:
    """Whether parameters are written as one JSON Schema rather than a table of their own."""
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    # A table with a parameter called `properties` is not yet a schema.
    inner = properties.get("type") if isinstance(properties, dict) else None
    return (
        isinstance(parameters, dict)
        and parameters.get("type") == "object"
        and not isinstance(inner, str)
    )


def _parameters(value: Any, path: KeyPath) -> Iterable[Fault]:
    if is_json_schema(value):
        return record({"properties?": map_of(mapping), "required?": _STRINGS})(value, path)
    return map_of(_parameter)(value, path)


def _names(value: Any, path: KeyPath) -> Iterable[Fault]:
    """A list of names, or names joined by commas."""
    return () if isinstance(value, str) else _STRINGS(value, path)


def _scripts(value: Any, path: KeyPath) -> Iterable[Fault]:
    """A command, or a directory of scripts, as published tools have it."""
    if value.get("scripts_directory") is not None:
        return text(value["scripts_directory"], (*path, "scripts_directory"))
    return record({"bash": record({"command": text, "sandbox?": _SANDBOX})})(value, path)


_VERSION = matching(r"\d+\.\d+\.\d+", "must be three numbers such as 1.0.0")
_STRINGS = list_of(text)
_JSON_TYPES = ("string", "integer", "number", "boolean", "object", "array")
_PARAMETER = record(
    {
        "type": one_of(*_JSON_TYPES),
        "required": boolean,
        "description?": text,
        "default?": anything,
        "enum?": array,
        "properties?": map_of(_parameter),
    }
)
_SANDBOX = record(
    {
        "enabled": boolean,
        "allowlisted_commands?": _STRINGS,
        "network_access?": boolean,
        "max_execution_time?": number,
        "env_vars?": _STRINGS,
    }
)
_HTTP = record(
    {
        "method": one_of("GET", "POST", "PUT", "DELETE"),
        "url": valid(_is_url, "not a URL"),
        "headers?": map_of(text),
        "body_template?": text,
    }
)
_IMPLEMENTATION = variant(
    "type",
    {
        "bash": _scripts,
        "python": record({"python": record({"module": text, "function": text})}),
        "http": record({"http": _HTTP}),
        "skill-based": record({}),  # the body says how
    },
)
_CACHE_SOURCE = record(
    {
        "type": one_of("file", "glob", "inline", "codex"),
        "label": text,
        "path?": text,
        "pattern?": text,
        "content?": text,
        "uri?": text,
        "ttl?": number,
    }
)

TOOL_FIELDS = {
    "name": matching(r"[a-zA-Z0-9\-_]+", "only letters, digits, `-` and `_` are allowed"),
    "type": one_of("tool"),
    "description?": text,  # missing is a warning: the contract's own example is valid
    "version": _VERSION,
    "tags?": _STRINGS,
    "parameters?": _parameters,  # without any it takes none
    "implementation": _IMPLEMENTATION,
    "extends?": text,
    "extended_description?": text,
    "depends_on?": _STRINGS,
    "output?": mapping,
    "output_schema?": mapping,
    "author?": text,
    "llm?": mapping,
}
TOOL = record(TOOL_FIELDS)

AGENT_FIELDS = {
    "name": matching(r"[a-zA-Z0-9\-_:]+", "only letters, digits, `-`, `_` and `:` are allowed"),
    "type": one_of("agent"),
    "description?": text,
    "version": _VERSION,
    "tags": _STRINGS,
    "llm": record(
        {
            "provider": one_of("anthropic", "openai", "google"),
            "model": text,
            "temperature?": within(0, 1),
            "max_tokens?": within(1, 200_000),
        }
    ),
    "tools": _names,
    "extends?": text,
    "system_prompt?": text,
    "custom_tools?": list_of(TOOL),
    "caching?": record({"enabled": boolean, "cache_sources": list_of(_CACHE_SOURCE)}),
    "config?": mapping,
    "author?": text,
}
AGENT = record(AGENT_FIELDS)

# Fields that other parts of forge read, though the schema itself does not know them.
_ALSO_KNOWN = (
    *("license", "fork_of", "fork", "homepage", "repository"),
    *("input_schema", "inputSchema", "prompt"),
)

_CODEX_URI = re.compile(r"codex://[^/]+/[^/]+/.+", re.DOTALL)
_SOURCE_FIELD = {"file": "path", "glob": "pattern", "inline": "content", "codex": "uri"}


def fractary_advice(kind: Kind, path: Path, data: Mapping[str, Any]) -> Iterator[Fault]:
    """What is not wrong with a Fractary definition and could be better."""
    yield from _field_advice(kind, data)
    yield from _place_advice(path, data)
    if kind == "agent":
        yield from _cache_advice(data)


def _field_advice(kind: Kind, data: Mapping[str, Any]) -> Iterator[Fault]:
    description = data.get("description")
    if description is None or (isinstance(description, str) and not description.strip()):
        yield Fault(("description",), "Consider adding a description", "advice")
    if data.get("tags") == []:
        yield Fault(("tags",), "Consider adding tags, so that lists can be filtered", "advice")
    if data.get("author") is None:
        yield Fault(("author",), "Consider naming an author", "advice")
    if kind == "agent" and not data.get("system_prompt"):
        yield Fault(("system_prompt",), "The agent has no prompt", "advice")
    fields = AGENT_FIELDS if kind == "agent" else TOOL_FIELDS
    known = {*(each.removesuffix("?") for each in fields), *_ALSO_KNOWN}
    for key in data:
        if key not in known:
            yield Fault((key,), "Unknown field; nothing reads it", STRICT)
    if kind == "tool":
        yield from _parameter_advice(data.get("parameters"), ("parameters",))


def _parameter_advice(parameters: Any, path: KeyPath) -> Iterator[Fault]:
    for name, parameter in parameters.items() if isinstance(parameters, dict) else ():
        if not isinstance(parameter, dict):
            continue
        place = (*path, str(name))
        if not parameter.get("description"):
            yield Fault(place, "Consider describing the parameter", "advice")
        yield from _parameter_advice(parameter.get("properties"), (*place, "properties"))


def _place_advice(path: Path, data: Mapping[str, Any]) -> Iterator[Fault]:
    name = data.get("name")
    if not isinstance(name, str) or not name:
        return
    if not all(is_kebab(part) for part in name.split(":")):
        yield Fault(("name",), "Consider lower-case words joined by hyphens", "advice")
    in_directory = path.stem in ("agent", "tool")
    called, _, version = (path.parent.name if in_directory else path.stem).partition("@")
    if called != name:
        yield Fault(
            ("name",),
            f"The {'directory' if in_directory else 'file'} is called {called!r}",
            "advice",
        )
    if version and version != version_of(data):
        yield Fault(("version",), f"The path says version {version}", "advice")


def _cache_advice(data: Mapping[str, Any]) -> Iterator[Fault]:
    caching = data.get("caching")
    sources = caching.get("cache_sources") if isinstance(caching, dict) else None
    for index, source in enumerate(sources if isinstance(sources, list) else ()):
        kind = source.get("type") if isinstance(source, dict) else None
        needed = _SOURCE_FIELD.get(kind) if isinstance(kind, str) else None
        if needed is None:
            continue
        place: KeyPath = ("caching", "cache_sources", index, needed)
        value = source.get(needed)
        if not value:
            yield Fault(place, f"A {kind} source needs `{needed}`", STRICT)
        elif kind == "codex" and not (isinstance(value, str) and _CODEX_URI.fullmatch(value)):
            yield Fault(place, "Must look like codex://org/project/path", STRICT)


_PARAMETER_KEYS = ("type", "description", "enum", "default")


class ObjectSchema(TypedDict):
    """A JSON Schema of an object."""

    type: Literal["object"]
    properties: dict[str, dict[str, object]]
    required: NotRequired[list[str]]


def object_schema(parameters: Mapping[str, Any]) -> ObjectSchema:
    """A table of parameters as a JSON Schema."""
    known = {str(name): each for name, each in parameters.items() if isinstance(each, dict)}
    properties: dict[str, dict[str, object]] = {}
    for name, each in known.items():
        properties[name] = {key: each[key] for key in _PARAMETER_KEYS if each.get(key) is not None}
        if isinstance(each.get("properties"), dict):
            properties[name].update(object_schema(each["properties"]))
        if isinstance(each.get("items"), dict):
            properties[name]["items"] = each["items"]
    schema: ObjectSchema = {"type": "object", "properties": properties}
    if required := [name for name, each in known.items() if each.get("required") is True]:
        schema["required"] = required
    return schema
