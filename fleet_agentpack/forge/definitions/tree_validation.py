"""Validates everything in a tree: each definition, and each plugin with its hooks and servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.definitions import plugin_rules
from fleet_agentpack.forge.definitions.definition import MAX_DEFINITION_BYTES
from fleet_agentpack.forge.definitions.dialects import SKILL_FILES
from fleet_agentpack.forge.definitions.folders import MARKETPLACES
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.definitions.schema import Fault, Fix
from fleet_agentpack.forge.definitions.validation import STRICT, Judged, judge, line_of
from fleet_agentpack.forge.files import (
    Directories,
    UnparsableError,
    as_mapping,
    parse_json,
    read_parsable,
    write_text,
)
from fleet_agentpack.forge.names import KINDS, Format, Kind
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.results import UNKNOWN, Maybe
from fleet_agentpack.kit.yaml12 import Document

MOST_FIXES = 20  # of one file

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
    fixed: tuple[str, ...] = ()


@dataclass(frozen=True)
class _File:
    """A file to judge, and how."""

    path: Path
    judge: Callable[[], Judged]


class TreeValidation:
    """Judges what a resolver finds in its project."""

    def __init__(
        self, resolver: Resolver, directories: Directories, shown: Callable[[Path], str]
    ) -> None:
        self._resolver = resolver
        self._root = directories.project.parent
        self._shown = shown

    def run(
        self, *, strict: bool = False, fix: bool = False, only: Path | None = None
    ) -> TreeVerdict:
        """Judge every file, or one; with `fix`, first write what needs no decision."""
        fixed: list[str] = []
        findings: list[Finding] = []
        formats: dict[str, int] = {}
        files = {each.path: each for each in self._files() if only in (None, each.path)}
        if only and not files:
            files = {only: self._definition(only, kind_of(only))}
        for file in files.values():
            judged = file.judge()
            if fix and (mended := self._mend(file, judged)) is not judged:
                fixed.append(self._shown(file.path))
                judged = mended
            formats[judged.format or "unreadable"] = (
                formats.get(judged.format or "unreadable", 0) + 1
            )
            findings += self._findings(file.path, judged, strict=strict)
        errors = any(each.severity == "error" for each in findings)
        return TreeVerdict(not errors, len(files), formats, tuple(findings), tuple(fixed))

    def _files(self) -> Iterator[_File]:
        for kind in KINDS:
            for indexed in self._resolver.everything(kind, "local"):
                yield self._definition(indexed.path, kind)
        for plugin in self._resolver.places.plugins("local"):
            manifest = plugin.folder / ".claude-plugin/plugin.json"
            yield from self._json(
                manifest, "claude-plugin", plugin_rules.manifest_faults, plugin.folder
            )
            yield from self._json(plugin.folder / "hooks/hooks.json", "hooks", _hooks)
            yield from self._json(plugin.folder / ".mcp.json", "mcp-servers", _servers)
            yield from self._instructions(plugin.folder / "AGENTS.md")
        for name in MARKETPLACES[:1]:
            yield from self._json(
                self._root / name, "marketplace", plugin_rules.marketplace_faults, self._root
            )
        for name in ("settings.json", "settings.local.json"):
            yield from self._json(self._root / ".claude" / name, "settings", _settings)
        yield from self._json(self._root / ".mcp.json", "mcp-servers", _servers)
        yield from self._instructions(self._root / "AGENTS.md")

    def _definition(self, path: Path, kind: Kind) -> _File:
        shown = self._shown(path)

        def look() -> Judged:
            try:
                return judge(path, kind, shown, self._resolver)
            except FileNotFoundError:
                return Judged((), Document(None))

        return _File(path, look)

    def _json(
        self,
        path: Path,
        written_in: FileFormat,
        rules: Callable[[Mapping[str, Any], Path], Iterable[Fault]],
        around: Path | None = None,
    ) -> Iterator[_File]:
        def look() -> Judged:
            try:
                text = read_parsable(path, MAX_DEFINITION_BYTES)
                faults = tuple(rules(as_mapping(parse_json(text)), around or path.parent))
            except FileNotFoundError:
                return Judged((), Document(None), written_in)
            except UnparsableError as error:
                return Judged((Fault((), str(error)),), Document(None), written_in)
            return Judged(faults, Document(None, _json_lines(text, faults)), written_in)

        if path.is_file() and is_inside(path, self._root):
            yield _File(path, look)

    def _instructions(self, path: Path) -> Iterator[_File]:
        def look() -> Judged:
            try:
                text = read_parsable(path, 100 * plugin_rules.MOST_READ_BY_CODEX)
            except (UnparsableError, FileNotFoundError) as error:
                return Judged((Fault((), str(error)),), Document(None), "agents-md")
            return Judged(tuple(plugin_rules.instruction_faults(text)), Document(None), "agents-md")

        if path.is_file() and is_inside(path, self._root):
            yield _File(path, look)

    def _mend(self, file: _File, judged: Judged) -> Judged:
        for _ in range(MOST_FIXES):
            fix = next((each.fix for each in judged.found if each.fix), None)
            if fix is None:
                break
            text = read_parsable(file.path, MAX_DEFINITION_BYTES)
            write_text(file.path, _mended(text, fix))
            after = file.judge()
            if len(after.found) >= len(judged.found):
                write_text(file.path, text)  # it did not help: as it was
                break
            judged = after
        return judged

    def _findings(self, path: Path, judged: Judged, *, strict: bool) -> Iterator[Finding]:
        enforced = ("error", STRICT) if strict else ("error",)
        for fault in judged.found:
            line = fault.fix.line if fault.fix else line_of(fault.path, judged.document)
            yield Finding(
                path=self._shown(path),
                line=UNKNOWN if line is None else line,
                field=".".join(str(part) for part in fault.path),
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


def joined(verdicts: Iterable[TreeVerdict]) -> TreeVerdict:
    """Several trees as one."""
    total = TreeVerdict(valid=True, files=0, formats={}, findings=())
    for each in verdicts:
        keys = {*total.formats, *each.formats}
        total = replace(
            total,
            valid=total.valid and each.valid,
            files=total.files + each.files,
            formats={key: total.formats.get(key, 0) + each.formats.get(key, 0) for key in keys},
            findings=(*total.findings, *each.findings),
            fixed=(*total.fixed, *each.fixed),
        )
    return total


def _hooks(data: Mapping[str, Any], _: Path) -> Iterable[Fault]:
    return plugin_rules.hook_faults(data)


def _settings(data: Mapping[str, Any], _: Path) -> Iterable[Fault]:
    return plugin_rules.hook_faults(data, in_settings=True)


def _servers(data: Mapping[str, Any], _: Path) -> Iterable[Fault]:
    return plugin_rules.server_faults(data)


def _mended(text: str, fix: Fix) -> str:
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
