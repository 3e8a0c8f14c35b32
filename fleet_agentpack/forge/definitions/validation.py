"""Strict validation of one definition: schema faults, and advice that `strict` partly enforces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fleet_agentpack.forge.definitions.definition import (
    BODY_FIELD,
    MAX_DEFINITION_BYTES,
    Definition,
    parse_text,
    read_document,
    version_of,
)
from fleet_agentpack.forge.definitions.dialects import SKILL_FILES, Layout, format_of
from fleet_agentpack.forge.definitions.inheritance import (
    MOST_LOOKED_UP,
    dependency_cycle,
    inherit,
    requirement_field,
    requirements,
)
from fleet_agentpack.forge.definitions.program_rules import RULES, Examined
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.definitions.schema import (
    AGENT,
    STRICT,
    TOOL,
    Fault,
    Fix,
    fractary_advice,
)
from fleet_agentpack.forge.files import KeyPath, dotted
from fleet_agentpack.forge.names import Format, Kind, parse_reference
from fleet_agentpack.forge.results import Issue, Validation
from fleet_agentpack.kit.mappings import UnparsableError, read_parsable
from fleet_agentpack.kit.results import UNKNOWN, Maybe
from fleet_agentpack.kit.yaml12 import Document

SCHEMA_VERSION = "1.0"
MOST_ISSUES = 100  # of either severity; enough to start correcting

_PLAIN_FIELD = re.compile(r"([A-Za-z][\w-]*:[ \t]+)([^\s\"'|>].*?)[ \t]*\Z")
_ONLY_TOOLS: tuple[Format, ...] = ("agent-skill", "claude-command")


@dataclass(frozen=True)
class Judged:
    """Everything that was found in a file, and where its fields are."""

    found: tuple[Fault, ...]
    document: Document = field(default_factory=lambda: Document(None))
    format: str | None = None


def validate(
    path: Path, kind: Kind, shown: str, resolver: Resolver, *, strict: bool = False
) -> Validation:
    """What is wrong with a definition file and what to improve. Raises `FileNotFoundError`."""
    return verdict(judge(path, kind, shown, resolver), shown, strict=strict)


def judge(path: Path, kind: Kind, shown: str, resolver: Resolver) -> Judged:
    """The faults of a definition file. Raises `FileNotFoundError`."""
    folder = resolver.folder_of(kind, path)
    layout = folder.layout if folder else None
    try:
        document = read_document(path, kind)
        written_in = format_of(path, kind, document.data, layout)
    except UnparsableError as error:
        return _unparsable(path, kind, error, layout)
    definition = Definition(
        kind,
        name=document.data["name"] if isinstance(document.data.get("name"), str) else path.stem,
        version=version_of(document.data),
        source=folder.source if folder else "local",
        path=shown,
        data=document.data,
        file=path,
        owner=folder.owner if folder else None,
        format=written_in,
    )
    if written_in == "fractary":
        found = _fractary(definition, path, resolver)
    else:
        in_plugin = folder is not None and folder.in_plugin
        found = _of_program(definition, path, document, resolver, in_plugin=in_plugin)
    return Judged(tuple(found), document, written_in)


def verdict(judged: Judged, shown: str, *, strict: bool = False) -> Validation:
    """The findings as an answer: with `strict`, more of them are errors."""
    enforced = ("error", STRICT) if strict else ("error",)
    found, document = judged.found, judged.document
    faults = [each for weight in enforced for each in found if each.weight == weight]
    advice = [each for each in found if each.weight not in enforced]
    errors, warnings = _issues(faults, document, "error"), _issues(advice, document, UNKNOWN)
    return Validation(not errors, shown, errors, warnings, SCHEMA_VERSION)


def _unparsable(path: Path, kind: Kind, error: UnparsableError, layout: Layout | None) -> Judged:
    """A file that cannot be read as it should; a fix where quotes around one value mend it."""
    try:
        lines = read_parsable(path, MAX_DEFINITION_BYTES).splitlines()
    except UnparsableError:  # a pipe, a large or a binary file: no header is to blame
        return Judged((Fault((), str(error)),), Document(None))
    foreign = path.suffix == ".md" and layout != "fractary"
    unclosed = "not closed" in str(error)
    if foreign and unclosed and kind == "tool" and path.name not in SKILL_FILES:
        advice = Fault((), "The header is not closed: Claude Code takes it for text", "advice")
        return Judged((advice,), Document(None), "claude-command")
    message = str(error)
    if foreign and not unclosed:
        message += "; Claude Code may drop every field of the header"
    return Judged(
        (Fault((), message, fix=quoting_fix(lines, kind) if foreign else None),), Document(None)
    )


def quoting_fix(lines: Sequence[str], kind: Kind) -> Fix | None:
    """The one line of a Markdown file whose value, put into quotes, makes a header valid."""
    for number, line in enumerate(lines, 1):
        found = _PLAIN_FIELD.match(line)
        if not found:
            continue
        quoted = f"{found[1]}{json.dumps(found[2], ensure_ascii=False)}"
        text = "\n".join([*lines[: number - 1], quoted, *lines[number:]])
        try:
            parse_text(text, ".md", kind)
        except UnparsableError:
            continue
        return Fix(number, quoted)
    return None


def _of_program(
    definition: Definition, path: Path, document: Document, resolver: Resolver, *, in_plugin: bool
) -> Iterator[Fault]:
    """What a program says of its own agent, command or skill."""
    kind, data = definition.kind, definition.data
    if definition.format in _ONLY_TOOLS and kind == "agent":
        yield Fault((), "This is not an agent; validate it as a tool")
        return
    seen = Examined(
        path=path,
        data={key: value for key, value in data.items() if key != BODY_FIELD[kind]},
        body=str(data.get(BODY_FIELD[kind], "")),
        has_header=bool(document.lines),
        in_plugin=in_plugin,
        for_claude=in_plugin or ".claude" in path.parts,
        lines=document.lines,
    )
    yield from RULES[definition.format](seen)
    if kind == "agent":
        yield from _missing_tools(definition, resolver, "Claude Code loads it without it")


def _fractary(definition: Definition, path: Path, resolver: Resolver) -> Iterator[Fault]:
    kind, data = definition.kind, definition.data
    yield from (AGENT if kind == "agent" else TOOL)(data, ())
    if kind == "agent" and path.suffix == ".md" and not data.get(BODY_FIELD[kind]):
        yield Fault((BODY_FIELD[kind],), "the Markdown body is the prompt, and it is empty")
    yield from fractary_advice(kind, path, data)
    yield from _references(definition, resolver)


def _issues(
    found: Sequence[Fault], document: Document, severity: Maybe[Literal["error"]]
) -> tuple[Issue, ...]:
    issues = []
    for each in found[:MOST_ISSUES]:
        line = line_of(each.path, document)
        message = f"{each.message} (line {line})" if line else each.message
        issues.append(Issue(dotted(each.path), message, severity))
    left = len(found) - len(issues)
    if left:
        plural = "warnings" if severity is UNKNOWN else "errors"
        issues.append(Issue("", f"… and {left} more {plural}", severity))
    return tuple(issues)


def line_of(path: KeyPath, document: Document) -> int | None:
    """The line of a place, or of the nearest place around it but the whole."""
    around = (path[:length] for length in range(len(path), 0, -1))
    return next((document.lines[place] for place in around if place in document.lines), None)


def _references(definition: Definition, resolver: Resolver) -> Iterator[Fault]:
    """Checks what `extends`, `tools` and `depends_on` refer to."""
    inherited = inherit(definition, resolver)
    if inherited.problem:
        is_cycle = "cycle" in inherited.problem.details
        yield Fault(("extends",), str(inherited.problem), "error" if is_cycle else STRICT)
    unreached = [each for search in inherited.searches for each in search.unreached]
    yield from _missing_tools(definition, resolver)
    cycle = dependency_cycle(definition, resolver)
    if cycle:
        field = requirement_field(definition)
        yield Fault((field,), f"circular dependency: {' -> '.join(cycle)}")
    for reason in dict.fromkeys(unreached):
        yield Fault((), reason, "advice")


def _missing_tools(
    definition: Definition, resolver: Resolver, what_happens: str = ""
) -> Iterator[Fault]:
    """The tools that a definition names and nobody defines."""
    field = requirement_field(definition)
    value, hint = definition.data.get(field), f"; {what_happens}" if what_happens else ""
    needed, most = requirements(definition), MOST_LOOKED_UP
    if len(needed) > most:
        yield Fault((field,), f"Only the first {most} tools were looked up", "advice")
    unreached: dict[str, None] = {}
    for text in needed[:most]:
        search = resolver.find("tool", parse_reference(text), definition)
        unreached |= dict.fromkeys(search.unreached)
        if search.definition is None:
            place: KeyPath = (field, value.index(text)) if isinstance(value, list) else (field,)
            yield Fault(place, f"Tool not found: {text}{hint}", STRICT)
    for reason in unreached:
        yield Fault((), reason, "advice")
