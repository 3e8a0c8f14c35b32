"""Finds definitions on disk in both layouts and keeps what was parsed while files stay the same."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.forge.definitions import SUFFIXES, Kind, Source, Summary, summarise

Report = Callable[[float, float | None, str], None]
Signature = tuple[int, int, int, int]

REPORT_EVERY = 500
# A file that changed this shortly before it was read may change again within the same tick of
# the file system's clock, so it is read once more.
UNSETTLED_NS = 100_000_000


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
    shelf: Shelf
    signature: Signature
    problem: str | None = None


@dataclass(frozen=True)
class Listed:
    """A definition's place together with what a list shows of it."""

    found: Found
    summary: Summary

    @property
    def name(self) -> str:
        return self.found.name

    @property
    def source(self) -> Source:
        return self.found.shelf.source


class Library:
    """All shelves of a service; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Shelf, dict[str, tuple[Signature, bool, Summary]]] = {}
        self._inside: dict[str, tuple[Signature, bool, str | None]] = {}

    def find(self, shelf: Shelf, name: str) -> list[Found]:
        """Every definition of a name on a shelf, one for each version."""
        return _nearest(self._scan(shelf, only=name))

    def names(self, shelf: Shelf) -> list[str]:
        """The names on a shelf."""
        return sorted({found.name for found in self._scan(shelf)})

    def listing(self, shelf: Shelf, report: Report | None = None) -> list[Listed]:
        """Everything on a shelf with its summary; only new and changed files are read."""
        with self._lock:
            places = _nearest(self._scan(shelf))
            before = self._kept.get(shelf, {})
            kept: dict[str, tuple[Signature, bool, Summary]] = {}
            listed = []
            for done, found in enumerate(places):
                key = str(found.path)
                known = before.get(key)
                if known is None or known[0] != found.signature or not known[1]:
                    if report and done % REPORT_EVERY == 0:
                        report(done, len(places), f"reading {shelf.kind}s")
                    known = _read(found)
                kept[key] = known
                listed.append(Listed(found, known[2]))
            self._kept[shelf] = kept
            return listed

    def _scan(self, shelf: Shelf, only: str | None = None) -> Iterator[Found]:
        yield from self._scan_folder(shelf, shelf.root, "", only)

    def _scan_folder(
        self, shelf: Shelf, folder: Path, prefix: str, only: str | None
    ) -> Iterator[Found]:
        for entry in _entries(folder):
            if entry.name.startswith("@") and not prefix:
                if only is None or only.startswith(f"{entry.name}/"):
                    yield from self._scan_folder(shelf, folder / entry.name, f"{entry.name}/", only)
                continue
            found = self._look_at(shelf, entry, prefix, only)
            if found:
                yield found
            elif prefix.count("/") == 1 and _is_directory(entry):
                below = f"{prefix}{entry.name}/"
                if only is None or only.startswith(below):
                    yield from self._scan_folder(shelf, folder / entry.name, below, only)

    def _look_at(
        self, shelf: Shelf, entry: os.DirEntry[str], prefix: str, only: str | None
    ) -> Found | None:
        is_directory = _is_directory(entry)
        stem, dot, ending = entry.name.rpartition(".")
        stem, suffix = (entry.name, "") if is_directory or not stem else (stem, dot + ending)
        if not is_directory and suffix not in SUFFIXES:
            return None
        name, _, version = stem.partition("@")
        if only is not None and prefix + name != only:
            return None
        path = entry.path
        if is_directory:
            inner = self._definition_inside(entry.path, shelf.kind)
            if inner is None:
                return None
            path = f"{entry.path}/{inner}"
        try:
            status = os.lstat(path)
        except OSError:
            return None
        problem = None
        if entry.is_symlink() or stat.S_ISLNK(status.st_mode):
            problem, status = _followed(shelf, path, status)
        return Found(prefix + name, version or None, Path(path), shelf, _signature(status), problem)

    def _definition_inside(self, directory: str, kind: Kind) -> str | None:
        """The file name of the definition in a directory, Markdown first."""
        try:
            signature = _signature(os.stat(directory))  # noqa: PTH116 - the hot path of every list
        except OSError:
            return None
        known = self._inside.get(directory)
        if known and known[0] == signature and known[1]:
            return known[2]
        names = {entry.name for entry in _entries(Path(directory))}
        inner = next((f"{kind}{each}" for each in SUFFIXES if f"{kind}{each}" in names), None)
        self._inside[directory] = (signature, _is_settled(signature), inner)
        return inner


def _read(found: Found) -> tuple[Signature, bool, Summary]:
    settled = _is_settled(found.signature)
    if found.problem:
        return found.signature, settled, Summary(found.version or "", problem=found.problem)
    summary = summarise(found.path, found.shelf.kind, found.version)
    return found.signature, settled, summary


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
    target = Path(os.path.realpath(path))
    allowed = [shelf.root, *([shelf.within] if shelf.within else [])]
    if not any(target.is_relative_to(os.path.realpath(root)) for root in allowed):
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


def _signature(status: os.stat_result) -> Signature:
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


def _is_settled(signature: Signature) -> bool:
    return time.time_ns() - signature[3] > UNSETTLED_NS


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symbolic link that leads to itself
        return False
