"""Looks at the tools' directories and says what can become a module, and what cannot."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from fleet_agentpack.deploy.importing.at_imports import taken_in
from fleet_agentpack.deploy.importing.items import Found, Item
from fleet_agentpack.deploy.importing.places import Place
from fleet_agentpack.deploy.importing.reading import NotImportedError, Reader, UnfitError
from fleet_agentpack.deploy.importing.results import SkippedRow
from fleet_agentpack.deploy.model import MANIFEST_PREFIX

DEEPEST = 12
_CLOSED = "it cannot be read"
_HIDDEN = {".DS_Store": "a cache"} | dict.fromkeys(
    (".git", ".gitattributes", ".gitignore", ".gitkeep"), "git's own"
)


def scan(places: Iterable[Place], user: Path) -> Found:
    """What is there. Nothing is written, and links are not followed."""
    reader, items = Reader(), dict[tuple[str, str], Item]()
    unfit: dict[tuple[str, str], SkippedRow] = {}
    for place in places:
        second = place.reading.is_second_choice
        for path, name in _members(place, user, reader.skipped):
            key = place.target, path
            if second and key not in unfit:
                continue
            try:
                items[key] = reader.read(place, path, name)
                unfit.pop(key, None)
            except UnfitError as error:
                unfit.setdefault(key, SkippedRow(path, place.area.takes, str(error)))
            except NotImportedError as error:
                unfit.pop(key, None)
                reader.skipped.append(SkippedRow(path, place.area.takes, str(error)))
    skipped = dict.fromkeys([*unfit.values(), *reader.skipped])
    return Found(tuple(items.values()), tuple(skipped), tuple(reader.secrets))


def _members(place: Place, user: Path, skipped: list[SkippedRow]) -> Iterator[tuple[str, str]]:
    """The paths that may be members of a place, with their names below it."""
    reading = place.reading
    if reading.shape in ("one_file", "named_file"):
        path = f"{place.directory}/{reading.pattern}"
        if os.path.lexists(path):
            yield path, reading.pattern
    elif reading.shape == "taken_in":
        yield from _instruction_files(place, user)
    elif os.path.islink(place.directory):
        yield place.directory, ""
    else:
        yield from _listed(place, skipped)


def _listed(place: Place, skipped: list[SkippedRow]) -> Iterator[tuple[str, str]]:
    reading = place.reading
    if os.path.isdir(place.directory) and not _can_enter(place.directory):
        skipped.append(SkippedRow(place.directory, place.area.takes, _CLOSED))
        return
    wants_directories = reading.shape == "directories"
    what = "a directory" if wants_directories else f"a *{reading.pattern} file"
    for path, name, is_directory in _walk(place.directory, reading.shape == "nested_files"):
        base = os.path.basename(name)
        fits = is_directory if wants_directories else base.endswith(reading.pattern)
        if fits and not base.startswith("."):
            yield path, name
        elif not base.startswith(MANIFEST_PREFIX) and not reading.is_second_choice:
            reason = f"not {what}, which is what belongs here"
            if base.startswith("."):
                reason = _HIDDEN.get(base, "hidden, so it is the program's own")
            elif is_directory and not _can_enter(path):
                reason = _CLOSED
            skipped.append(SkippedRow(path, place.area.takes, reason))


def _walk(
    top: str, nested: bool, prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, str, bool]]:
    """The entries of a directory, those of its directories too if asked, by name."""
    try:
        entries = sorted(os.scandir(top), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        name = f"{prefix}{entry.name}"
        is_directory = os.path.isdir(entry.path)  # a link that leads in a circle is none
        enters = nested and is_directory and not entry.is_symlink() and depth < DEEPEST
        if enters and not entry.name.startswith(".") and _can_enter(entry.path):
            yield from _walk(entry.path, nested, f"{name}/", depth + 1)
        else:
            yield entry.path, name, is_directory


def _can_enter(directory: str) -> bool:
    return os.access(directory, os.R_OK | os.X_OK)


def _instruction_files(place: Place, user: Path) -> Iterator[tuple[str, str]]:
    """Claude Code's further instructions: its rules, and what a CLAUDE.md takes in.

    Only what is in Claude Code's own directory: other files of a project are the project's.
    """
    inside = "" if place.scope == "user" else ".claude/"
    own = f"{place.directory}/{inside}"
    tops = [f"{place.directory}/{name}" for name in place.reading.pattern.split()]
    found = {path: None for path in tops[1:] if os.path.lexists(path)}
    found |= {path: None for path, _, _ in _walk(f"{own}rules", nested=True)}
    for top in tops:
        found |= {path: None for path in taken_in(top, user) if path.startswith(own)}
    others = tuple(f"{own}{name}/" for name in ("commands", "skills", "agents", "plugins"))
    for path in sorted(found):
        if path.endswith(".md") and not path.startswith(others) and path != tops[0]:
            yield path, path[len(place.directory) + 1 :]
