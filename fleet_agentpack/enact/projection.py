"""Installed tools as callable entries with MCP names; one that is broken hides no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import (
    BUILTIN_NAMESPACE,
    Entry,
    build_table,
    is_name,
    is_reserved,
    is_version,
)
from fleet_agentpack.kit.stamps import Stamp, stamp

if TYPE_CHECKING:
    from fleet_agentpack.enact.manifest import Manifest, Script
    from fleet_agentpack.enact.store import Store

META_TOOLS = ("search", "learn", "install", "uninstall", "list", "run")


@dataclass(frozen=True, eq=False)
class Projected:
    """One entry of an installed tool."""

    mcp_name: str
    entry: Entry
    script: Script | None
    installed: Installed


@dataclass(frozen=True, eq=False)
class Installed:
    """An installed tool that can be read."""

    name: str
    version: str
    manifest: Manifest
    store: Store


@dataclass(frozen=True, eq=False)
class Projection:
    """What a client sees, by MCP name, and what is wrong."""

    callables: Mapping[str, Projected]
    installed: Mapping[str, Installed]  # everything that can be read, also outside the toolset
    visible: frozenset[str]
    warnings: tuple[str, ...]

    def listed(self) -> list[object]:
        """All that a client's list of tools shows of it."""
        return [
            (mcp_name, found.installed.manifest.description, found.installed.manifest.network)
            if found.script is None
            else (
                mcp_name,
                found.script.description,
                found.script.input_schema,
                found.script.output_schema,
                found.script.annotations,
                found.installed.manifest.network,
            )
            for mcp_name, found in self.callables.items()
        ]


class Projector:
    """Reads the stores when they have changed, and only then."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self._stores = stores
        self._seen: object = None
        self._folders: dict[str, Stamp | None] = {}  # each as it was when it was read
        self._projection: Projection | None = None
        self._revision = 0
        self._manifests: dict[tuple[Path, str, str, object], Installed] = {}

    def revision(self) -> int:
        """A number that grows when what clients see has changed.

        Until somebody has asked for the tools, no manifest is read: any change counts.
        """
        if self._projection is not None:
            self.read()
            return self._revision
        seen = self._stamp()
        if self._seen not in (None, seen):
            self._revision += 1
        self._seen = seen
        return self._revision

    def read(self) -> Projection:
        """The projection as it is now."""
        seen = self._stamp()
        if self._projection is None or seen != self._seen:
            before, self._projection = self._projection, self._build()
            self._seen = seen[0], list(self._folders.values())
            if before is not None and before.listed() != self._projection.listed():
                self._revision += 1
        return self._projection

    def _stamp(self) -> tuple[object, list[Stamp | None]]:
        return [store.stamp() for store in self._stores], [stamp(path) for path in self._folders]

    def _build(self) -> Projection:
        warnings: list[str] = []
        installed: dict[str, Installed] = {}
        visible: dict[str, None] = {}
        folders: dict[str, Stamp | None] = {}
        for store in self._stores:
            pins, seen = _listed(store, warnings)
            for name, version in pins.items():
                folder = str(store.folder(name, version))
                folders[folder] = stamp(folder)
                found = self._load(store, name, version, warnings)
                if found:
                    installed[name] = found
            visible.update(dict.fromkeys(name for name in seen if name in installed))
        self._folders = folders
        entries = {
            entry: (installed[name], script)
            for name in visible
            for entry, script in installed[name].manifest.entries().items()
        }
        table = build_table(entries, taken=[f"enact__{each}" for each in META_TOOLS])
        callables = {
            mcp_name: Projected(mcp_name, entry, entries[entry][1], entries[entry][0])
            for mcp_name, entry in sorted(table.entries.items())
        }
        return Projection(callables, installed, frozenset(visible), (*warnings, *table.collisions))

    def _load(self, store: Store, name: str, version: str, warnings: list[str]) -> Installed | None:
        if not is_name(name) or (is_reserved(name) and not name.startswith(BUILTIN_NAMESPACE)):
            warnings.append(f"{store.tools_path}: {name[:80]!r} is not a tool's name")
            return None
        if not is_version(version):
            warnings.append(f"{name} is left out: {version[:80]!r} is not a version")
            return None
        key = (store.root, name, version, store.folder_stamp(name, version))
        if key not in self._manifests:
            try:
                manifest = store.manifest(name, version)
            except EnactError as error:
                warnings.append(f"{name} is left out: {error.message}")
                return None
            self._manifests[key] = Installed(name, version, manifest, store)
        return self._manifests[key]


def _listed(store: Store, warnings: list[str]) -> tuple[dict[str, str], list[str]]:
    """All tools of a store, and those of them that clients see."""
    try:
        pins = store.tools().tools
    except EnactError as error:
        warnings.append(error.message)
        pins = {}
    try:
        mcp = store.mcp()
    except EnactError as error:
        warnings.append(error.message)
        return pins, []
    if mcp.dangling:
        warnings.append(
            f"the active toolset {mcp.active!r} does not exist, so no installed tool is shown; "
            "run: fleet-agentpack mcp use --all"
        )
    shown = mcp.visible()
    return {**shown, **pins, **shown}, list(shown)
