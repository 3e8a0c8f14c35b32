"""The directories that definitions are in: forge's own, each program's, and those of plugins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fleet_agentpack.forge.config.addresses import path_in_market
from fleet_agentpack.forge.config.configuration import Configuration
from fleet_agentpack.forge.definitions.definition import version_of
from fleet_agentpack.forge.definitions.dialects import MARKETPLACE, PLUGIN_MANIFEST, SKILL_FILES
from fleet_agentpack.forge.definitions.index import DefinitionFolder, DefinitionIndex, ReadManifest
from fleet_agentpack.forge.definitions.repository import (
    COMPONENTS,
    MANIFESTS,
    MOST_DIRECTORIES,
    Repository,
    hidden_directories,
    linked_outside,
    look_through,
    manifest_of,
    plugin_folders,
    program_folders,
)
from fleet_agentpack.forge.names import KINDS, NO_VERSION, Format, Kind, Scope, is_usable_name
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.shapes import objects

MARKETPLACES = (MARKETPLACE, ".github/plugin/marketplace.json")
INSTALLED = "plugins/installed_plugins.json"


@dataclass(frozen=True)
class FoundPlugin:
    """A plugin on disk, however it came there."""

    name: str
    version: str
    scope: Scope
    folder: Path
    manifest: Mapping[str, Any]
    format: Format
    aliases: tuple[str, ...] = ()
    only_listed: bool = False  # only the parts that its entry lists belong to it
    problem: str | None = None  # why its manifest cannot be read

    def parts(self, component: str) -> Iterator[Path]:
        """The directories and files of a component, by convention and as the manifest says."""
        listed = [self.folder / each for each in listed_paths(self.manifest.get(component))]
        yield from (each for each in listed if is_inside(each, self.folder))
        usual = self.folder / component
        if not self.only_listed and usual not in listed:
            yield usual
        if component == "skills" and not self.only_listed:
            yield from (self.folder / name for name in SKILL_FILES[:1] if not usual.is_dir())


@dataclass(frozen=True)
class _Survey:
    """What a scope holds."""

    plugins: tuple[FoundPlugin, ...]
    folders: Mapping[Kind, tuple[DefinitionFolder, ...]]
    is_cut: bool = False
    strays: tuple[Path, ...] = ()


class Folders:
    """Where to look; made for one call, over an index that remembers."""

    def __init__(self, configuration: Configuration, index: DefinitionIndex) -> None:
        self._configuration = configuration
        self._directories = configuration.directories
        self._index = index

    @cached_property
    def repository(self) -> Repository:
        """What the project holds; a home is not searched as if it were one."""
        root, home = self._directories.root, self._directories.home
        if root is None or home.is_relative_to(root):
            return Repository()
        return look_through(root, self._index)

    @property
    def warnings(self) -> list[str]:
        """What was left out."""
        bases = [self._base(scope) for scope in self._scopes()]
        strays = [stray for base in bases for stray in linked_outside(base)]
        strays += [stray for scope in self._scopes() for stray in self._survey(scope).strays]
        shown = [self._directories.shown(each) for each in dict.fromkeys(strays)]
        said = [f"{each}: a symbolic link that points outside; left out" for each in shown]
        if any(self._survey(scope).is_cut for scope in self._scopes()):
            said.append(f"Only the first {MOST_DIRECTORIES:,} directories were searched")
        return said

    def of(self, kind: Kind, scope: Scope) -> tuple[DefinitionFolder, ...]:
        """A scope's own directories, then those of its plugins, then loose collections."""
        return self._survey(scope).folders[kind]

    def plugins(self, scope: Scope) -> tuple[FoundPlugin, ...]:
        """Every plugin of a scope, each directory once."""
        return self._survey(scope).plugins

    def _survey(self, scope: Scope) -> _Survey:
        if scope == "local" and self._directories.root is None:
            return _Survey((), dict.fromkeys(KINDS, ()))
        own = [str(self._own(kind, scope)) for kind in KINDS]
        return self._index.kept((scope, self._base(scope), *own), lambda: self._look(scope))

    def _look(self, scope: Scope) -> tuple[_Survey, list[str]]:
        """Everything in a scope, and the places where a change would change it."""
        found: dict[tuple[str, str], FoundPlugin] = {}
        for plugin in self._local_plugins() if scope == "local" else self._global_plugins():
            found.setdefault((os.path.realpath(plugin.folder), plugin.name), plugin)
        plugins = tuple(found.values())
        folders = {kind: tuple(self._folders(kind, scope, plugins)) for kind in KINDS}
        bases = [self._base(scope), *self._roots(scope)]
        depends = [*bases, *(each for base in bases for each in base.glob("@*"))]
        for plugin in plugins:
            depends += [plugin.folder, *(plugin.folder / name for name in MANIFESTS)]
        if scope == "local":
            depends += [self._directories.project.parent / name for name in MARKETPLACES]
        searched = self.repository if scope == "local" else Repository()
        survey = _Survey(plugins, folders, searched.is_cut, searched.strays)
        return survey, [*map(str, depends), *searched.looked_at]

    def _folders(
        self, kind: Kind, scope: Scope, plugins: Iterable[FoundPlugin]
    ) -> Iterator[DefinitionFolder]:
        within = self._within(scope)
        yield DefinitionFolder(kind, self._own(kind, scope), scope, within=within)
        if scope == "global":
            yield from self._of_home(kind)
        collections = self.repository.collections if scope == "local" else ()
        loose = [
            DefinitionFolder(
                kind,
                each.root,
                scope,
                owner=each.package,
                within=within,
                layout=each.layout,
                proof=each.proof,
            )
            for each in collections
            if each.kind == kind
        ]
        own = [each for each in loose if each.proof == "place" and not each.owner]
        yield from own
        for plugin in plugins:
            for component, (part_kind, layout) in COMPONENTS.items():
                for root in plugin.parts(component) if part_kind == kind else ():
                    yield DefinitionFolder(
                        kind,
                        root,
                        scope,
                        owner=plugin.name,
                        aliases=plugin.aliases,
                        within=within,
                        layout=layout,
                        version=plugin.version,
                        in_plugin=True,
                    )
        yield from (each for each in loose if each not in own)

    def _own(self, kind: Kind, scope: Scope) -> Path:
        """Where forge keeps its own definitions."""
        configuration = self._configuration
        shared = configuration.global_root / f"{kind}s"
        return configuration.local_root(kind) if scope == "local" else shared

    def _roots(self, scope: Scope) -> list[Path]:
        """The directories that programs keep their things in."""
        if scope == "local":
            return [self._directories.project.parent / ".claude/skills"]
        homes = {self._home_of(name) for name in self._in_home}
        parts = [each / name for each in homes for name in ("agents", "skills", "commands")]
        return [self._directories.home, *homes, *parts, self._directories.claude / INSTALLED]

    def _local_plugins(self) -> Iterator[FoundPlugin]:
        if self._directories.root is None:
            return
        for base in (self._base("local"), self._directories.root / ".claude/skills"):
            for name, folder in plugin_folders(base, linked=True):
                yield self._plugin(folder, "local", name)
        for folder in self.repository.plugins:
            yield self._plugin(folder, "local", folder.name)
        for name in MARKETPLACES:
            yield from self._of_marketplace(self._directories.root, name)

    def _global_plugins(self) -> Iterator[FoundPlugin]:
        for base in (self._base("global"), self._directories.claude / "skills"):
            for name, folder in plugin_folders(base, linked=True):
                yield self._plugin(folder, "global", name)
        plugins = self._index.manifest(self._directories.claude / INSTALLED).fields.get("plugins")
        for key, rows in plugins.items() if isinstance(plugins, dict) else ():
            name = str(key).partition("@")[0]
            for row in objects(rows if isinstance(rows, list) else [rows]):
                place, project = row.get("installPath"), row.get("projectPath")
                elsewhere = project is not None and project != str(self._directories.root)
                if not isinstance(place, str) or elsewhere or not os.path.isabs(place):  # noqa: PTH117
                    continue
                if (folder := Path(place)).is_dir():
                    yield self._plugin(folder, "global", name, {"version": row.get("version")})

    def _plugin(
        self, folder: Path, scope: Scope, known_as: str, entry: Mapping[str, Any] | None = None
    ) -> FoundPlugin:
        """The plugin in a directory; what its manifest leaves out, an entry for it may say."""
        path = manifest_of(folder)
        read = self._index.manifest(path) if path else ReadManifest({})
        manifest = {**(entry or {}), **read.fields}
        name = manifest.get("name")
        given = str(name) if is_usable_name(name) else known_as
        is_claude = path is None or path.parent.name == ".claude-plugin"
        other = folder / PLUGIN_MANIFEST
        also = self._index.manifest(other).fields if path and not is_claude else {}
        names = [known_as, also.get("name")]
        return FoundPlugin(
            name=given,
            version=version_of(manifest) or (NO_VERSION if is_claude else ""),
            scope=scope,
            folder=folder,
            manifest=manifest,
            format="claude-plugin" if is_claude else "fractary",
            aliases=tuple(each for each in names if isinstance(each, str) and each != given),
            only_listed=path is None and any(manifest.get(each) for each in COMPONENTS),
            problem=read.problem,
        )

    def _of_marketplace(self, root: Path, name: str) -> Iterator[FoundPlugin]:
        """The plugins of a marketplace that are in the same repository."""
        market = self._index.manifest(root / name).fields
        for entry in objects(market.get("plugins")):
            inner = path_in_market(market, entry.get("source"))
            if inner is None or not is_usable_name(entry.get("name")):
                continue
            folder = root / inner
            if folder.is_dir() and is_inside(folder, root):
                yield self._plugin(folder, "local", entry["name"], entry)

    def _of_home(self, kind: Kind) -> Iterator[DefinitionFolder]:
        """The directories that programs read for every project."""
        home = self._directories.home
        for root, each_kind, layout in program_folders(home, self._in_home, self._home_of):
            if each_kind == kind:
                yield DefinitionFolder(kind, root, "global", within=home, layout=layout)

    @cached_property
    def _in_home(self) -> list[str]:
        """The directories of the programs of this user."""
        there = hidden_directories(self._index.entries(str(self._directories.home)))
        programs = [each for each in there if each != ".github"]
        return [*dict.fromkeys((".claude", ".codex", *programs))]

    def _home_of(self, place: str) -> Path:
        home = self._directories.home
        program, _, rest = place.partition("/")
        moved = {".claude": self._directories.claude, ".codex": self._directories.codex}
        return moved.get(program, home / program) / rest

    def _scopes(self) -> tuple[Scope, ...]:
        return ("local", "global") if self._directories.root else ("global",)

    def _base(self, scope: Scope) -> Path:
        local = scope == "local"
        return (self._directories.project if local else self._configuration.global_root) / "plugins"

    def _within(self, scope: Scope) -> Path:
        return (
            self._directories.project.parent
            if scope == "local"
            else self._configuration.global_root
        )


def listed_paths(value: object) -> Iterator[str]:
    """The relative paths in a manifest's field for a component: a text, a list, or a table."""
    if isinstance(value, str):
        value = [value]
    elif isinstance(value, Mapping):
        value = [each.get("source") for each in value.values() if isinstance(each, Mapping)]
    for each in value if isinstance(value, list) else ():
        if isinstance(each, str) and each.startswith("./"):
            yield os.path.normpath(each)
