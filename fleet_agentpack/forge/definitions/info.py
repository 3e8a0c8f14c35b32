"""What `agent_info` and `tool_info` say of one definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, NotRequired, TypedDict

from fleet_agentpack.forge.definitions import inheritance
from fleet_agentpack.forge.definitions.definition import (
    Definition,
    described,
    strings_of,
    tags_of,
    text_of,
)
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.loaded import Loaded, noted
from fleet_agentpack.forge.names import Kind, parse_reference
from fleet_agentpack.forge.results import AgentInfo, Dependency, ToolInfo
from fleet_agentpack.kit.results import UNKNOWN, Maybe

_PARAMETER_KEYS = ("type", "description", "enum", "default")


def agent_info(definition: Definition, resolver: Resolver, noticed: Iterable[str]) -> AgentInfo:
    """An agent with what it inherits; a base or tool that is missing is a warning."""
    inherited = inheritance.inherit(definition, resolver)
    fields, shown = inherited.fields, inherited.warnings_if("shown")
    whole = replace(definition, data=fields)
    needed = _dependencies(definition, whole, resolver)
    tools = fields.get("tools")
    return AgentInfo(
        **vars(described(definition.name, definition.version, fields)),
        tags=tags_of(fields),
        tools=tuple(strings_of(tools)) if isinstance(tools, list) else UNKNOWN,
        extends=text_of(definition.data, "extends"),
        prompt=text_of(fields, "system_prompt", "prompt"),
        source=definition.source,
        path=definition.path,
        dependencies=needed.value or UNKNOWN,
        warnings=noted(noticed, shown, needed.warnings, _cycle(whole, resolver)),
    )


def tool_info(definition: Definition, resolver: Resolver, noticed: Iterable[str]) -> ToolInfo:
    """A tool with what it inherits, its parameters as a JSON Schema."""
    inherited = inheritance.inherit(definition, resolver)
    fields, shown = inherited.fields, inherited.warnings_if("shown")
    outputs = [fields.get("output"), fields.get("output_schema")]
    return ToolInfo(
        **vars(described(definition.name, definition.version, fields)),
        tags=tags_of(fields),
        inputSchema=input_schema(fields),
        outputSchema=next((each for each in outputs if isinstance(each, dict)), UNKNOWN),
        source=definition.source,
        path=definition.path,
        warnings=noted(noticed, shown, _cycle(definition, resolver)),
    )


def input_schema(fields: Mapping[str, Any]) -> Maybe[Mapping[str, object]]:
    """A JSON Schema of a tool's inputs, from any of the ways in which tools describe them."""
    parameters = fields.get("parameters")
    if isinstance(parameters, dict):
        properties = parameters.get("properties")
        # An object with a parameter called `properties` is not yet a schema.
        inner = properties.get("type") if isinstance(properties, dict) else None
        is_schema = parameters.get("type") == "object" and not isinstance(inner, str)
        return parameters if is_schema else _object_schema(parameters)
    given = fields.get("input_schema", fields.get("inputSchema"))
    return given if isinstance(given, dict) else UNKNOWN


class ObjectSchema(TypedDict):
    """A JSON Schema of an object."""

    type: Literal["object"]
    properties: dict[str, dict[str, object]]
    required: NotRequired[list[str]]


def _object_schema(parameters: Mapping[str, Any]) -> ObjectSchema:
    known = {str(name): each for name, each in parameters.items() if isinstance(each, dict)}
    properties: dict[str, dict[str, object]] = {}
    for name, each in known.items():
        properties[name] = {key: each[key] for key in _PARAMETER_KEYS if each.get(key) is not None}
        if isinstance(each.get("properties"), dict):
            properties[name].update(_object_schema(each["properties"]))
        if isinstance(each.get("items"), dict):
            properties[name]["items"] = each["items"]
    schema: ObjectSchema = {"type": "object", "properties": properties}
    if required := [name for name, each in known.items() if each.get("required") is True]:
        schema["required"] = required
    return schema


def _dependencies(
    definition: Definition, whole: Definition, resolver: Resolver
) -> Loaded[tuple[Dependency, ...]]:
    """The base and the tools of an agent, each with the version that was found or asked for."""
    needed = inheritance.requirements(whole)
    left = max(0, len(needed) - inheritance.MOST_LOOKED_UP)
    warnings = [f"Too many tools: the last {left} were not looked up"] if left else []
    base = definition.data.get("extends")
    wanted: list[tuple[Kind, str]] = [("agent", base)] if isinstance(base, str) and base else []
    wanted += [("tool", text) for text in needed]
    rows: list[Dependency] = []
    for at, (kind, text) in enumerate(wanted):
        reference, looked_up = parse_reference(text), at < len(wanted) - left
        found = resolver.find(kind, reference).definition if looked_up else None
        if looked_up and found is None and kind == "tool":
            warnings.append(f"Tool {text} is not found in any source")
        version = found.version if found else reference.wanted
        rows.append(Dependency(reference.name, version, kind))
    return Loaded(tuple(rows), tuple(warnings))


def _cycle(definition: Definition, resolver: Resolver) -> list[str]:
    cycle = inheritance.dependency_cycle(definition, resolver)
    return [f"Circular dependency: {' -> '.join(cycle)}"] if cycle else []
