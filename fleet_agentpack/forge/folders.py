"""The directories that hold definitions: forge's own, each program's, a plugin's, loose ones."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fleet_agentpack.forge.configuration import Configuration
from fleet_agentpack.forge.definition import (
    MARKETPLACE,
    PLUGIN_MANIFEST,
    SKILL_FILES,
    Layout,
    Proof,
    version_of,
)
from fleet_agentpack.forge.index import DefinitionFolder, DefinitionIndex, Entry, ReadManifest
from fleet_agentpack.forge.names import (
    KINDS,
    NO_VERSION,
    Format,
    Kind,
    Scope,
    is_usable_name,
    path_in_market,
)
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.shapes import objects

MANIFESTS = ("plugin.json", PLUGIN_MANIFEST, "plugin.yaml")


def plugin_folders(base: Path, *, linked: bool = False) -> list[tuple[str, Path]]:
    """Name and directory of each plugin below `plugins`, scoped ones included, sorted by name.

    A linked directory is somebody's working copy: it is read where that is asked for, and never
    installed over.
    """
    found = []
    for folder in _folders(base, linked=linked):
        if folder.name.startswith("@"):
            found += [
                (f"{folder.name}/{inner.name}", inner)
                for inner in _folders(folder, linked=linked)
                if manifest_of(inner)
            ]
        elif manifest_of(folder):
            found.append((folder.name, folder))
    return sorted(found)


def manifest_of(folder: Path) -> Path | None:
    """The manifest in a plugin's directory; a directory without one is not a plugin."""
    for name in MANIFESTS:
        path = folder / name
        if path.is_file() and is_inside(path, folder):
            return path
    return None


def linked_outside(base: Path) -> list[Path]:
    """The links below `plugins` that lead out of the project or the user's directory."""
    around = _around(base)
    links = [each for each in _entries(base) if each.is_symlink()]
    return sorted(base / each.name for each in links if not is_inside(each.path, around))


def _folders(base: Path, *, linked: bool) -> list[Path]:
    around = _around(base)
    return [
        base / each.name
        for each in _entries(base)
        if each.is_dir(follow_symlinks=False)
        or (linked and each.is_symlink() and each.is_dir() and is_inside(each.path, around))
    ]


def _around(base: Path) -> Path:
    """The project of `.fractary/plugins`, or the user's own directory."""
    top = next((each for each in base.parents if each.name.startswith(".")), base.parent)
    return top.parent


def _entries(base: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(base) as entries:
            return [each for each in entries if not each.name.startswith(".")]
    except OSError:
        return []


MOST_DIRECTORIES = 10_000  # searched, those nearest to the project's root first
DEEPEST = 8
DEEPEST_LOOSE = 2  # subagents in directories of any name, as in a collection by category

# Where programs look, below a project, a package of it, or the home.
PROGRAM_FOLDERS: tuple[tuple[str, Kind, Layout], ...] = (
    (".claude/agents", "agent", "agents"),
    (".claude/skills", "tool", "skills"),
    (".claude/commands", "tool", "commands"),
    (".codex/agents", "agent", "codex"),
    (".github/agents", "agent", "copilot"),
    (".copilot/agents", "agent", "copilot"),
)
COMPONENTS: dict[str, tuple[Kind, Layout]] = {
    "agents": ("agent", "agents"),
    "tools": ("tool", "fractary"),
    "skills": ("tool", "skills"),
    "commands": ("tool", "commands"),
}
_NOT_SEARCHED = frozenset(
    {
        *("node_modules", "vendor", "site-packages", "venv", "env", "__pycache__"),
        *("dist", "build", "out", "target", "coverage"),
    }
)
# What is in these is looked at last: of two with one name, the other keeps it.
_RETIRED_OR_SAMPLE = frozenset(
    {
        *("archive", "archived", "archives", "backup", "backups", "deprecated", "legacy", "old"),
        *("examples", "fixtures", "samples", "templates", "test", "tests"),
    }
)


@dataclass(frozen=True)
class Collection:
    """A directory of definitions that belongs to no plugin."""

    kind: Kind
    layout: Layout
    root: Path
    package: str | None  # the part of the project that it is in, None for the project itself
    proof: Proof


@dataclass(frozen=True)
class Repository:
    """What was found in a project."""

    plugins: tuple[Path, ...] = ()
    collections: tuple[Collection, ...] = ()
    is_cut: bool = False  # whether parts of a very large project were not searched
    looked_at: tuple[str, ...] = ()  # a change in one of these directories may change the rest
    strays: tuple[Path, ...] = ()  # links to directories outside of the project


def look_through(root: Path, index: DefinitionIndex) -> Repository:
    """Every plugin and every directory of definitions in a project."""
    plugins: list[Path] = []
    collections: list[Collection] = []
    looked_at: list[str] = []
    strays: list[Path] = []
    waiting, last, seen = deque([(root, 0)]), deque[tuple[Path, int]](), 0
    while (waiting or last) and seen < MOST_DIRECTORIES:
        directory, depth = (waiting or last).popleft()
        seen += 1
        names = {each.name: each for each in index.entries(str(directory))}
        hidden = hidden_directories(names.values())
        looked_at += [str(directory), *(f"{directory}/{name}" for name in hidden)]
        package = None if directory == root else directory.name
        for inner, kind, layout in program_folders(directory, hidden):
            if is_inside(inner, root):
                collections.append(Collection(kind, layout, inner, package, "place"))
            else:
                strays.append(inner)
        is_plugin = _has_parts({*names}) and manifest_of(directory) is not None
        if is_plugin:
            plugins.append(directory)
        elif SKILL_FILES[0] in names:
            around = None if root in (directory, directory.parent) else directory.parent.name
            collections.append(Collection("tool", "skills", directory, around, "place"))
            continue
        if depth <= DEEPEST_LOOSE and any(_may_be_loose(each) for each in names.values()):
            collections.append(Collection("agent", "agents", directory, package, "alone"))
        for name, entry in names.items():
            part = COMPONENTS.get(name) if name != "tools" else None
            skipped = name.startswith(".") or name in _NOT_SEARCHED
            if not entry.is_directory or entry.is_link or skipped:
                continue
            if part and not is_plugin:
                kind, layout = part
                proof: Proof = "place" if layout == "skills" else "header"
                collections.append(Collection(kind, layout, directory / name, package, proof))
            elif not part and depth < DEEPEST:
                queue = last if name in _RETIRED_OR_SAMPLE else waiting
                queue.append((directory / name, depth + 1))
    is_cut = bool(waiting or last)
    return Repository(tuple(plugins), tuple(collections), is_cut, tuple(looked_at), tuple(strays))


def hidden_directories(entries: Iterable[Entry]) -> list[str]:
    """The directories that may be a program's, git's own apart."""
    found = (each.name for each in entries if each.is_directory and each.name.startswith("."))
    return [name for name in found if name != ".git"]


def program_folders(
    directory: Path, hidden: Sequence[str], place: Callable[[str], Path] | None = None
) -> Iterator[tuple[Path, Kind, Layout]]:
    """The directories that programs read, where they exist.

    Agent Skills are read by ever more programs: every `.NAME/skills` counts.
    """
    known = [each for each in PROGRAM_FOLDERS if each[0].partition("/")[0] in hidden]
    for name in hidden:
        if name != ".claude":
            known.append((f"{name}/skills", "tool", "skills"))
    for path, kind, layout in known:
        root = place(path) if place else directory / path
        if root.is_dir():
            yield root, kind, layout


def _may_be_loose(entry: Entry) -> bool:
    stem, _, ending = entry.name.rpartition(".")
    return ending == "md" and not entry.is_directory and not stem.isupper()


def _has_parts(names: set[str]) -> bool:
    """A `plugin.json` alone says little: many programs have one."""
    return ".claude-plugin" in names or bool(
        names & {*MANIFESTS} and names & {*COMPONENTS, "hooks"}
    )


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
                yield self.plugin(folder, "local", name)
        for folder in self.repository.plugins:
            yield self.plugin(folder, "local", folder.name)
        for name in MARKETPLACES:
            yield from self._of_marketplace(self._directories.root, name)

    def _global_plugins(self) -> Iterator[FoundPlugin]:
        for base in (self._base("global"), self._directories.claude / "skills"):
            for name, folder in plugin_folders(base, linked=True):
                yield self.plugin(folder, "global", name)
        plugins = self._index.manifest(self._directories.claude / INSTALLED).fields.get("plugins")
        for key, rows in plugins.items() if isinstance(plugins, dict) else ():
            name = str(key).partition("@")[0]
            for row in objects(rows if isinstance(rows, list) else [rows]):
                place, project = row.get("installPath"), row.get("projectPath")
                elsewhere = project is not None and project != str(self._directories.root)
                if not isinstance(place, str) or elsewhere or not os.path.isabs(place):  # noqa: PTH117
                    continue
                if (folder := Path(place)).is_dir():
                    yield self.plugin(folder, "global", name, {"version": row.get("version")})

    def plugin(
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
                yield self.plugin(folder, "local", entry["name"], entry)

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
