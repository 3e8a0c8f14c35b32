"""The lockfile: which versions a project uses, and a hash of each, in the original's format."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from fleet_agentpack.forge.definitions import Definition, Kind
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.inheritance import flattened, requirements
from fleet_agentpack.forge.names import Reference, is_usable_name, parse_reference
from fleet_agentpack.forge.parsing import UnparsableError, read_mapping
from fleet_agentpack.forge.service import Desk
from fleet_agentpack.forge.writing import stamp, write_json, writing_below
from fleet_agentpack.kit.files import UnreadableError, read_text

FORMAT = 1
MAX_WORKFLOW_BYTES = 1_000_000

_AGENT_IN_WORKFLOW = re.compile(r"agent:\s*([a-zA-Z0-9\-_:]+)")


def lockfile_path(desk: Desk) -> Path:
    """Where a project's lockfile is."""
    return desk.configuration.places.project / "plugins/forge/lockfile.json"


def lock(desk: Desk, now: datetime, *, force: bool = False) -> dict[str, Any]:
    """Write the lockfile of what the project uses. Raises `ForgeError`, with nothing written."""
    path = lockfile_path(desk)
    with writing_below(desk.configuration.places.project):
        if not force:
            read_lockfile(desk)
        entries = _entries(desk)
        data = {"version": FORMAT, "generated": stamp(now), **entries}
        write_json(path, data)
    return {
        "path": desk.configuration.places.shown(path),
        **{k: len(v) for k, v in entries.items()},
    }


def check_lock(desk: Desk) -> list[dict[str, Any]]:
    """What has changed since the lockfile was written. Raises `ForgeError` without one."""
    data = read_lockfile(desk)
    if data is None:
        raise ForgeError.config(
            desk.configuration.places.shown(lockfile_path(desk)),
            "there is no lockfile; write one: fleet-agentpack forge lock",
        )
    problems = []
    kinds: tuple[Kind, ...] = ("agent", "tool")
    for kind in kinds:
        rows = data.get(f"{kind}s")
        for name, entry in rows.items() if isinstance(rows, dict) else ():
            locked = entry if isinstance(entry, dict) else {}
            wanted = str(locked.get("version") or "latest")
            found = desk.resolver.exists(kind, Reference(name, wanted), desk.warnings)
            actual = integrity(desk, found) if found else None
            if actual != locked.get("integrity"):
                problems.append(
                    {
                        "name": name,
                        "type": kind,
                        "problem": "integrity_mismatch" if found else "missing",
                        "expected": locked.get("integrity"),
                        "actual": actual,
                    }
                )
    return problems


def read_lockfile(desk: Desk) -> dict[str, Any] | None:
    """The lockfile, None without one. Raises `ForgeError` for one that cannot be used."""
    path = lockfile_path(desk)
    try:
        data = read_mapping(path)
    except FileNotFoundError:
        return None
    except UnparsableError as error:
        raise ForgeError.config(path, f"{error}; --force writes a new one") from error
    if data.get("version") != FORMAT:
        raise ForgeError.config(
            path, f"lockfile version {data.get('version')!r} is not known; --force writes a new one"
        )
    return data


def integrity(desk: Desk, definition: Definition) -> str:
    """A hash of a definition with all that it inherits, the same for any order of keys."""
    fields = flattened(definition, desk.resolver, desk.warnings)
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256-{hashlib.sha256(canonical.encode()).hexdigest()}"


def _entries(desk: Desk) -> dict[str, dict[str, Any]]:
    agents: dict[str, Any] = {}
    tools: dict[str, Any] = {}
    wanted = list(_used(desk))
    while wanted:
        kind, reference = wanted.pop(0)
        table = agents if kind == "agent" else tools
        if reference.name in table:
            continue
        found = desk.resolver.exists(kind, reference, desk.warnings)
        if found is None:
            raise ForgeError.dependency(
                f"{kind} {reference} is used but not found; nothing was written",
                name=reference.name,
                type=kind,
            )
        needs = [parse_reference(text) for text in requirements(found)]
        table[reference.name] = {
            "version": found.version,
            "resolved": found.source,
            "integrity": integrity(desk, found),
            **(
                {"dependencies": {"tools": {each.name: each.wanted for each in needs}}}
                if needs
                else {}
            ),
        }
        wanted += [("tool", each) for each in needs]
    return {"agents": dict(sorted(agents.items())), "tools": dict(sorted(tools.items()))}


def _used(desk: Desk) -> Iterator[tuple[Kind, Reference]]:
    """What the project defines, names in its configuration, or runs in its workflows."""
    kinds: tuple[Kind, ...] = ("agent", "tool")
    for kind in kinds:
        for listed in desk.resolver.listed(kind, "local", desk.warnings):
            yield kind, Reference(listed.name)
        named = desk.configuration.values.get(f"{kind}s")
        for name, wanted in named.items() if isinstance(named, dict) else ():
            if is_usable_name(name, kind):
                yield kind, Reference(name, wanted if isinstance(wanted, str) else "latest")
    folder = desk.configuration.places.project / "workflows"
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.suffix in (".yaml", ".yml", ".json") and path.is_file():
            try:
                text = read_text(path, MAX_WORKFLOW_BYTES)
            except (UnreadableError, FileNotFoundError) as error:
                desk.warnings.append(f"{desk.configuration.places.shown(path)}: {error}")
                continue
            yield from (
                ("agent", Reference(m.rstrip(":"))) for m in _AGENT_IN_WORKFLOW.findall(text)
            )
