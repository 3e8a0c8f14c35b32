"""The lockfile: which versions a project uses, and a hash of each, in the original's format."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

from fleet_agentpack.forge.command_results import LockCheck, Locked, LockProblem
from fleet_agentpack.forge.config.configuration import Configuration
from fleet_agentpack.forge.definitions.definition import Definition
from fleet_agentpack.forge.definitions.inheritance import inherit, requirements
from fleet_agentpack.forge.definitions.listing import list_definitions
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.errors import ForgeError, Loaded, noted
from fleet_agentpack.forge.files import timestamp, write_file, writing_below
from fleet_agentpack.forge.names import KINDS, Kind, Reference, is_usable_name, parse_reference
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.results import UNKNOWN, json_file

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
