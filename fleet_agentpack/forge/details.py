"""What `agent_info` and `tool_info` say of one definition, in the seed's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet_agentpack.forge.definitions import Definition, person_of, strings_of, tags_of, text_of
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.inheritance import (
    MOST_LOOKED_UP,
    dependency_cycle,
    flattened,
    requirements,
)
from fleet_agentpack.forge.names import Reference, parse_reference
from fleet_agentpack.forge.resolver import Resolver
from fleet_agentpack.kit.results import UNKNOWN, Maybe

_PARAMETER_KEYS = ("type", "description", "enum", "default")


def agent_details(
    definition: Definition, resolver: Resolver, warnings: list[str]
) -> dict[str, Any]:
    """An agent with what it inherits; a base or tool that is missing is a warning."""
    fields = _fields(definition, resolver, warnings)
    tools = strings_of(fields.get("tools"))
    whole = Definition(
        definition.kind,
        definition.name,
        definition.version,
        definition.source,
        definition.path,
        fields,
        definition.file,
    )
    return {
        **_common(definition, fields),
        "tools": tools if isinstance(fields.get("tools"), list) else UNKNOWN,
        "extends": text_of(definition.data, "extends"),
        "prompt": text_of(fields, "system_prompt", "prompt"),
        "source": definition.source,
        "path": definition.path,
        "dependencies": _dependencies(definition, whole, resolver, warnings),
    }


def tool_details(definition: Definition, resolver: Resolver, warnings: list[str]) -> dict[str, Any]:
    """A tool with what it inherits, its parameters as a JSON Schema."""
    fields = _fields(definition, resolver, warnings)
    _warn_of_cycle(definition, resolver, warnings)
    return {
        **_common(definition, fields),
        "inputSchema": input_schema(fields),
        "outputSchema": next(
            (
                fields[key]
                for key in ("output", "output_schema")
                if isinstance(fields.get(key), dict)
            ),
            UNKNOWN,
        ),
        "source": definition.source,
        "path": definition.path,
    }


def input_schema(fields: Mapping[str, Any]) -> Maybe[dict[str, Any]]:
    """A JSON Schema of a tool's inputs, from any of the ways in which tools describe them."""
    parameters = fields.get("parameters")
    if isinstance(parameters, dict):
        written = parameters.get("type") == "object" and not isinstance(
            parameters.get("properties", {}).get("type")
            if isinstance(parameters.get("properties"), dict)
            else None,
            str,
        )
        return parameters if written else _object_schema(parameters)
    given = fields.get("input_schema", fields.get("inputSchema"))
    return given if isinstance(given, dict) else UNKNOWN


def _object_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    known = {str(name): each for name, each in parameters.items() if isinstance(each, dict)}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _parameter_schema(each) for name, each in known.items()},
    }
    required = [name for name, each in known.items() if each.get("required") is True]
    return {**schema, "required": required} if required else schema


def _parameter_schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    schema = {key: parameter[key] for key in _PARAMETER_KEYS if parameter.get(key) is not None}
    if isinstance(parameter.get("properties"), dict):
        schema |= _object_schema(parameter["properties"])
    if isinstance(parameter.get("items"), dict):
        schema["items"] = parameter["items"]
    return schema


def _common(definition: Definition, fields: Mapping[str, Any]) -> dict[str, Any]:
    tags = tags_of(fields)
    return {
        "name": definition.name,
        "version": definition.version,
        "description": text_of(fields, "description"),
        "author": person_of(fields),
        "license": text_of(fields, "license"),
        "tags": UNKNOWN if tags is None else list(tags),
    }


def _fields(definition: Definition, resolver: Resolver, warnings: list[str]) -> dict[str, Any]:
    try:
        return flattened(definition, resolver, warnings)
    except ForgeError as error:
        warnings.append(f"{error}; shown without its base")
        return dict(definition.data)


def _dependencies(
    definition: Definition, whole: Definition, resolver: Resolver, warnings: list[str]
) -> Maybe[list[dict[str, str]]]:
    rows = []
    base = definition.data.get("extends")
    if isinstance(base, str) and base:
        reference = parse_reference(base)
        found = resolver.exists("agent", reference, [])
        rows.append(_dependency(reference, found, "agent"))
    needed = requirements(whole)
    rest = needed[MOST_LOOKED_UP:]
    if rest:
        warnings.append(f"The last {len(rest)} tools were not looked up: there are too many")
    for text in needed[:MOST_LOOKED_UP]:
        reference = parse_reference(text)
        found = resolver.exists("tool", reference, [])
        if found is None:
            warnings.append(f"Tool {text} is not found in any source")
        rows.append(_dependency(reference, found, "tool"))
    rows += [_dependency(parse_reference(text), None, "tool") for text in rest]
    _warn_of_cycle(whole, resolver, warnings)
    return rows or UNKNOWN


def _dependency(reference: Reference, found: Definition | None, kind: str) -> dict[str, str]:
    """The version that was found, or the one that is asked for."""
    version = found.version if found else reference.wanted
    return {"name": reference.name, "version": version, "type": kind}


def _warn_of_cycle(definition: Definition, resolver: Resolver, warnings: list[str]) -> None:
    cycle = dependency_cycle(definition, resolver)
    if cycle:
        warnings.append(f"Circular dependency: {' -> '.join(cycle)}")
