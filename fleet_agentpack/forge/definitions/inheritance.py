"""A definition whole: what it extends and needs, followed to the end, and what info says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NotRequired, TypedDict

from fleet_agentpack.forge.definitions.definition import (
    Definition,
    described,
    tags_of,
    text_of,
)
from fleet_agentpack.forge.definitions.dialects import is_host_tool, listed_in
from fleet_agentpack.forge.definitions.resolver import Resolver, Search
from fleet_agentpack.forge.definitions.schema import is_json_schema
from fleet_agentpack.forge.errors import ForgeError, Loaded, noted
from fleet_agentpack.forge.names import Kind, parse_reference
from fleet_agentpack.forge.results import AgentInfo, Dependency, ToolInfo
from fleet_agentpack.kit.results import UNKNOWN, Maybe

MAX_DEPTH = 50
MOST_LOOKED_UP = 200  # references of one definition; far more than anybody writes by hand


@dataclass(frozen=True)
class Inherited:
    """A definition's fields over those of its bases, `extends` removed."""

    fields: Mapping[str, Any]
    searches: tuple[Search, ...] = ()  # for each base
    problem: ForgeError | None = None  # a base is missing or circular; the fields are its own alone

    @property
    def warnings(self) -> tuple[str, ...]:
        """What came up while the bases were looked for."""
        return tuple(warning for search in self.searches for warning in search.warnings)

    def warnings_if(self, done: str) -> tuple[str, ...]:
        """The warnings, and that a definition was `shown` or `compared` without its base."""
        problem = [f"{self.problem}; {done} without its base"] if self.problem else []
        return (*self.warnings, *problem)


def inherit(definition: Definition, resolver: Resolver) -> Inherited:
    """A definition with everything that it inherits."""
    chain: list[Definition] = [definition]
    searches: list[Search] = []
    while isinstance(text := chain[-1].data.get("extends"), str) and text:
        searches.append(resolver.find(definition.kind, parse_reference(text), chain[-1]))
        base = searches[-1].definition
        problem = _problem(chain, text, base)
        if problem or base is None:
            return Inherited(definition.data, tuple(searches), problem)
        chain.append(base)
    fields: Mapping[str, Any] = {}
    for each in reversed(chain):
        fields = _merged(fields, each.data, each.kind).fields if fields else each.data
    own = {key: value for key, value in fields.items() if key != "extends"}
    return Inherited(own, tuple(searches))


def dependency_cycle(definition: Definition, resolver: Resolver) -> list[str] | None:
    """The names along the first circle among a definition's dependencies, None without one.

    The number of definitions is bounded: files from outside must not cost minutes.
    """
    finished: set[tuple[Kind, str, str]] = set()

    def visit(current: Definition, trail: list[Definition]) -> list[str] | None:
        if _key(current) in finished:
            return None
        for at, before in enumerate(trail):
            if _key(before) == _key(current):
                return [each.name for each in (*trail[at:], current)]
        if len(trail) < MAX_DEPTH:
            for text in requirements(current)[:MOST_LOOKED_UP]:
                if len(finished) + len(trail) > MOST_LOOKED_UP:
                    break
                found = resolver.find("tool", parse_reference(text), current).definition
                cycle = visit(found, [*trail, current]) if found else None
                if cycle:
                    return cycle
        finished.add(_key(current))
        return None

    return visit(definition, [])


def requirements(definition: Definition) -> list[str]:
    """The references to tools that a definition needs and does not bring with it, each once.

    Tools that a program brings are not among them.
    """
    references = listed_in(definition.data.get(requirement_field(definition)))
    custom = definition.data.get("custom_tools")
    own = {
        each["name"]
        for each in (custom if isinstance(custom, list) else [])
        if isinstance(each, Mapping) and isinstance(each.get("name"), str)
    }
    return [
        text
        for text in dict.fromkeys(references)
        if parse_reference(text).name not in own and not is_host_tool(text)
    ]


def requirement_field(definition: Definition) -> str:
    """The field that names what a definition needs; the programs' own agents name skills."""
    if definition.kind == "tool":
        return "depends_on"
    return "tools" if definition.format == "fractary" else "skills"


def _problem(chain: list[Definition], text: str, base: Definition | None) -> ForgeError | None:
    """Why a base cannot be the next of a chain."""
    names = [each.name for each in chain]
    if base is None:
        return ForgeError.dependency(
            f"{names[-1]} extends {text}, which is not found", child=names[-1], base=text
        )
    if any(_key(each) == _key(base) for each in chain):
        cycle = [*names, base.name]
        return ForgeError.dependency(f"circular extends: {' -> '.join(cycle)}", cycle=cycle)
    if len(chain) >= MAX_DEPTH:
        return ForgeError.dependency(f"{names[0]} extends more than {MAX_DEPTH} bases")
    return None


def _key(definition: Definition) -> tuple[Kind, str, str]:
    return definition.kind, definition.identity.qualified, definition.version


def _merged(base: Mapping[str, Any], child: Mapping[str, Any], kind: Kind) -> Inherited:
    fields = {**base, **child}
    unions = ("tools", "tags") if kind == "agent" else ("depends_on", "tags")
    for name in unions:
        if name in base or name in child:
            both = [*listed_in(base.get(name)), *listed_in(child.get(name))]
            fields[name] = list(dict.fromkeys(both))
    shallow = "config" if kind == "agent" else "parameters"
    if isinstance(base.get(shallow), Mapping) and isinstance(child.get(shallow), Mapping):
        fields[shallow] = {**base[shallow], **child[shallow]}
    if isinstance(base.get("custom_tools"), list) and isinstance(child.get("custom_tools"), list):
        # The child's tools win by name and keep the base's position.
        tools = [*base["custom_tools"], *child["custom_tools"]]
        names = [each.get("name") if isinstance(each, Mapping) else None for each in tools]
        keys = [name if isinstance(name, str) else at for at, name in enumerate(names)]
        fields["custom_tools"] = list(dict(zip(keys, tools, strict=True)).values())
    return Inherited(fields)


_PARAMETER_KEYS = ("type", "description", "enum", "default")


def agent_info(definition: Definition, resolver: Resolver, noticed: Iterable[str]) -> AgentInfo:
    """An agent with what it inherits; a base or tool that is missing is a warning."""
    inherited = inherit(definition, resolver)
    fields, shown = inherited.fields, inherited.warnings_if("shown")
    whole = replace(definition, data=fields)
    needed = _dependencies(definition, whole, resolver)
    tools = fields.get("tools")
    has_tools = isinstance(tools, list | str)
    return AgentInfo(
        **vars(described(definition.name, definition.version, fields)),
        tags=tags_of(fields),
        tools=tuple(listed_in(tools)) if has_tools else UNKNOWN,
        extends=text_of(definition.data, "extends"),
        prompt=text_of(fields, "system_prompt", "prompt"),
        source=definition.source,
        path=definition.path,
        format=UNKNOWN if definition.format == "fractary" else definition.format,
        dependencies=needed.value or UNKNOWN,
        warnings=noted(noticed, shown, needed.warnings, _cycle(whole, resolver)),
    )


def tool_info(definition: Definition, resolver: Resolver, noticed: Iterable[str]) -> ToolInfo:
    """A tool with what it inherits, its parameters as a JSON Schema."""
    inherited = inherit(definition, resolver)
    fields, shown = inherited.fields, inherited.warnings_if("shown")
    outputs = [fields.get("output"), fields.get("output_schema")]
    return ToolInfo(
        **vars(described(definition.name, definition.version, fields)),
        tags=tags_of(fields),
        inputSchema=input_schema(fields),
        outputSchema=next((each for each in outputs if isinstance(each, dict)), UNKNOWN),
        source=definition.source,
        path=definition.path,
        format=UNKNOWN if definition.format == "fractary" else definition.format,
        warnings=noted(noticed, shown, _cycle(definition, resolver)),
    )


def input_schema(fields: Mapping[str, Any]) -> Maybe[Mapping[str, object]]:
    """A JSON Schema of a tool's inputs, from any of the ways in which tools describe them."""
    parameters = fields.get("parameters")
    if isinstance(parameters, dict):
        return parameters if is_json_schema(parameters) else object_schema(parameters)
    given = fields.get("input_schema", fields.get("inputSchema"))
    if isinstance(given, dict):
        return given
    hint = fields.get("argument-hint")
    return UNKNOWN if hint is None else _arguments(hint)


class ObjectSchema(TypedDict):
    """A JSON Schema of an object."""

    type: Literal["object"]
    properties: dict[str, dict[str, object]]
    required: NotRequired[list[str]]


def _arguments(hint: object) -> ObjectSchema:
    """The one text that a command takes."""
    shown = hint if isinstance(hint, str) else f"[{', '.join(map(str, listed_in(hint)))}]"
    return {
        "type": "object",
        "properties": {"arguments": {"type": "string", "description": shown}},
    }


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


def _dependencies(
    definition: Definition, whole: Definition, resolver: Resolver
) -> Loaded[tuple[Dependency, ...]]:
    """The base and the tools of an agent, each with the version that was found or asked for."""
    needed = requirements(whole)
    left = max(0, len(needed) - MOST_LOOKED_UP)
    warnings = [f"Too many tools: the last {left} were not looked up"] if left else []
    base = definition.data.get("extends")
    wanted: list[tuple[Kind, str]] = [("agent", base)] if isinstance(base, str) and base else []
    wanted += [("tool", text) for text in needed]
    rows: list[Dependency] = []
    for at, (kind, text) in enumerate(wanted):
        reference, looked_up = parse_reference(text), at < len(wanted) - left
        found = resolver.find(kind, reference, definition).definition if looked_up else None
        if looked_up and found is None and kind == "tool":
            warnings.append(f"Tool {text} is not found in any source")
        version = found.version if found else reference.wanted
        rows.append(Dependency(reference.name, version, kind))
    return Loaded(tuple(rows), tuple(warnings))


def _cycle(definition: Definition, resolver: Resolver) -> list[str]:
    cycle = dependency_cycle(definition, resolver)
    return [f"Circular dependency: {' -> '.join(cycle)}"] if cycle else []
