"""Installed tools as callable entries with MCP names; a broken one does not hide the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_agentpack.enact import names
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import Entry
from fleet_agentpack.enact.results import BrokenTool
from fleet_agentpack.enact.tool_lists import ToolsFile
from fleet_agentpack.kit.stamps import Stamp, certain_stamp, stamp

if TYPE_CHECKING:
    from fleet_agentpack.enact.manifest import Manifest, Script
    from fleet_agentpack.enact.receipt import Receipt
    from fleet_agentpack.enact.runner import Runnable
    from fleet_agentpack.enact.store import Store


@dataclass(frozen=True, eq=False)
class Projected:
    """One entry of an installed tool."""

    mcp_name: str
    entry: Entry
    script: Script | None
    installed: Installed

    def listed(self) -> object:
        """Everything that a client's list of tools shows of it."""
        tool, script = self.installed.manifest, self.script
        described = replace(script, name=None, command="") if script else tool.description
        return self.mcp_name, described, tool.network, tool.variables, tool.build_network


@dataclass(frozen=True, eq=False)
class Installed:
    """An installed tool that can be read."""

    name: str
    version: str
    manifest: Manifest
    store: Store

    def runnable(self, receipt: Receipt) -> Runnable:
        """What runs, once its files were compared with its receipt."""
        from fleet_agentpack.enact.runner import Runnable

        folder = self.store.folder(self.name, self.version).resolve()
        rest = (receipt.is_builtin, receipt.has, receipt.image, receipt.digest)
        return Runnable(self.manifest, folder, *rest)


@dataclass(frozen=True, eq=False)
class Projection:
    """What clients see, by MCP name, and what is wrong."""

    callables: Mapping[str, Projected]
    installed: Mapping[str, Installed]  # everything readable, also outside the toolset
    broken: tuple[BrokenTool, ...]
    warnings: tuple[str, ...]
    sources: Mapping[str, Stamp | None]  # the files that it was read from, as they were

    def listed(self) -> list[object]:
        """Everything that a client's list of tools shows."""
        return [each.listed() for each in self.callables.values()]

    @cached_property
    def names(self) -> Mapping[str, Mapping[str | None, str]]:
        """The MCP names of every tool that clients see, by script."""
        found: dict[str, dict[str | None, str]] = {}
        for each in self.callables.values():
            script = each.script.name if each.script else None
            found.setdefault(each.installed.name, {})[script] = each.mcp_name
        return found


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

        Until a client has asked for the tools, no manifest is read and any change counts.
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
        seen, before = self._stamp(), self._projection
        if before is not None and seen == self._seen:
            return before
        built = self._build()
        if before is not None and built.broken and any(s.unfinished() for s in self._stores):
            return before  # a change under way has moved a tool aside, and will put it back
        self._projection = built
        self._seen = seen[0], list(self._folders.values())
        if before is not None and before.listed() != built.listed():
            self._revision += 1
        return built

    def sources(self) -> Mapping[str, Stamp | None]:
        """The files whose change may change what clients see, as they were when last read."""
        if self._projection is not None:
            return self._projection.sources
        return _stamps(path for store in self._stores for path in store.sources())

    def _stamp(self) -> tuple[object, list[Stamp | None]]:
        return [store.stamp() for store in self._stores], [stamp(path) for path in self._folders]

    def _build(self) -> Projection:
        warnings: list[str] = []
        installed: dict[str, Installed] = {}
        broken: list[BrokenTool] = []
        visible: dict[str, None] = {}
        self._folders = {}
        sources: dict[str, Stamp | None] = {}
        for store in self._stores:
            sources |= _certain(_stamps(store.sources()))
            versions, shown, wrong = _pins(store)
            warnings += wrong
            for name, version in versions.items():
                folder = str(store.folder(name, version))
                self._folders[folder] = stamp(folder)
                found = _stamps(store.sources_of(name, version))
                sources |= _certain(found)
                try:
                    installed[name] = self._load(store, name, version, (*found.values(),))
                except EnactError as error:
                    broken.append(BrokenTool(name, version, error))
            visible.update(dict.fromkeys(name for name in shown if name in installed))
        entries = {
            entry: (installed[name], script)
            for name in visible
            for entry, script in installed[name].manifest.entries().items()
        }
        table = names.build_table(entries, taken=[f"enact__{each}" for each in names.META_TOOLS])
        callables = {
            mcp_name: Projected(mcp_name, entry, entries[entry][1], entries[entry][0])
            for mcp_name, entry in sorted(table.entries.items())
        }
        warnings += table.collisions
        return Projection(callables, installed, tuple(broken), tuple(warnings), sources)

    def _load(self, store: Store, name: str, version: str, stamps: object) -> Installed:
        if not names.is_version(version):
            raise EnactError.store_corrupt(store.tools_path, f"{version[:80]!r} is not a version")
        key = (store.root, name, version, stamps)
        if key not in self._manifests:
            manifest = store.manifest(name, version)
            self._manifests[key] = Installed(name, version, manifest, store)
        return self._manifests[key]


def pinned_by(project: Path, name: str, store: Store) -> Installed | None:
    """The version that a project pins, if it was installed for this project."""
    try:
        version = ToolsFile.read(project).tools.get(name)
    except EnactError:
        return None  # a project that one merely opens stops no call
    if not version or not names.is_version(version):
        return None
    receipt = store.receipt(name, version)
    if receipt is None or str(project) not in receipt.projects:
        return None
    return Installed(name, version, store.manifest(name, version), store)


def all_pinned_by(project: Path, store: Store) -> Mapping[str, Installed]:
    """What a project pins, as far as it was installed for it."""
    try:
        pins = ToolsFile.read(project).tools
    except EnactError:
        return {}
    found = ((name, pinned_by(project, name, store)) for name in pins)
    return {name: tool for name, tool in found if tool}


def _pins(store: Store) -> tuple[Mapping[str, str], Collection[str], Sequence[str]]:
    """What a store's files say is installed, which of it clients see, and what is wrong."""
    warnings: list[str] = []
    try:
        versions = store.tools().tools
    except EnactError as error:
        versions, warnings = {}, [error.message]
    try:
        mcp = store.mcp()
    except EnactError as error:
        return versions, (), [*warnings, error.message]
    if mcp.dangling:
        warnings.append(
            f"the active toolset {mcp.active!r} does not exist, so clients see no installed tool; "
            "run: fleet-agentpack mcp use --all"
        )
    shown = mcp.visible()
    listed, versions = versions, {**shown, **versions, **shown}
    strange = [name for name in versions if not _is_installable(name)]
    warnings += [
        f"{_named_in(store, name, listed, shown)}: {name[:80]!r} is not a tool's name and is left "
        "out: take it out there, and install the tool under a name that its publisher corrected"
        for name in strange
    ]
    return {n: v for n, v in versions.items() if n not in strange}, shown, warnings


def _named_in(store: Store, name: str, listed: Collection[str], shown: Collection[str]) -> str:
    """The files that name a tool; what clients see is the list itself where it has no file."""
    in_shown = name in shown and (name not in listed or store.mcp_path.exists())
    found = ((store.tools_path, name in listed), (store.mcp_path, in_shown))
    return " and ".join(str(path) for path, holds in found if holds)


def _is_installable(name: str) -> bool:
    return names.is_name(name) and (names.is_builtin(name) or not names.is_reserved(name))


def _stamps(paths: Iterable[Path]) -> dict[str, Stamp | None]:
    return {str(path): stamp(path) for path in paths}


def _certain(found: Mapping[str, Stamp | None]) -> dict[str, Stamp | None]:
    return {path: certain_stamp(each) for path, each in found.items()}
