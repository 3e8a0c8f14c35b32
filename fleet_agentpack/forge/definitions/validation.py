"""Strict validation of one definition: schema faults, and advice that `strict` partly enforces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from fleet_agentpack.forge.definitions import inheritance, schema
from fleet_agentpack.forge.definitions.definition import (
    BODY_FIELD,
    Definition,
    read_document,
    version_of,
)
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.definitions.schema import Fault
from fleet_agentpack.forge.names import Kind, is_kebab, parse_reference
from fleet_agentpack.forge.parsing import KeyPath, UnparsableError
from fleet_agentpack.forge.results import Issue, Validation
from fleet_agentpack.kit.results import UNKNOWN, Maybe
from fleet_agentpack.kit.yaml12 import Document

SCHEMA_VERSION = "1.0"
STRICT: Final = "error if strict"
MOST_ISSUES = 100  # of either severity; enough to start correcting

_CODEX_URI = re.compile(r"codex://[^/]+/[^/]+/.+", re.DOTALL)
_SOURCE_FIELD = {"file": "path", "glob": "pattern", "inline": "content", "codex": "uri"}


def validate(
    path: Path, kind: Kind, shown: str, resolver: Resolver, *, strict: bool = False
) -> Validation:
    """What is wrong with a definition file and what to improve. Raises `FileNotFoundError`."""
    try:
        document = read_document(path, kind)
        found = list(_findings(path, kind, shown, document.data, resolver))
    except UnparsableError as error:
        document, found = Document(None), [Fault((), str(error))]
    enforced = ("error", STRICT) if strict else ("error",)
    faults = [each for weight in enforced for each in found if each.weight == weight]
    advice = [each for each in found if each.weight not in enforced]
    errors, warnings = _issues(faults, document, "error"), _issues(advice, document, UNKNOWN)
    return Validation(not errors, shown, errors, warnings, SCHEMA_VERSION)


def _findings(
    path: Path, kind: Kind, shown: str, data: dict[str, Any], resolver: Resolver
) -> Iterator[Fault]:
    yield from (schema.AGENT if kind == "agent" else schema.TOOL)(data, ())
    if kind == "agent" and path.suffix == ".md" and not data.get(BODY_FIELD[kind]):
        yield Fault((BODY_FIELD[kind],), "the Markdown body is the prompt, and it is empty")
    yield from _field_advice(kind, data)
    yield from _place_advice(path, data)
    if kind == "agent":
        yield from _cache_advice(data)
    yield from _references(path, kind, shown, data, resolver)


def _issues(
    found: Sequence[Fault], document: Document, severity: Maybe[Literal["error"]]
) -> tuple[Issue, ...]:
    issues = [
        Issue(
            ".".join(str(part) for part in each.path),
            f"{each.message}{_line(each.path, document)}",
            severity,
        )
        for each in found[:MOST_ISSUES]
    ]
    left = len(found) - len(issues)
    if left:
        plural = "warnings" if severity is UNKNOWN else "errors"
        issues.append(Issue("", f"… and {left} more {plural}", severity))
    return tuple(issues)


def _line(path: KeyPath, document: Document) -> str:
    """The line of a place, or of the nearest place around it."""
    around = (path[:length] for length in range(len(path), 0, -1))
    known = next((place for place in around if place in document.lines), None)
    return f" (line {document.lines[known]})" if known else ""


def _field_advice(kind: Kind, data: dict[str, Any]) -> Iterator[Fault]:
    description = data.get("description")
    if description is None or (isinstance(description, str) and not description.strip()):
        yield Fault(("description",), "Consider adding a description", "advice")
    if data.get("tags") == []:
        yield Fault(("tags",), "Consider adding tags, so that lists can be filtered", "advice")
    if data.get("author") is None:
        yield Fault(("author",), "Consider naming an author", "advice")
    if kind == "agent" and not data.get("system_prompt"):
        yield Fault(("system_prompt",), "The agent has no prompt", "advice")
    fields = schema.AGENT_FIELDS if kind == "agent" else schema.TOOL_FIELDS
    known = {*(each.removesuffix("?") for each in fields), *schema.ALSO_KNOWN}
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


def _place_advice(path: Path, data: dict[str, Any]) -> Iterator[Fault]:
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


def _cache_advice(data: dict[str, Any]) -> Iterator[Fault]:
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


def _references(
    path: Path, kind: Kind, shown: str, data: dict[str, Any], resolver: Resolver
) -> Iterator[Fault]:
    """Checks what `extends`, `tools` and `depends_on` refer to."""
    name = data["name"] if isinstance(data.get("name"), str) else path.stem
    definition = Definition(kind, name, version_of(data), "local", shown, data, path)
    inherited = inheritance.inherit(definition, resolver)
    searches = list(inherited.searches)
    if inherited.problem:
        is_cycle = "cycle" in inherited.problem.details
        yield Fault(("extends",), str(inherited.problem), "error" if is_cycle else STRICT)
    field = "tools" if kind == "agent" else "depends_on"
    needed, most = inheritance.requirements(definition), inheritance.MOST_LOOKED_UP
    if len(needed) > most:
        yield Fault((field,), f"Only the first {most} tools were looked up", "advice")
    for text in needed[:most]:
        searches.append(resolver.find("tool", parse_reference(text)))
        if searches[-1].definition is None:
            yield Fault((field, data[field].index(text)), f"Tool not found: {text}", STRICT)
    cycle = inheritance.dependency_cycle(definition, resolver)
    if cycle:
        yield Fault((field,), f"circular dependency: {' -> '.join(cycle)}")
    for reason in dict.fromkeys(each for search in searches for each in search.unreached):
        yield Fault((), reason, "advice")
