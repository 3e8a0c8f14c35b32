"""`extends` and dependencies followed to their end, with every cycle named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fleet_agentpack.forge.definitions import Definition, Kind, strings_of
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.names import Reference, parse_reference

MAX_DEPTH = 50
MOST_LOOKED_UP = 200  # references of one definition; nobody writes that many by hand


class Lookup(Protocol):
    """Where bases and dependencies come from."""

    def exists(self, kind: Kind, reference: Reference, warnings: list[str]) -> Definition | None:
        """The definition that a reference allows, if there is one."""


def flattened(definition: Definition, lookup: Lookup, warnings: list[str]) -> dict[str, Any]:
    """A definition's fields with those of its bases below them, `extends` gone.

    Raises `ForgeError` when a base is missing or the chain is a circle.
    """
    chain = [definition]
    while (base := _base(chain, lookup, warnings)) is not None:
        chain.append(base)
    fields: dict[str, Any] = {}
    for each in reversed(chain):
        fields = _merged(fields, each.data, each.kind) if fields else dict(each.data)
    fields.pop("extends", None)
    return fields


def dependency_cycle(definition: Definition, lookup: Lookup) -> list[str] | None:
    """The names along the first circle among a definition's dependencies, None without one.

    So many definitions are followed and no more: files from outside must not cost minutes.
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
                found = lookup.exists("tool", parse_reference(text), [])
                cycle = visit(found, [*trail, current]) if found else None
                if cycle:
                    return cycle
        finished.add(_key(current))
        return None

    return visit(definition, [])


def requirements(definition: Definition) -> list[str]:
    """The references to tools that a definition needs and does not bring with it, each once."""
    references = strings_of(
        definition.data.get("tools" if definition.kind == "agent" else "depends_on")
    )
    custom = definition.data.get("custom_tools")
    own = {
        each["name"]
        for each in (custom if isinstance(custom, list) else [])
        if isinstance(each, Mapping) and isinstance(each.get("name"), str)
    }
    return [text for text in dict.fromkeys(references) if parse_reference(text).name not in own]


def _base(chain: list[Definition], lookup: Lookup, warnings: list[str]) -> Definition | None:
    child = chain[-1]
    text = child.data.get("extends")
    if not isinstance(text, str) or not text:
        return None
    base = lookup.exists(child.kind, parse_reference(text), warnings)
    if base is None:
        raise ForgeError.dependency(
            f"{child.name} extends {text}, which is not found", child=child.name, base=text
        )
    names = [each.name for each in chain]
    if any(_key(each) == _key(base) for each in chain):
        cycle = " -> ".join([*names, base.name])
        raise ForgeError.dependency(f"circular extends: {cycle}", cycle=[*names, base.name])
    if len(chain) >= MAX_DEPTH:
        raise ForgeError.dependency(f"{names[0]} extends more than {MAX_DEPTH} bases")
    return base


def _key(definition: Definition) -> tuple[Kind, str, str]:
    return definition.kind, definition.name, definition.version


def _merged(base: Mapping[str, Any], child: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    fields = {**base, **child}
    unions = ("tools", "tags") if kind == "agent" else ("depends_on", "tags")
    for name in unions:
        if name in base or name in child:
            both = [*strings_of(base.get(name)), *strings_of(child.get(name))]
            fields[name] = list(dict.fromkeys(both))
    shallow = "config" if kind == "agent" else "parameters"
    if isinstance(base.get(shallow), Mapping) and isinstance(child.get(shallow), Mapping):
        fields[shallow] = {**base[shallow], **child[shallow]}
    if isinstance(base.get("custom_tools"), list) and isinstance(child.get("custom_tools"), list):
        fields["custom_tools"] = _by_name(base["custom_tools"], child["custom_tools"])
    return fields


def _by_name(base: list[Any], child: list[Any]) -> list[Any]:
    """The child's tools win by name and keep the base's position."""
    merged: dict[Any, Any] = {}
    for index, tool in enumerate([*base, *child]):
        name = tool.get("name") if isinstance(tool, Mapping) else None
        merged[name if isinstance(name, str) else index] = tool
    return list(merged.values())
