"""What is said of the definitions there are: a list, one in detail, the lockfile that pins them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

from fleet_agentpack.forge.configuration import Configuration
from fleet_agentpack.forge.definition import Definition, described, listed_in, tags_of, text_of
from fleet_agentpack.forge.errors import ForgeError, Loaded, Warnings, noted
from fleet_agentpack.forge.index import (
    DefinitionFile,
    DefinitionFolder,
    IndexedDefinition,
    Progress,
    closest,
)
from fleet_agentpack.forge.names import (
    KINDS,
    Format,
    Kind,
    Reference,
    Source,
    is_usable_name,
    parse_reference,
    version_order,
    write_file,
    writing_below,
)
from fleet_agentpack.forge.resolver import (
    MOST_LOOKED_UP,
    Resolver,
    dependency_cycle,
    inherit,
    requirements,
)
from fleet_agentpack.forge.results import AgentInfo, DefinitionRow, Dependency, ToolInfo, timestamp
from fleet_agentpack.forge.schema import ObjectSchema, is_json_schema, object_schema
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.results import UNKNOWN, Maybe, json_file
from fleet_agentpack.kit.semver import Version

Rivals = list[tuple[tuple[str, ...], DefinitionFile]]
ListKey = tuple[str | None, str, Format]  # owner, name, format


class Listed(NamedTuple):
    """A definition in a list: on disk, or as the stockyard describes it."""

    name: str  # the shortest that means it
    found: IndexedDefinition | DefinitionRow

    @property
    def tags(self) -> Maybe[tuple[str, ...]]:
        """Its tags."""
        found = self.found
        return found.tags if isinstance(found, DefinitionRow) else found.summary.tags

    @property
    def row(self) -> DefinitionRow:
        """The line that is shown."""
        if isinstance(self.found, DefinitionRow):
            return self.found
        file, known = self.found.file, self.found.summary
        return DefinitionRow(
            self.name,
            known.version,
            known.description,
            known.tags,
            file.folder.source,
            file.location,
            UNKNOWN if known.format == "fractary" else known.format,
        )


def list_definitions(
    resolver: Resolver,
    kind: Kind,
    source: str,
    *,
    want_tags: bool = True,
    progress: Progress | None = None,
) -> Loaded[list[Listed]]:
    """Each definition once, from the nearest tier that has it; a broken file is a warning.

    A plugin's is called `owner/name` where somebody else has one of the same name.
    """
    listed: dict[ListKey, IndexedDefinition | DefinitionRow] = {}
    warnings = list(resolver.places.warnings)
    for tier in resolver.tiers(source):
        if tier == "stockyard":
            remote = resolver.stockyard().listing(kind, want_tags=want_tags)
            warnings += remote.warnings
            names = {name for _, name, _ in listed}
            new = [row for row in remote.value if row.name not in names]
            listed |= {(None, row.name, "fractary"): row for row in new}
        else:
            found = _on_disk(resolver, kind, tier, progress)
            warnings += found.warnings
            for key, each in found.value.items():
                listed.setdefault(key, each)
    return Loaded(list(_named(listed)), tuple(warnings))


def _on_disk(
    resolver: Resolver, kind: Kind, tier: Source, progress: Progress | None
) -> Loaded[dict[ListKey, IndexedDefinition]]:
    """The newest version of each owner's name in each format, folder by folder.

    Of several in different directories, the first has the name; the others have their directory's.
    """
    found = resolver.indexed(kind, tier, progress)
    best: dict[ListKey, IndexedDefinition] = {}
    alike: defaultdict[str, list[IndexedDefinition]] = defaultdict(list)
    for each in found.value:
        key = (each.file.folder.owner, each.file.name, each.summary.format)
        if key not in best or (_is_version_of(each, best[key]) and _is_newer(each, best[key])):
            best[key] = each
        elif each.file.folder.layout != "fractary" and not _is_same(each.file, best[key].file):
            alike[each.file.name].append(each)
    owners = _owners(resolver.folders(kind, tier)) if alike else set()
    left_out: list[DefinitionFile] = []
    rivals: dict[str, Rivals] = {name: [] for name in alike}
    for each in found.value if alike else ():
        if each.file.name in rivals:
            rivals[each.file.name].append((each.file.around, each.file))
    for name, others in alike.items():
        for each in others:
            place = _place_of(each.file, rivals[name], owners)
            if place is None:
                left_out.append(each.file)
            else:
                best[place, name, each.summary.format] = each
    return Loaded(best, (*found.warnings, *_left_out(kind, left_out, resolver)))


def _owners(folders: Iterable[DefinitionFolder]) -> set[str]:
    return {each for folder in folders for each in (folder.owner, *folder.aliases) if each}


def _place_of(file: DefinitionFile, rivals: Rivals, owners: set[str]) -> str | None:
    """The nearest one or two directories that mean this definition of the name and no other."""
    around = [each for each in file.around if is_usable_name(each)]
    for length in (1, 2):
        for parts in combinations(reversed(around), length):
            place = parts[::-1]
            if "/".join(place) not in owners and closest(place, rivals) is file:
                return "/".join(place)
    return None


def _left_out(kind: Kind, alike: list[DefinitionFile], resolver: Resolver) -> list[str]:
    """What to say of definitions that no name is left for."""
    if not alike:
        return []
    what = f"1 {kind} is" if len(alike) == 1 else f"{len(alike):,} {kind}s are"
    first = resolver.shown(alike[0].location)
    return [f"{what} left out for one of the same owner and name, such as {first}"]


def _is_same(one: DefinitionFile, other: DefinitionFile) -> bool:
    try:
        return os.path.samefile(one.location, other.location)  # noqa: PTH121 - thousands of them
    except OSError:  # gone meanwhile
        return False


def _named(listed: Mapping[ListKey, IndexedDefinition | DefinitionRow]) -> Iterator[Listed]:
    """Each under the shortest name that means it: `name`, `owner/name`, or with its format."""
    owners = Counter(name for name, _ in {(name, owner) for owner, name, _ in listed})
    formats: set[tuple[str | None, str]] = set()
    for (owner, name, written_in), found in listed.items():
        label = name if (owner, name) not in formats else f"{written_in}/{name}"
        formats.add((owner, name))
        yield Listed(f"{owner}/{label}" if owner and owners[name] > 1 else label, found)


def _is_version_of(one: IndexedDefinition, other: IndexedDefinition) -> bool:
    """Whether two of one name are versions of one definition."""
    return one.file.folder is other.file.folder or one.file.folder.layout == "fractary"


def _is_newer(one: IndexedDefinition, other: IndexedDefinition) -> bool:
    return _newness(one) > _newness(other)


def _newness(indexed: IndexedDefinition) -> tuple[bool, bool, Version]:
    """A key to sort by: releases after prereleases, both after what is not a version."""
    known, version = version_order(indexed.summary.version)
    return known, not version.pre, version


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


def _arguments(hint: object) -> ObjectSchema:
    """The one text that a command takes."""
    shown = hint if isinstance(hint, str) else f"[{', '.join(map(str, listed_in(hint)))}]"
    return {
        "type": "object",
        "properties": {"arguments": {"type": "string", "description": shown}},
    }


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


@dataclass(frozen=True)
class Locked:
    """The lockfile and how much it pins."""

    path: str
    agents: int
    tools: int
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class LockProblem:
    """A definition that is not what the lockfile says."""

    name: str
    type: Kind
    problem: Literal["missing", "integrity_mismatch"]
    expected: object
    actual: str | None


@dataclass(frozen=True)
class LockCheck:
    """Whether everything matches the lockfile."""

    valid: bool
    problems: tuple[LockProblem, ...]
    warnings: Warnings = UNKNOWN


FORMAT = 1
MAX_WORKFLOW_BYTES = 1_000_000

_AGENT_IN_WORKFLOW = re.compile(r"agent:\s*([a-zA-Z0-9\-_:]+)")


class _Pin(TypedDict):
    version: str
    resolved: str
    integrity: str
    dependencies: NotRequired[dict[str, dict[str, str]]]


class Lockfile:
    """The lockfile of a project."""

    def __init__(self, configuration: Configuration, resolver: Resolver) -> None:
        self._configuration = configuration
        self._resolver = resolver

    @property
    def path(self) -> Path:
        """Where it is. Raises `ForgeError` without a project."""
        return self._configuration.directories.project / "plugins/forge/lockfile.json"

    def write(self, now: datetime, *, force: bool = False) -> Locked:
        """Pin what the project uses. Raises `ForgeError`, with nothing written."""
        with writing_below(self._configuration.directories.project):
            if not force:
                self._read()
            pinned = self._pinned()
            data = {"version": FORMAT, "generated": timestamp(now), **pinned.value}
            write_file(self.path, json_file(data))
        return Locked(
            path=self._configuration.directories.shown(self.path),
            agents=len(pinned.value["agents"]),
            tools=len(pinned.value["tools"]),
            warnings=self._configuration.noted(pinned.warnings),
        )

    def check(self) -> LockCheck:
        """What has changed since the lockfile was written. Raises `ForgeError` without one."""
        pins = self._read()
        if pins is None:
            raise ForgeError.config(
                self._configuration.directories.shown(self.path),
                "no lockfile yet; write one: fleet-agentpack forge lock",
            )
        problems: list[LockProblem] = []
        warnings = list(self._configuration.warnings)
        for kind, reference, expected in pins:
            found = self._resolver.find(kind, reference)
            digest = self.integrity(found.definition) if found.definition else Loaded(None)
            warnings += [*found.warnings, *digest.warnings]
            if digest.value != expected:
                what: Literal["integrity_mismatch", "missing"]
                what = "integrity_mismatch" if found.definition else "missing"
                problems.append(LockProblem(reference.name, kind, what, expected, digest.value))
        return LockCheck(not problems, tuple(problems), noted(warnings))

    def integrity(self, definition: Definition) -> Loaded[str]:
        """A hash of a definition with its bases, for any order of keys. Raises `ForgeError`."""
        inherited = inherit(definition, self._resolver)
        if inherited.problem:
            raise inherited.problem
        canonical = json.dumps(
            inherited.fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        return Loaded(f"sha256-{digest}", inherited.warnings)

    def _read(self) -> list[tuple[Kind, Reference, object]] | None:
        """What is pinned, each with its hash; None without a lockfile.

        Raises `ForgeError` for a lockfile that cannot be used.
        """
        try:
            data = read_mapping(self.path)
        except FileNotFoundError:
            return None
        except UnparsableError as error:
            raise ForgeError.config(self.path, f"{error}; --force writes a new one") from error
        if data.get("version") != FORMAT:
            raise ForgeError.config(
                self.path,
                f"unknown lockfile version {data.get('version')!r}; --force writes a new one",
            )
        pins: list[tuple[Kind, Reference, object]] = []
        for kind in KINDS:
            rows = data.get(f"{kind}s")
            for name, row in rows.items() if isinstance(rows, dict) else ():
                entry = row if isinstance(row, dict) else {}
                reference = Reference(name, str(entry.get("version") or "latest"))
                pins.append((kind, reference, entry.get("integrity")))
        return pins

    def _pinned(self) -> Loaded[dict[str, dict[str, _Pin]]]:
        """An entry for everything that the project uses and for what that needs."""
        tables: dict[Kind, dict[str, _Pin]] = {"agent": {}, "tool": {}}
        used = self._used()
        wanted, warnings = list(used.value), list(used.warnings)
        while wanted:
            kind, reference = wanted.pop(0)
            if reference.name in tables[kind]:
                continue
            found = self._resolver.find(kind, reference)
            if found.definition is None:
                raise ForgeError.dependency(
                    f"{kind} {reference} is used but not found; nothing was written",
                    name=reference.name,
                    type=kind,
                )
            digest = self.integrity(found.definition)
            warnings += [*found.warnings, *digest.warnings]
            needs = [parse_reference(text) for text in requirements(found.definition)]
            entry: _Pin = {
                "version": found.definition.version,
                "resolved": found.definition.source,
                "integrity": digest.value,
            }
            if needs:
                entry["dependencies"] = {"tools": {each.name: each.wanted for each in needs}}
            tables[kind][reference.name] = entry
            wanted += [("tool", each) for each in needs]
        pinned = {f"{kind}s": dict(sorted(table.items())) for kind, table in tables.items()}
        return Loaded(pinned, tuple(warnings))

    def _used(self) -> Loaded[list[tuple[Kind, Reference]]]:
        """What the project defines, names in its configuration, or runs in its workflows."""
        used: list[tuple[Kind, Reference]] = []
        warnings: list[str] = []
        for kind in KINDS:
            own = list_definitions(self._resolver, kind, "local")
            warnings += own.warnings
            # What belongs to a program is that program's to pin.
            used += [
                (kind, Reference(each.name)) for each in own.value if each.row.format is UNKNOWN
            ]
            named = self._configuration.values.get(f"{kind}s")
            used += [
                (kind, Reference(name, wanted if isinstance(wanted, str) else "latest"))
                for name, wanted in (named.items() if isinstance(named, dict) else ())
                if is_usable_name(name, kind)
            ]
        folder = self._configuration.directories.project / "workflows"
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.suffix not in (".yaml", ".yml", ".json") or not path.is_file():
                continue
            try:
                text = read_text(path, MAX_WORKFLOW_BYTES)
            except (UnreadableError, FileNotFoundError) as error:
                warnings.append(f"{self._configuration.directories.shown(path)}: {error}")
                continue
            agents = _AGENT_IN_WORKFLOW.findall(text)
            used += [("agent", Reference(name.rstrip(":"))) for name in agents]
        return Loaded(used, tuple(warnings))
