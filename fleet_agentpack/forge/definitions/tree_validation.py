"""Validates everything in a tree: each definition, and each plugin with its hooks and servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.definitions.definition import MAX_DEFINITION_BYTES
from fleet_agentpack.forge.definitions.dialects import PLUGIN_MANIFEST, SKILL_FILES
from fleet_agentpack.forge.definitions.folders import MARKETPLACES
from fleet_agentpack.forge.definitions.plugin_rules import (
    MOST_READ_BY_CODEX,
    hook_faults,
    instruction_faults,
    manifest_faults,
    marketplace_faults,
    server_faults,
)
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.definitions.schema import STRICT, Fault, Fix
from fleet_agentpack.forge.definitions.validation import Judged, judge, line_of
from fleet_agentpack.forge.files import Directories, dotted, write_file
from fleet_agentpack.forge.names import KINDS, Format, Kind
from fleet_agentpack.kit.mappings import UnparsableError, as_mapping, parse_json, read_parsable
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.results import UNKNOWN, Maybe
from fleet_agentpack.kit.yaml12 import Document

MOST_FIXES = 20  # of one file

Rules = Callable[[Mapping[str, Any], Path], Iterable[Fault]]
Shown = Callable[[Path], str]
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

    def __init__(self, resolver: Resolver, directories: Directories, shown: Shown) -> None:
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
                _json(folder / "hooks/hooks.json", "hooks", _hooks),
                _json(folder / ".mcp.json", "mcp-servers", _servers),
                _instructions(folder / "AGENTS.md"),
            ]
        settings = [root / ".claude" / name for name in ("settings.json", "settings.local.json")]
        found += [
            _json(root / MARKETPLACES[0], "marketplace", marketplace_faults, root),
            *(_json(path, "settings", _settings) for path in settings),
            _json(root / ".mcp.json", "mcp-servers", _servers),
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
    path: Path, written_in: FileFormat, rules: Rules, around: Path | None = None
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


def _hooks(data: Mapping[str, Any], _: Path) -> Iterable[Fault]:
    return hook_faults(data)


def _settings(data: Mapping[str, Any], _: Path) -> Iterable[Fault]:
    return hook_faults(data, in_settings=True)


def _servers(data: Mapping[str, Any], _: Path) -> Iterable[Fault]:
    return server_faults(data)


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
