"""Finds definitions on disk in both layouts and keeps what was parsed while files stay the same."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.forge.definitions import SUFFIXES, Kind, Source, Summary, summarise
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.stamps import Stamp, settled, stamp, stamp_of

Report = Callable[[float, float | None, str], None]

REPORT_EVERY = 500


@dataclass(frozen=True)
class Shelf:
    """A directory of definitions of one kind; `owner` is the plugin it belongs to."""

    kind: Kind
    root: Path
    source: Source
    owner: str | None = None
    within: Path | None = None  # symbolic links may also lead here


@dataclass(frozen=True)
class Found:
    """A definition's place on disk, not yet read."""

    name: str
    version: str | None  # where the path names one
    path: Path
    location: str  # the same as text
    shelf: Shelf
    stamp: Stamp
    problem: str | None = None


@dataclass(frozen=True)
class Listed:
    """A definition's place together with what a list shows of it."""

    found: Found
    summary: Summary

    @property
    def name(self) -> str:
        """The definition's name."""
        return self.found.name


@dataclass(frozen=True)
class _Kept:
    """A definition as it was when its file was last read."""

    listed: Listed
    settled: bool


class Library:
    """All shelves of a service; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Shelf, dict[str, _Kept]] = {}
        self._inside: dict[str, tuple[Stamp, bool, str | None]] = {}

    def find(self, shelf: Shelf, name: str) -> list[Found]:
        """Every definition of a name on a shelf, one for each version."""
        return _nearest(_Scan(self, shelf, {}, name).folder(shelf.root, ""))

    def names(self, shelf: Shelf) -> list[str]:
        """The names on a shelf."""
        return sorted({found.name for found in _Scan(self, shelf, {}).folder(shelf.root, "")})

    def listing(self, shelf: Shelf, report: Report | None = None) -> list[Listed]:
        """Everything on a shelf with its summary; only new and changed files are read."""
        with self._lock:
            before = self._kept.get(shelf, {})
            places = _nearest(_Scan(self, shelf, before).folder(shelf.root, ""))
            kept: dict[str, _Kept] = {}
            for done, found in enumerate(places):
                known = before.get(found.location)
                if known is None or known.listed.found is not found:
                    if report and done % REPORT_EVERY == 0:
                        report(done, len(places), f"reading {shelf.kind}s")
                    known = _read(found)
                kept[found.location] = known
            self._kept[shelf] = kept
            return [each.listed for each in kept.values()]

    def definition_inside(self, directory: str, kind: Kind) -> str | None:
        """The file name of the definition in a directory, Markdown first."""
        seen = stamp(directory)
        if seen is None:
            return None
        known = self._inside.get(directory)
        if known and known[0] == seen and known[1]:
            return known[2]
        names = {entry.name for entry in _entries(Path(directory))}
        inner = next((f"{kind}{each}" for each in SUFFIXES if f"{kind}{each}" in names), None)
        self._inside[directory] = (seen, settled(seen), inner)
        return inner


class _Scan:
    """One walk over a shelf; a place that has not changed is answered with the old object."""

    def __init__(
        self, library: Library, shelf: Shelf, before: Mapping[str, _Kept], only: str | None = None
    ) -> None:
        self._library = library
        self._shelf = shelf
        self._before = before
        self._only = only

    def folder(self, folder: Path, prefix: str) -> Iterator[Found]:
        """The definitions in a folder; `@scope` folders hold one or two levels more."""
        only = self._only
        for entry in _entries(folder):
            full = prefix + entry.name
            if only is not None and not (full.startswith(only) or only.startswith(f"{full}/")):
                continue
            if entry.name.startswith("@") and not prefix:
                yield from self.folder(folder / entry.name, f"{full}/")
                continue
            found = self._look_at(entry, prefix)
            if found:
                yield found
            elif prefix.count("/") == 1 and _is_directory(entry):
                yield from self.folder(folder / entry.name, f"{full}/")

    def _look_at(self, entry: os.DirEntry[str], prefix: str) -> Found | None:
        is_directory = _is_directory(entry)
        stem, dot, ending = entry.name.rpartition(".")
        stem, suffix = (entry.name, "") if is_directory or not stem else (stem, dot + ending)
        if not is_directory and suffix not in SUFFIXES:
            return None
        name, _, version = stem.partition("@")
        if self._only is not None and prefix + name != self._only:
            return None
        location = entry.path
        if is_directory:
            inner = self._library.definition_inside(location, self._shelf.kind)
            if inner is None:
                return None
            location = f"{location}/{inner}"
        try:
            status = os.lstat(location)
        except OSError:
            return None
        problem = None
        if entry.is_symlink() or stat.S_ISLNK(status.st_mode):
            problem, status = _followed(self._shelf, location, status)
        seen = stamp_of(status)
        known = self._before.get(location)
        if known and known.settled and known.listed.found.stamp == seen:
            found = known.listed.found
            if found.problem == problem:
                return found
        return Found(
            prefix + name,
            version or None,
            Path(location),
            location,
            self._shelf,
            seen,
            problem,
        )


def _read(found: Found) -> _Kept:
    if found.problem:
        summary = Summary(found.version or "", problem=found.problem)
    else:
        summary = summarise(found.path, found.shelf.kind, found.version)
    return _Kept(Listed(found, summary), settled(found.stamp))


def _nearest(places: Iterator[Found]) -> list[Found]:
    """One place for each name and version: a directory before a file, Markdown before YAML."""
    best: dict[tuple[str, str | None], Found] = {}
    for found in places:
        key = (found.name, found.version)
        if key not in best or _rank(found) < _rank(best[key]):
            best[key] = found
    return sorted(best.values(), key=lambda found: (found.name, found.version or ""))


def _rank(found: Found) -> tuple[bool, int]:
    in_directory = found.path.stem == found.shelf.kind
    return not in_directory, SUFFIXES.index(found.path.suffix)


def _followed(shelf: Shelf, path: str, status: os.stat_result) -> tuple[str | None, os.stat_result]:
    """Why a symbolic link is not followed, or None; and the status of what it leads to."""
    if not is_inside(path, shelf.root, *([shelf.within] if shelf.within else [])):
        return "a symbolic link that leads out of its directory", status
    try:
        return None, Path(path).stat()
    except OSError as error:
        return f"a symbolic link that leads nowhere ({error.strerror})", status


def _entries(folder: Path) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return [entry for entry in found if not entry.name.startswith(".")]
    except OSError:
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symbolic link that leads to itself
        return False
