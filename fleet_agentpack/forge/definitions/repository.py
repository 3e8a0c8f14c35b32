"""Which directories of a project hold plugins, and which hold definitions."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.forge.definitions.dialects import PLUGIN_MANIFEST, SKILL_FILES, Layout, Proof
from fleet_agentpack.forge.definitions.index import DefinitionIndex, Entry
from fleet_agentpack.forge.names import Kind
from fleet_agentpack.kit.paths import is_inside

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
