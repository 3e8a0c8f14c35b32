"""Finds definitions on disk in every layout and keeps what was parsed while files stay the same."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from fleet_agentpack.forge.definition import (
    SKILL_FILES,
    SUFFIXES,
    WHOLE_DIRECTORY,
    Layout,
    Proof,
    Summary,
    path_name,
    summarise,
)
from fleet_agentpack.forge.names import MAX_MANIFEST_BYTES, Kind, Source, is_usable_name
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.stamps import Remembered, Stamp, settled, stamp, stamp_of

T = TypeVar("T")
Progress = Callable[[float, float | None, str], None]

REPORT_EVERY = 500
UNUSABLE_NAME = "its name cannot be asked for: use letters, digits, `-`, `_`, `.` and `:`"
DEEPEST = 5  # levels below a directory of definitions
NOT_SEARCHED = frozenset(("node_modules",))
NOT_IN_A_SKILL = NOT_SEARCHED | frozenset(
    ("assets", "reference", "references", "resources", "scripts", "templates")
)
SHELVES = frozenset((".curated", ".experimental", ".system"))  # of skills, as Codex has them

MOST_KEPT = 20  # entries of a directory; the names of a larger one take more memory than time
ABSENT, UNCERTAIN = -1, 0  # in the place of a stamp


@dataclass(frozen=True)
class DefinitionFolder:
    """A directory of definitions of one kind, or one file; `owner` is the plugin it belongs to."""

    kind: Kind
    root: Path
    source: Source
    owner: str | None = None
    aliases: tuple[str, ...] = ()  # other names of the owner
    within: Path | None = None  # symbolic links may also lead here
    layout: Layout = "fractary"
    version: str = ""  # of the plugin, for definitions without one of their own
    in_plugin: bool = False
    proof: Proof = "place"


@dataclass(frozen=True)
class ReadManifest:
    """The fields of a manifest; none where there is a problem."""

    fields: Mapping[str, Any]
    problem: str | None = None


class Entry(NamedTuple):
    """An entry of a directory, links followed; the same for all directories that have it."""

    name: str
    is_directory: bool
    is_link: bool


@dataclass(frozen=True, slots=True)  # there may be tens of thousands
class DefinitionFile:
    """The file of a definition, not yet read."""

    name: str
    version: str | None  # where the path names one
    location: str
    folder: DefinitionFolder
    stamp: int  # equals no other while a further change might not show
    problem: str | None = None

    @property
    def path(self) -> Path:
        """Where it is."""
        return Path(self.location)

    @property
    def around(self) -> tuple[str, ...]:
        """The directories around it, outermost first; a program's without its dot."""
        *around, file = self.location.split("/")
        whole = file.partition(".")[0] in WHOLE_DIRECTORY
        return tuple(part.lstrip(".") for part in (around[1:-1] if whole else around[1:]))


@dataclass(frozen=True, slots=True)
class IndexedDefinition:
    """The file of a definition and what a list shows of it."""

    file: DefinitionFile
    summary: Summary


class DefinitionIndex:
    """What all folders contain; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[DefinitionFolder, dict[str, IndexedDefinition]] = {}
        self._entries: dict[str, tuple[int, tuple[Entry, ...]]] = {}
        self._values: dict[Hashable, tuple[object, dict[str, int]]] = {}
        self._alike: dict[tuple[Entry, ...], tuple[Entry, ...]] = {}  # one for all directories
        self._manifests: dict[Path, Remembered[ReadManifest]] = {}

    def find(self, folder: DefinitionFolder, name: str) -> list[DefinitionFile]:
        """Every file of a name in a folder of forge's own layout, one for each version."""
        return _preferred(_Scan(self, folder, {}, name).files())

    def names(self, folder: DefinitionFolder) -> list[str]:
        """The names in a folder of forge's own layout."""
        return sorted({file.name for file in _Scan(self, folder, {}).files()})

    def listing(
        self, folder: DefinitionFolder, progress: Progress | None = None
    ) -> list[IndexedDefinition]:
        """Everything in a folder with its summary; only new and changed files are read."""
        # Held while files are read: a second caller waits for the result instead of reading too.
        with self._lock:
            before = self._kept.get(folder, {})
            scan = _Scan(self, folder, before)
            files = _preferred(scan.files()) if folder.layout == "fractary" else list(scan.tree())
            kept: dict[str, IndexedDefinition] = {}
            for done, file in enumerate(files):
                known = before.get(file.location)
                if known is None or known.file is not file:
                    if progress and done % REPORT_EVERY == 0:
                        progress(done, len(files), f"reading {folder.kind}s")
                    known = _read(file)
                kept[file.location] = known
            self._kept[folder] = kept
            return [each for each in kept.values() if each.summary.counts]

    def entries(self, directory: str) -> tuple[Entry, ...]:
        """What is in a directory, sorted by name."""
        seen = _stamp(directory)
        known = self._entries.get(directory)
        if known is None or known[0] != seen or seen == UNCERTAIN:
            found = _sorted_entries(directory)
            if len(found) > MOST_KEPT:
                return found
            known = self._entries[directory] = seen, self._alike.setdefault(found, found)
        return known[1]

    def kept(self, key: Hashable, make: Callable[[], tuple[T, Iterable[str]]]) -> T:
        """A value made from many directories and files, made again when one of them has changed."""
        known = self._values.get(key)
        if known is None or any(
            before == UNCERTAIN or _stamp(path) != before for path, before in known[1].items()
        ):
            value, paths = make()
            known = self._values[key] = value, {path: _stamp(path) for path in paths}
        return cast("T", known[0])

    def manifest(self, path: Path) -> ReadManifest:
        """What a manifest says, or why it cannot be read."""

        def look() -> ReadManifest:
            try:
                return ReadManifest(read_mapping(path, MAX_MANIFEST_BYTES))
            except FileNotFoundError:
                return ReadManifest({}, "not found")
            except UnparsableError as error:
                return ReadManifest({}, str(error))

        return self._manifests.setdefault(path, Remembered()).get(look, path)


class FilesByName:
    """Looks up files by their names; made for one call, since definitions refer to each other."""

    def __init__(self, index: DefinitionIndex) -> None:
        self._index = index
        self._found: dict[tuple[DefinitionFolder, str], list[DefinitionFile]] = {}
        self._tables: dict[DefinitionFolder, dict[str, list[DefinitionFile]]] = {}

    def of(self, folder: DefinitionFolder, name: str) -> Sequence[DefinitionFile]:
        """The files of a name in a folder; where files name themselves, all are read once."""
        if folder.layout != "fractary":
            return self._table(folder).get(name, ())
        key = (folder, name)
        if key not in self._found:
            self._found[key] = self._index.find(folder, name)
        return self._found[key]

    def names(self, folder: DefinitionFolder) -> Iterable[str]:
        """Every name in a folder."""
        own = folder.layout == "fractary"
        return self._index.names(folder) if own else self._table(folder)

    def _table(self, folder: DefinitionFolder) -> Mapping[str, list[DefinitionFile]]:
        if folder not in self._tables:
            table = self._tables[folder] = {}
            for each in self._index.listing(folder):
                table.setdefault(each.file.name, []).append(each.file)
        return self._tables[folder]


@dataclass(frozen=True)
class _Scan:
    """One walk over a folder; for a file that has not changed it yields the object from before."""

    index: DefinitionIndex
    folder: DefinitionFolder
    before: Mapping[str, IndexedDefinition]
    only: str | None = None

    def files(self, below: Path | None = None, prefix: str = "") -> Iterator[DefinitionFile]:
        """The definitions in a directory; `@scope` directories hold one or two levels more."""
        only, directory = self.only, below or self.folder.root
        for entry in _entries(directory):
            if entry.name.startswith("."):
                continue
            full = prefix + entry.name
            if only is not None and not (full.startswith(only) or only.startswith(f"{full}/")):
                continue
            if entry.name.startswith("@") and not prefix:
                yield from self.files(directory / entry.name, f"{full}/")
                continue
            file = self._file(entry, prefix)
            if file:
                yield file
            elif prefix.count("/") == 1 and _is_directory(entry):
                yield from self.files(directory / entry.name, f"{full}/")

    def _file(self, entry: os.DirEntry[str], prefix: str) -> DefinitionFile | None:
        is_directory = _is_directory(entry)
        stem, dot, ending = entry.name.rpartition(".")
        stem, suffix = (entry.name, "") if is_directory or not stem else (stem, dot + ending)
        if not is_directory and suffix not in SUFFIXES:
            return None
        name, _, version = stem.partition("@")
        if self.only is not None and prefix + name != self.only:
            return None
        location = entry.path
        if is_directory:
            inside = (f"{location}/{self.folder.kind}{each}" for each in SUFFIXES)
            location = next(filter(os.path.lexists, inside), "")
        name, linked = prefix + name, entry.is_symlink()
        return self._seen(location, name, version or None, linked=linked) if location else None

    def tree(self) -> Iterator[DefinitionFile]:
        """The definitions at any depth of a directory; or the one file that the folder is."""
        root = self.folder.root
        if root.is_file():
            name = path_name(self.folder.layout, (root.name,), root.parent.name)
            single = name and self._seen(str(root), name, None, linked=True)
            if single:
                yield single
        else:
            yield from self._below(str(root), ())

    def _below(self, directory: str, parts: tuple[str, ...]) -> Iterator[DefinitionFile]:
        entries = self.index.entries(directory)
        in_skill = self.folder.layout == "skills" and any(e.name in SKILL_FILES for e in entries)
        for entry in entries:
            if entry.name.startswith(".") and not self._is_shelf(entry):
                continue
            location, inner = f"{directory}/{entry.name}", (*parts, entry.name)
            if entry.is_directory:
                deep = len(inner) > DEEPEST or self.folder.proof == "alone"
                skipped = entry.name in (NOT_IN_A_SKILL if in_skill else NOT_SEARCHED)
                if not deep and not skipped and self._may_enter(location, entry):
                    yield from self._below(location, inner)
                continue
            name = path_name(self.folder.layout, inner, self.folder.root.name)
            found = self._seen(location, name, None, linked=entry.is_link) if name else None
            if found:
                yield found

    def _is_shelf(self, entry: Entry) -> bool:
        return self.folder.layout == "skills" and entry.name in SHELVES

    def _may_enter(self, location: str, entry: Entry) -> bool:
        """A linked directory is entered when it leads to somewhere inside, and not back up."""
        if not entry.is_link:
            return True
        around = os.path.realpath(Path(location).parent)
        loops = Path(around).is_relative_to(os.path.realpath(location))
        return not loops and is_inside(location, *_bounds(self.folder))

    def _seen(
        self, location: str, name: str, version: str | None, *, linked: bool
    ) -> DefinitionFile | None:
        try:
            status = os.lstat(location)
        except OSError:
            return None
        problem = None
        if linked or stat.S_ISLNK(status.st_mode):
            problem, status = _followed(self.folder, location, status)
        seen = _packed(stamp_of(status))
        known = self.before.get(location)
        certain = known and known.file.stamp != UNCERTAIN
        if known and certain and (known.file.stamp, known.file.problem) == (seen, problem):
            return known.file
        return DefinitionFile(name, version, location, self.folder, seen, problem)


def _packed(found: Stamp) -> int:
    """A stamp in an eighth of its size; `UNCERTAIN` while a further change might not show."""
    return hash(found) if settled(found) else UNCERTAIN


def _stamp(path: str) -> int:
    found = stamp(path)
    return ABSENT if found is None else _packed(found)


def _read(file: DefinitionFile) -> IndexedDefinition:
    folder = file.folder
    if file.problem:
        summary = Summary(file.version or "", problem=file.problem)
    else:
        summary = summarise(
            file.path,
            folder.kind,
            file.version,
            folder.layout,
            proof=folder.proof,
            plugin_version=folder.version,
        )
    named = replace(file, name=summary.name) if summary.name else file
    if not summary.problem and summary.counts and not is_usable_name(named.name, folder.kind):
        summary = replace(summary, problem=UNUSABLE_NAME)
    return IndexedDefinition(named, summary)


def _preferred(files: Iterator[DefinitionFile]) -> list[DefinitionFile]:
    """One file for each name and version: in a directory before bare, Markdown before YAML."""
    best: dict[tuple[str, str | None], DefinitionFile] = {}
    for file in files:
        key = (file.name, file.version)
        if key not in best or _rank(file) < _rank(best[key]):
            best[key] = file
    return sorted(best.values(), key=lambda file: (file.name, file.version or ""))


def _rank(file: DefinitionFile) -> tuple[bool, int]:
    in_directory = file.path.stem == file.folder.kind
    return not in_directory, SUFFIXES.index(file.path.suffix)


def _followed(
    folder: DefinitionFolder, path: str, status: os.stat_result
) -> tuple[str | None, os.stat_result]:
    """Why a symbolic link is not followed, or None; and the status of what it leads to."""
    if not is_inside(path, *_bounds(folder)):
        return "a symbolic link that points outside its directory", status
    try:
        return None, Path(path).stat()
    except OSError as error:
        return f"a broken symbolic link ({error.strerror})", status


def _bounds(folder: DefinitionFolder) -> list[Path]:
    return [folder.root, *([folder.within] if folder.within else [])]


def _sorted_entries(directory: str) -> tuple[Entry, ...]:
    names = _entries(Path(directory))
    found = [Entry(e.name, _is_directory(e), e.is_symlink()) for e in names]
    return tuple(sorted(found))


def _entries(directory: Path) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symbolic link that leads to itself
        return False


def owned_once(found: Iterable[IndexedDefinition]) -> list[IndexedDefinition]:
    """What a plugin claims is not listed a second time, as nobody's or as its directory's."""
    kept = list(found)
    claimed = {each.file.location for each in kept if each.file.folder.in_plugin}
    return [
        each for each in kept if each.file.folder.in_plugin or each.file.location not in claimed
    ]


def closest(
    place: Sequence[str], files: Iterable[tuple[tuple[str, ...], DefinitionFile]]
) -> DefinitionFile | None:
    """Of files and what is around them, the one in these directories with the fewest others."""
    matching = [(len(around), file) for around, file in files if _is_around(place, around)]
    return min(matching, key=itemgetter(0))[1] if matching else None


def _is_around(place: Sequence[str], around: tuple[str, ...]) -> bool:
    rest = iter(around)
    return all(part in rest for part in place)
