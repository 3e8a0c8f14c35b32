"""How definitions are listed: each once, under the shortest name that means it."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from fleet_agentpack.forge.definitions.index import (
    DefinitionFile,
    DefinitionFolder,
    IndexedDefinition,
    Progress,
    closest,
)
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.errors import Loaded
from fleet_agentpack.forge.names import Format, Kind, Source, is_usable_name, version_order
from fleet_agentpack.forge.results import DefinitionRow
from fleet_agentpack.kit.results import UNKNOWN, Maybe
from fleet_agentpack.kit.semver import Version

Rivals = list[tuple[tuple[str, ...], DefinitionFile]]
ListKey = tuple[str | None, str, Format]  # owner, name, format


class Listed(NamedTuple):
    """A definition in a list: on disk, or as the stockyard describes it."""

    name: str  # the shortest that means it
    found: IndexedDefinition | DefinitionRow

    @property
    def tags(self) -> Maybe[tuple[str, ...]]:
        """Its tags."""
        found = self.found
        return found.tags if isinstance(found, DefinitionRow) else found.summary.tags

    @property
    def row(self) -> DefinitionRow:
        """The line that is shown."""
        if isinstance(self.found, DefinitionRow):
            return self.found
        file, known = self.found.file, self.found.summary
        return DefinitionRow(
            self.name,
            known.version,
            known.description,
            known.tags,
            file.folder.source,
            file.location,
            UNKNOWN if known.format == "fractary" else known.format,
        )


def list_definitions(
    resolver: Resolver,
    kind: Kind,
    source: str,
    *,
    want_tags: bool = True,
    progress: Progress | None = None,
) -> Loaded[list[Listed]]:
    """Each definition once, from the nearest tier that has it; a broken file is a warning.

    A plugin's is called `owner/name` where somebody else has one of the same name.
    """
    listed: dict[ListKey, IndexedDefinition | DefinitionRow] = {}
    warnings = list(resolver.places.warnings)
    for tier in resolver.tiers(source):
        if tier == "stockyard":
            remote = resolver.stockyard().listing(kind, want_tags=want_tags)
            warnings += remote.warnings
            names = {name for _, name, _ in listed}
            new = [row for row in remote.value if row.name not in names]
            listed |= {(None, row.name, "fractary"): row for row in new}
        else:
            found = _on_disk(resolver, kind, tier, progress)
            warnings += found.warnings
            for key, each in found.value.items():
                listed.setdefault(key, each)
    return Loaded(list(_named(listed)), tuple(warnings))


def _on_disk(
    resolver: Resolver, kind: Kind, tier: Source, progress: Progress | None
) -> Loaded[dict[ListKey, IndexedDefinition]]:
    """The newest version of each owner's name in each format, folder by folder.

    Of several in different directories, the first has the name; the others have their directory's.
    """
    found = resolver.indexed(kind, tier, progress)
    best: dict[ListKey, IndexedDefinition] = {}
    alike: defaultdict[str, list[IndexedDefinition]] = defaultdict(list)
    for each in found.value:
        key = (each.file.folder.owner, each.file.name, each.summary.format)
        if key not in best or (_is_version_of(each, best[key]) and _is_newer(each, best[key])):
            best[key] = each
        elif each.file.folder.layout != "fractary" and not _is_same(each.file, best[key].file):
            alike[each.file.name].append(each)
    owners = _owners(resolver.folders(kind, tier)) if alike else set()
    left_out: list[DefinitionFile] = []
    rivals: dict[str, Rivals] = {name: [] for name in alike}
    for each in found.value if alike else ():
        if each.file.name in rivals:
            rivals[each.file.name].append((each.file.around, each.file))
    for name, others in alike.items():
        for each in others:
            place = _place_of(each.file, rivals[name], owners)
            if place is None:
                left_out.append(each.file)
            else:
                best[place, name, each.summary.format] = each
    return Loaded(best, (*found.warnings, *_left_out(kind, left_out, resolver)))


def _owners(folders: Iterable[DefinitionFolder]) -> set[str]:
    return {each for folder in folders for each in (folder.owner, *folder.aliases) if each}


def _place_of(file: DefinitionFile, rivals: Rivals, owners: set[str]) -> str | None:
    """The nearest one or two directories that mean this definition of the name and no other."""
    around = [each for each in file.around if is_usable_name(each)]
    for length in (1, 2):
        for parts in combinations(reversed(around), length):
            place = parts[::-1]
            if "/".join(place) not in owners and closest(place, rivals) is file:
                return "/".join(place)
    return None


def _left_out(kind: Kind, alike: list[DefinitionFile], resolver: Resolver) -> list[str]:
    """What to say of definitions that no name is left for."""
    if not alike:
        return []
    what = f"1 {kind} is" if len(alike) == 1 else f"{len(alike):,} {kind}s are"
    first = resolver.shown(alike[0].location)
    return [f"{what} left out for one of the same owner and name, such as {first}"]


def _is_same(one: DefinitionFile, other: DefinitionFile) -> bool:
    try:
        return os.path.samefile(one.location, other.location)  # noqa: PTH121 - thousands of them
    except OSError:  # gone meanwhile
        return False


def _named(listed: Mapping[ListKey, IndexedDefinition | DefinitionRow]) -> Iterator[Listed]:
    """Each under the shortest name that means it: `name`, `owner/name`, or with its format."""
    owners = Counter(name for name, _ in {(name, owner) for owner, name, _ in listed})
    formats: set[tuple[str | None, str]] = set()
    for (owner, name, written_in), found in listed.items():
        label = name if (owner, name) not in formats else f"{written_in}/{name}"
        formats.add((owner, name))
        yield Listed(f"{owner}/{label}" if owner and owners[name] > 1 else label, found)


def _is_version_of(one: IndexedDefinition, other: IndexedDefinition) -> bool:
    """Whether two of one name are versions of one definition."""
    return one.file.folder is other.file.folder or one.file.folder.layout == "fractary"


def _is_newer(one: IndexedDefinition, other: IndexedDefinition) -> bool:
    return _newness(one) > _newness(other)


def _newness(indexed: IndexedDefinition) -> tuple[bool, bool, Version]:
    """A key to sort by: releases after prereleases, both after what is not a version."""
    known, version = version_order(indexed.summary.version)
    return known, not version.pre, version
