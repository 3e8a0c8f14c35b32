"""Strict validation of one definition, or of everything in a tree, with the fixes that are safe."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.definition import (
    BODY_FIELD,
    MAX_DEFINITION_BYTES,
    PLUGIN_MANIFEST,
    SKILL_FILES,
    Definition,
    KeyPath,
    Layout,
    dotted,
    format_of,
    parse_text,
    read_document,
    version_of,
)
from fleet_agentpack.forge.folders import MARKETPLACES
from fleet_agentpack.forge.names import (
    KINDS,
    Directories,
    Format,
    Kind,
    parse_reference,
    write_file,
)
from fleet_agentpack.forge.program_rules import (
    MOST_READ_BY_CODEX,
    RULES,
    Examined,
    hook_faults,
    instruction_faults,
    manifest_faults,
    marketplace_faults,
    server_faults,
    settings_faults,
)
from fleet_agentpack.forge.resolver import (
    MOST_LOOKED_UP,
    Resolver,
    dependency_cycle,
    inherit,
    requirement_field,
    requirements,
)
from fleet_agentpack.forge.results import Issue, Validation
from fleet_agentpack.forge.schema import AGENT, STRICT, TOOL, Fault, Fix, fractary_advice
from fleet_agentpack.kit.mappings import UnparsableError, as_mapping, parse_json, read_parsable
from fleet_agentpack.kit.paths import is_inside
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


MOST_FIXES = 20  # of one file

JsonRules = Callable[[Mapping[str, Any], Path], Iterable[Fault]]
FileFormat = Format | Literal["hooks", "marketplace", "mcp-servers", "agents-md", "settings"]


@dataclass(frozen=True)
class Finding:
    """One thing wrong, or to improve, in one file of a tree."""

    path: str
    line: Maybe[int]
    field: str
    message: str
    severity: Literal["error", "warning"]
    fix: Maybe[str] = UNKNOWN  # the line as it would be right


@dataclass(frozen=True)
class TreeVerdict:
    """Whether everything in a tree is valid."""

    valid: bool
    files: int
    formats: Mapping[str, int]
    findings: tuple[Finding, ...]
    fixed: tuple[str, ...]


@dataclass(frozen=True)
class JudgedFile:
    """A file of a tree with what was found in it."""

    path: str
    judged: Judged
    is_mended: bool


Judge = Callable[[], Judged]  # looks at a file again each time


class TreeValidation:
    """Judges what a resolver finds in its project."""

    def __init__(
        self, resolver: Resolver, directories: Directories, shown: Callable[[Path], str]
    ) -> None:
        self._resolver = resolver
        self._root = directories.project.parent
        self._shown = shown

    def run(self, *, fix: bool = False, only: Path | None = None) -> Iterator[JudgedFile]:
        """Judge every file, or one; with `fix`, first write what needs no decision."""
        files = {path: judge for path, judge in self._files() if only in (None, path)}
        if only and not files:
            files = {only: self._definition(only, kind_of(only))}
        for path, look in files.items():
            judged = look()
            mended = _mended(path, look, judged) if fix else judged
            yield JudgedFile(self._shown(path), mended, mended is not judged)

    def _files(self) -> Iterator[tuple[Path, Judge]]:
        for kind in KINDS:
            for indexed in self._resolver.everything(kind, "local"):
                yield indexed.path, self._definition(indexed.path, kind)
        root, found = self._root, list[tuple[Path, Judge]]()
        for plugin in self._resolver.places.plugins("local"):
            folder = plugin.folder
            found += [
                _json(folder / PLUGIN_MANIFEST, "claude-plugin", manifest_faults, folder),
                _json(folder / "hooks/hooks.json", "hooks", hook_faults),
                _json(folder / ".mcp.json", "mcp-servers", server_faults),
                _instructions(folder / "AGENTS.md"),
            ]
        settings = [root / ".claude" / name for name in ("settings.json", "settings.local.json")]
        found += [
            _json(root / MARKETPLACES[0], "marketplace", marketplace_faults, root),
            *(_json(path, "settings", settings_faults) for path in settings),
            _json(root / ".mcp.json", "mcp-servers", server_faults),
            _instructions(root / "AGENTS.md"),
        ]
        yield from (each for each in found if each[0].is_file() and is_inside(each[0], root))

    def _definition(self, path: Path, kind: Kind) -> Judge:
        def look() -> Judged:
            try:
                return judge(path, kind, self._shown(path), self._resolver)
            except FileNotFoundError:
                return Judged(())

        return look


def _json(
    path: Path, written_in: FileFormat, rules: JsonRules, around: Path | None = None
) -> tuple[Path, Judge]:
    def look() -> Judged:
        try:
            text = read_parsable(path, MAX_DEFINITION_BYTES)
            faults = tuple(rules(as_mapping(parse_json(text)), around or path.parent))
        except FileNotFoundError:
            return Judged((), format=written_in)
        except UnparsableError as error:
            return Judged((Fault((), str(error)),), format=written_in)
        return Judged(faults, Document(None, _json_lines(text, faults)), written_in)

    return path, look


def _instructions(path: Path) -> tuple[Path, Judge]:
    def look() -> Judged:
        try:
            text = read_parsable(path, 100 * MOST_READ_BY_CODEX)
        except (UnparsableError, FileNotFoundError) as error:
            return Judged((Fault((), str(error)),), format="agents-md")
        return Judged(tuple(instruction_faults(text)), format="agents-md")

    return path, look


def _mended(path: Path, look: Judge, judged: Judged) -> Judged:
    """What is found after the fixes that help were written, one by one."""
    for _ in range(MOST_FIXES):
        fix = next((each.fix for each in judged.found if each.fix), None)
        if fix is None:
            break
        text = read_parsable(path, MAX_DEFINITION_BYTES)
        write_file(path, _with_fix(text, fix))
        after = look()
        if len(after.found) >= len(judged.found):
            write_file(path, text)  # it did not help: as it was
            break
        judged = after
    return judged


def tree_verdict(files: Sequence[JudgedFile], *, strict: bool = False) -> TreeVerdict:
    """The findings in the files of some trees as an answer."""
    findings = [finding for each in files for finding in _findings(each, strict=strict)]
    return TreeVerdict(
        valid=all(each.severity != "error" for each in findings),
        files=len(files),
        formats=Counter(each.judged.format or "unreadable" for each in files),
        findings=tuple(findings),
        fixed=tuple(each.path for each in files if each.is_mended),
    )


def _findings(file: JudgedFile, *, strict: bool) -> Iterator[Finding]:
    enforced = ("error", STRICT) if strict else ("error",)
    for fault in file.judged.found:
        line = fault.fix.line if fault.fix else line_of(fault.path, file.judged.document)
        yield Finding(
            path=file.path,
            line=UNKNOWN if line is None else line,
            field=dotted(fault.path),
            message=fault.message,
            severity="error" if fault.weight in enforced else "warning",
            fix=fault.fix.text if fault.fix else UNKNOWN,
        )


def kind_of(path: Path) -> Kind:
    """What a file that is in no known place would define."""
    is_tool = (
        path.name in SKILL_FILES or path.stem == "tool" or {"commands", "tools"} & {*path.parts}
    )
    return "tool" if is_tool else "agent"


def _with_fix(text: str, fix: Fix) -> str:
    lines = text.splitlines(keepends=True)
    at = fix.line - 1
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    return "".join([*lines[:at], fix.text + ending, *lines[at if fix.is_new else at + 1 :]])


def _json_lines(text: str, faults: Iterable[Fault]) -> dict[tuple[str | int, ...], int]:
    """The line of the last named key of each fault, where the text has it only once."""
    lines: dict[tuple[str | int, ...], int] = {}
    for fault in faults:
        names = [part for part in fault.path if isinstance(part, str)]
        mark = f'"{names[-1]}"' if names else ""
        if mark and text.count(mark) == 1:
            lines[fault.path] = text[: text.index(mark)].count("\n") + 1
    return lines
