"""Strict validation of one definition: schema faults, and advice that `strict` partly enforces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.definitions import inheritance, schema
from fleet_agentpack.forge.definitions.definition import (
    BODY_FIELD,
    Definition,
    read_document,
    version_of,
)
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.names import Kind, is_kebab, parse_reference
from fleet_agentpack.forge.parsing import KeyPath, UnparsableError
from fleet_agentpack.forge.results import Issue, Validation
from fleet_agentpack.kit.results import UNKNOWN, Maybe
from fleet_agentpack.kit.yaml12 import Document

SCHEMA_VERSION = "1.0"
MOST_ISSUES = 100  # of either severity; enough to start correcting

_CODEX_URI = re.compile(r"codex://[^/]+/[^/]+/.+", re.DOTALL)
_SOURCE_FIELD = {"file": "path", "glob": "pattern", "inline": "content", "codex": "uri"}


@dataclass(frozen=True)
class Advice:
    """Something to improve; `binding` advice is an error in strict mode."""

    path: KeyPath
    message: str
    binding: bool = False


def validate(
    path: Path, kind: Kind, shown: str, resolver: Resolver, *, strict: bool = False
) -> Validation:
    """What is wrong with a definition file and what to improve. Raises `FileNotFoundError`."""
    try:
        document = read_document(path, kind)
    except UnparsableError as error:
        return _result(shown, [schema.Fault((), str(error))], [], strict, Document(None))
    faults = list((schema.AGENT if kind == "agent" else schema.TOOL)(document.data, ()))
    faults += _body_faults(path, kind, document.data)
    advice = [*_field_advice(kind, document.data), *_place_advice(path, document.data)]
    if kind == "agent":
        advice += _cache_advice(document.data)
    more_faults, more_advice = _references(path, kind, shown, document.data, resolver)
    return _result(shown, [*faults, *more_faults], [*advice, *more_advice], strict, document)


def _result(
    shown: str,
    faults: list[schema.Fault],
    advice: list[Advice],
    strict: bool,
    document: Document,
) -> Validation:
    promoted = [schema.Fault(each.path, each.message) for each in advice if strict and each.binding]
    kept = [each for each in advice if not (strict and each.binding)]
    errors = _issues([*faults, *promoted], document, "error")
    return Validation(not errors, shown, errors, _issues(kept, document, UNKNOWN), SCHEMA_VERSION)


def _issues(
    found: Sequence[schema.Fault | Advice], document: Document, severity: Maybe[Literal["error"]]
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


def _body_faults(path: Path, kind: Kind, data: dict[str, Any]) -> Iterator[schema.Fault]:
    if kind == "agent" and path.suffix == ".md" and not data.get(BODY_FIELD[kind]):
        yield schema.Fault((BODY_FIELD[kind],), "the Markdown body is the prompt, and it is empty")


def _field_advice(kind: Kind, data: dict[str, Any]) -> Iterator[Advice]:
    description = data.get("description")
    if description is None or (isinstance(description, str) and not description.strip()):
        yield Advice(("description",), "Consider adding a description")
    if data.get("tags") == []:
        yield Advice(("tags",), "Consider adding tags, so that lists can be filtered")
    if data.get("author") is None:
        yield Advice(("author",), "Consider naming an author")
    if kind == "agent" and not data.get("system_prompt"):
        yield Advice(("system_prompt",), "The agent has no prompt")
    fields = schema.AGENT_FIELDS if kind == "agent" else schema.TOOL_FIELDS
    known = {*(each.removesuffix("?") for each in fields), *schema.ALSO_KNOWN}
    for key in data:
        if key not in known:
            yield Advice((key,), "Unknown field; nothing reads it", binding=True)
    if kind == "tool":
        yield from _parameter_advice(data.get("parameters"), ("parameters",))


def _parameter_advice(parameters: Any, path: KeyPath) -> Iterator[Advice]:
    for name, parameter in parameters.items() if isinstance(parameters, dict) else ():
        if not isinstance(parameter, dict):
            continue
        place = (*path, str(name))
        if not parameter.get("description"):
            yield Advice(place, "Consider describing the parameter")
        yield from _parameter_advice(parameter.get("properties"), (*place, "properties"))


def _place_advice(path: Path, data: dict[str, Any]) -> Iterator[Advice]:
    name = data.get("name")
    if not isinstance(name, str) or not name:
        return
    if not all(is_kebab(part) for part in name.split(":")):
        yield Advice(("name",), "Consider lower-case words joined by hyphens")
    in_directory = path.stem in ("agent", "tool")
    called, _, version = (path.parent.name if in_directory else path.stem).partition("@")
    if called != name:
        yield Advice(
            ("name",), f"The {'directory' if in_directory else 'file'} is called {called!r}"
        )
    if version and version != version_of(data):
        yield Advice(("version",), f"The path says version {version}")


def _cache_advice(data: dict[str, Any]) -> Iterator[Advice]:
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
            yield Advice(place, f"A {kind} source needs `{needed}`", binding=True)
        elif kind == "codex" and not (isinstance(value, str) and _CODEX_URI.fullmatch(value)):
            yield Advice(place, "Must look like codex://org/project/path", binding=True)


def _references(
    path: Path, kind: Kind, shown: str, data: dict[str, Any], resolver: Resolver
) -> tuple[list[schema.Fault], list[Advice]]:
    """Checks what `extends`, `tools` and `depends_on` refer to."""
    name = data["name"] if isinstance(data.get("name"), str) else path.stem
    definition = Definition(kind, name, version_of(data), "local", shown, data, path)
    faults: list[schema.Fault] = []
    advice: list[Advice] = []
    inherited = inheritance.inherit(definition, resolver)
    searches = list(inherited.searches)
    if inherited.problem and "cycle" in inherited.problem.details:
        faults.append(schema.Fault(("extends",), str(inherited.problem)))
    elif inherited.problem:
        advice.append(Advice(("extends",), str(inherited.problem), binding=True))
    field = "tools" if kind == "agent" else "depends_on"
    needed = inheritance.requirements(definition)
    if len(needed) > inheritance.MOST_LOOKED_UP:
        advice.append(
            Advice((field,), f"Only the first {inheritance.MOST_LOOKED_UP} tools were looked up")
        )
    for text in needed[: inheritance.MOST_LOOKED_UP]:
        searches.append(resolver.find("tool", parse_reference(text)))
        if searches[-1].definition is None:
            place = (field, data[field].index(text))
            advice.append(Advice(place, f"Tool not found: {text}", binding=True))
    cycle = inheritance.dependency_cycle(definition, resolver)
    if cycle:
        faults.append(schema.Fault((field,), f"circular dependency: {' -> '.join(cycle)}"))
    unreached = dict.fromkeys(reason for search in searches for reason in search.unreached)
    return faults, [*advice, *(Advice((), reason) for reason in unreached)]
