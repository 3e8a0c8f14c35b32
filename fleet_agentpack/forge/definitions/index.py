"""Finds definitions on disk in both layouts and keeps what was parsed while files stay the same."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.forge.definitions.definition import SUFFIXES, Summary, summarise
from fleet_agentpack.forge.names import Kind, Source
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.stamps import Remembered, Stamp, settled, stamp_of

Progress = Callable[[float, float | None, str], None]

REPORT_EVERY = 500


@dataclass(frozen=True)
class DefinitionFolder:
    """A directory of definitions of one kind; `owner` is the plugin it belongs to."""

    kind: Kind
    root: Path
    source: Source
    owner: str | None = None
    within: Path | None = None  # symbolic links may also lead here


@dataclass(frozen=True)
class DefinitionFile:
    """The file of a definition, not yet read."""

    name: str
    version: str | None  # where the path names one
    path: Path
    location: str  # the same as text
    folder: DefinitionFolder
    stamp: Stamp
    problem: str | None = None


@dataclass(frozen=True)
class IndexedDefinition:
    """The file of a definition and what a list shows of it."""

    file: DefinitionFile
    summary: Summary
    settled: bool  # whether a later change of the file is bound to show


class DefinitionIndex:
    """What all folders contain; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[DefinitionFolder, dict[str, IndexedDefinition]] = {}
        self._inside: dict[str, Remembered[str | None]] = {}

    def find(self, folder: DefinitionFolder, name: str) -> list[DefinitionFile]:
        """Every file of a name in a folder, one for each version."""
        return _preferred(_Scan(self, folder, {}, name).files(folder.root, ""))

    def names(self, folder: DefinitionFolder) -> list[str]:
        """The names in a folder."""
        return sorted({file.name for file in _Scan(self, folder, {}).files(folder.root, "")})

    def listing(
        self, folder: DefinitionFolder, progress: Progress | None = None
    ) -> list[IndexedDefinition]:
        """Everything in a folder with its summary; only new and changed files are read."""
        # Held while files are read: a second caller waits for the result instead of reading too.
        with self._lock:
            before = self._kept.get(folder, {})
            files = _preferred(_Scan(self, folder, before).files(folder.root, ""))
            kept: dict[str, IndexedDefinition] = {}
            for done, file in enumerate(files):
                known = before.get(file.location)
                if known is None or known.file is not file:
                    if progress and done % REPORT_EVERY == 0:
                        progress(done, len(files), f"reading {folder.kind}s")
                    known = _read(file)
                kept[file.location] = known
            self._kept[folder] = kept
            return list(kept.values())

    def definition_inside(self, directory: str, kind: Kind) -> str | None:
        """The file name of the definition in a directory, Markdown first."""

        def look() -> str | None:
            names = {entry.name for entry in _entries(Path(directory))}
            return next((f"{kind}{each}" for each in SUFFIXES if f"{kind}{each}" in names), None)

        return self._inside.setdefault(directory, Remembered()).get(look, directory)


@dataclass(frozen=True)
class _Scan:
    """One walk over a folder; for a file that has not changed it yields the object from before."""

    index: DefinitionIndex
    folder: DefinitionFolder
    before: Mapping[str, IndexedDefinition]
    only: str | None = None

    def files(self, directory: Path, prefix: str) -> Iterator[DefinitionFile]:
        """The definitions in a directory; `@scope` directories hold one or two levels more."""
        only = self.only
        for entry in _entries(directory):
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
            inner = self.index.definition_inside(location, self.folder.kind)
            if inner is None:
                return None
            location = f"{location}/{inner}"
        try:
            status = os.lstat(location)
        except OSError:
            return None
        problem = None
        if entry.is_symlink() or stat.S_ISLNK(status.st_mode):
            problem, status = _followed(self.folder, location, status)
        seen = stamp_of(status)
        known = self.before.get(location)
        if known and known.settled and (known.file.stamp, known.file.problem) == (seen, problem):
            return known.file
        path = Path(location)
        return DefinitionFile(
            prefix + name, version or None, path, location, self.folder, seen, problem
        )


def _read(file: DefinitionFile) -> IndexedDefinition:
    if file.problem:
        summary = Summary(file.version or "", problem=file.problem)
    else:
        summary = summarise(file.path, file.folder.kind, file.version)
    return IndexedDefinition(file, summary, settled(file.stamp))


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
    if not is_inside(path, folder.root, *([folder.within] if folder.within else [])):
        return "a symbolic link that points outside its directory", status
    try:
        return None, Path(path).stat()
    except OSError as error:
        return f"a broken symbolic link ({error.strerror})", status


def _entries(directory: Path) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return [entry for entry in found if not entry.name.startswith(".")]
    except OSError:
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symbolic link that leads to itself
        return False
