"""`extends` and dependencies followed to their end, with every cycle named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet_agentpack.forge.definitions.definition import Definition, strings_of
from fleet_agentpack.forge.definitions.resolver import Resolver, Search
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.names import Kind, parse_reference

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

    def checked(self) -> Inherited:
        """The same, with the fields of every base. Raises `ForgeError` when a base is missing."""
        if self.problem:
            raise self.problem
        return self


def inherit(definition: Definition, resolver: Resolver) -> Inherited:
    """A definition with everything that it inherits."""
    chain: list[Definition] = [definition]
    searches: list[Search] = []
    while isinstance(text := chain[-1].data.get("extends"), str) and text:
        searches.append(resolver.find(definition.kind, parse_reference(text)))
        base = searches[-1].definition
        problem = _problem(chain, text, base)
        if problem or base is None:
            return Inherited(definition.data, tuple(searches), problem)
        chain.append(base)
    fields: Mapping[str, Any] = {}
    for each in reversed(chain):
        fields = _merged(fields, each.data, each.kind) if fields else each.data
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
                found = resolver.find("tool", parse_reference(text)).definition
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
    return definition.kind, definition.name, definition.version


def _merged(base: Mapping[str, Any], child: Mapping[str, Any], kind: Kind) -> dict[str, object]:
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
        # The child's tools win by name and keep the base's position.
        tools = [*base["custom_tools"], *child["custom_tools"]]
        names = [each.get("name") if isinstance(each, Mapping) else None for each in tools]
        keys = [name if isinstance(name, str) else at for at, name in enumerate(names)]
        fields["custom_tools"] = list(dict(zip(keys, tools, strict=True)).values())
    return fields
