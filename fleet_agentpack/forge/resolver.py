"""Definitions by name: the project's, then the user's, then the stockyard's; nearest first."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fleet_agentpack.forge.config import Configuration
from fleet_agentpack.forge.definitions import (
    Definition,
    Kind,
    Row,
    Source,
    read_data,
    version_of,
)
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.library import Found, Library, Listed, Report, Shelf
from fleet_agentpack.forge.names import Reference, is_usable_name
from fleet_agentpack.forge.parsing import UnparsableError
from fleet_agentpack.forge.plugin_folders import plugin_folders
from fleet_agentpack.forge.stockyard import Stockyard
from fleet_agentpack.kit.semver import Version, VersionError

SOURCES: tuple[Source, ...] = ("local", "global", "stockyard")
MOST_SIMILAR = 3


class Resolver:
    """Looks definitions up in every tier that is switched on; made for one call.

    A place that was looked at is remembered: definitions refer to each other over and over.
    """

    def __init__(
        self, configuration: Configuration, library: Library, stockyard: Stockyard
    ) -> None:
        self._configuration = configuration
        self._library = library
        self._stockyard = stockyard
        self._shelves: dict[tuple[Kind, Source], list[Shelf]] = {}
        self._places: dict[tuple[Shelf, str], list[Found]] = {}
        self._opened: dict[Path, Definition | str] = {}

    def tiers(self, source: str = "all") -> list[Source]:
        """The tiers that are searched when a caller asks for a source."""
        return [
            tier
            for tier in SOURCES
            if source in (tier, "all") and self._configuration.tier_enabled(tier)
        ]

    def shelves(self, kind: Kind, tier: Source) -> list[Shelf]:
        """The directories of a tier: its own, then those of installed plugins."""
        key = (kind, tier)
        if key not in self._shelves:
            self._shelves[key] = list(self._find_shelves(kind, tier))
        return self._shelves[key]

    def _find_shelves(self, kind: Kind, tier: Source) -> Iterator[Shelf]:
        configuration = self._configuration
        if tier == "local":
            root, base = configuration.local_root(kind), configuration.places.project
            within = configuration.places.cwd
        else:
            base = within = configuration.global_root
            root = base / f"{kind}s"
        yield Shelf(kind, root, tier, within=within)
        for name, folder in plugin_folders(base / "plugins"):
            yield Shelf(kind, folder / f"{kind}s", tier, owner=name, within=within)

    def listing(
        self,
        kind: Kind,
        source: str,
        warnings: list[str],
        *,
        want_tags: bool = True,
        report: Report | None = None,
    ) -> list[Row]:
        """Each name once, from the nearest tier that has it; a file that is broken is a warning."""
        rows: dict[str, Row] = {}
        for tier in self.tiers(source):
            if tier == "stockyard":
                found = self._stockyard.rows(kind, warnings, want_tags=want_tags)
            else:
                found = self._disk_rows(kind, tier, warnings, report)
            for row in found:
                rows.setdefault(row.name, row)
        return list(rows.values())

    def listed(self, kind: Kind, tier: Source, warnings: list[str]) -> list[Listed]:
        """Every readable definition on a tier's own disk, all versions."""
        found: list[Listed] = []
        for shelf in self.shelves(kind, tier):
            for each in self._library.listing(shelf):
                if each.summary.problem:
                    warnings.append(self._broken(each.found.path, each.summary.problem))
                else:
                    found.append(each)
        return found

    def resolve(
        self,
        kind: Kind,
        reference: Reference,
        warnings: list[str],
        source: str = "all",
        *,
        apart_from: Path | None = None,
    ) -> Definition:
        """The nearest definition that a reference allows; the file `apart_from` does not count.

        Raises `ForgeError`: not found, or found only in files that cannot be read.
        """
        broken: list[str] = []
        definition = self._nearest(kind, reference, source, warnings, broken, apart_from)
        if definition:
            return definition
        if broken:
            raise ForgeError.invalid(
                f"{kind} {reference.name!r} cannot be read: {broken[0]}",
                f"See what is wrong: fractary_forge_{kind}_validate",
                name=reference.name,
                problems=broken,
            )
        raise self._missing(kind, reference, self.tiers(source), warnings)

    def _nearest(
        self,
        kind: Kind,
        reference: Reference,
        source: str,
        warnings: list[str],
        broken: list[str],
        apart_from: Path | None = None,
    ) -> Definition | None:
        for tier in self.tiers(source):
            if tier == "stockyard":
                definition = self._stockyard.resolve(kind, reference, warnings)
            else:
                definition = self._from_disk(kind, reference, tier, broken, apart_from)
            if definition:
                warnings += broken
                return definition
        return None

    def nearest_file(self, kind: Kind, reference: Reference) -> Path | None:
        """The file that a reference means by its path alone, valid or not."""
        for tier in self.tiers():
            found = [] if tier == "stockyard" else self._find(kind, reference.name, tier, None)
            places = {each.version or "": each for each in found if not each.problem}
            chosen = "" if reference.any_version and "" in places else None
            if chosen is None:
                chosen = reference.choose([version for version in places if version])
            if chosen is not None:
                return places[chosen].path
        return None

    def find_local(self, kind: Kind, name: str) -> Path | None:
        """The project's own file of a name, in any layout; plugins do not count."""
        own = self.shelves(kind, "local")[0]
        return next((found.path for found in self._library.find(own, name)), None)

    def exists(self, kind: Kind, reference: Reference, warnings: list[str]) -> Definition | None:
        """The definition that a reference allows, None when there is none that can be read."""
        if not is_usable_name(reference.name, kind):
            return None
        return self._nearest(kind, reference, "all", warnings, [])

    def versions(
        self,
        kind: Kind,
        name: str,
        warnings: list[str],
        *,
        network: bool = True,
        apart_from: Path | None = None,
    ) -> list[str]:
        """Every known version of a name; the file `apart_from` does not count."""
        known: list[str] = []
        for tier in self.tiers():
            if tier != "stockyard":
                found = self._find(kind, name, tier, apart_from)
                known += [version for each in found if (version := self._version(each, []))]
            elif network:
                known += self._stockyard.versions(kind, name, warnings)
        return list(dict.fromkeys(known))

    def _from_disk(
        self,
        kind: Kind,
        reference: Reference,
        tier: Source,
        broken: list[str],
        apart_from: Path | None,
    ) -> Definition | None:
        candidates: dict[str, Found] = {}
        for found in self._find(kind, reference.name, tier, apart_from):
            version = self._version(found, broken)
            if version is not None:
                candidates.setdefault(version, found)
        while (chosen := reference.choose(list(candidates))) is not None:
            definition = self._read(candidates.pop(chosen), broken)
            if definition:
                return definition
        return None

    def _find(self, kind: Kind, name: str, tier: Source, apart_from: Path | None) -> list[Found]:
        for shelf in self.shelves(kind, tier):
            wanted = name
            if shelf.owner:
                owner = next(
                    (p for p in (f"{shelf.owner}/", f"@{shelf.owner}/") if name.startswith(p)), ""
                )
                wanted = name[len(owner) :]
            if (shelf, wanted) not in self._places:
                self._places[shelf, wanted] = self._library.find(shelf, wanted)
            found = [each for each in self._places[shelf, wanted] if each.path != apart_from]
            if found:
                return found
        return []

    def _read(self, found: Found, broken: list[str]) -> Definition | None:
        if found.path not in self._opened:
            self._opened[found.path] = self._open(found)
        opened = self._opened[found.path]
        if isinstance(opened, Definition):
            return opened
        broken.append(opened)
        return None

    def _open(self, found: Found) -> Definition | str:
        """The definition at a place, or why there is none."""
        try:
            if found.problem:
                raise UnparsableError(found.problem)
            data = read_data(found.path, found.shelf.kind)
        except FileNotFoundError:
            return self._broken(found.path, "vanished while it was read")
        except UnparsableError as error:
            return self._broken(found.path, str(error))
        return Definition(
            kind=found.shelf.kind,
            name=found.name,
            version=found.version or version_of(data),
            source=found.shelf.source,
            path=self._configuration.places.shown(found.path),
            data=data,
            file=found.path,
        )

    def _version(self, found: Found, broken: list[str]) -> str | None:
        if found.version:
            return found.version
        definition = self._read(found, broken)
        return definition.version if definition else None

    def _disk_rows(
        self, kind: Kind, tier: Source, warnings: list[str], report: Report | None
    ) -> list[Row]:
        rows: list[Row] = []
        for shelf in self.shelves(kind, tier):
            best: dict[str, Listed] = {}
            for each in self._library.listing(shelf, report):
                if each.summary.problem:
                    warnings.append(self._broken(each.found.path, each.summary.problem))
                elif each.name not in best or _follows(each, best[each.name]):
                    best[each.name] = each
            rows += [Row(name, tier, each.found.path, each.summary) for name, each in best.items()]
        return rows

    def _missing(
        self, kind: Kind, reference: Reference, tiers: Sequence[Source], warnings: list[str]
    ) -> ForgeError:
        versions = self.versions(kind, reference.name, [], network=False)
        on_disk = [tier for tier in tiers if tier != "stockyard"]
        names = {
            name
            for tier in on_disk
            for shelf in self.shelves(kind, tier)
            for name in self._library.names(shelf)
        }
        details: dict[str, Any] = {}
        if not reference.any_version:
            details["version"] = reference.wanted
            details |= {"availableVersions": versions} if versions else {}
        if warnings:
            details["warnings"] = list(warnings)
        others = names - {reference.name}
        details["similar"] = difflib.get_close_matches(reference.name, others, n=MOST_SIMILAR)
        return ForgeError.definition_missing(kind, reference.name, searched=tiers, **details)

    def _broken(self, path: Path, problem: str) -> str:
        return f"{self._configuration.places.shown(path)}: {problem}"


def _follows(one: Listed, other: Listed) -> bool:
    newer, older = _parsed(one.summary.version), _parsed(other.summary.version)
    if newer is None or older is None:
        return older is None and newer is not None
    return (not newer.pre, newer) > (not older.pre, older)


def _parsed(version: str) -> Version | None:
    try:
        return Version.parse(version)
    except VersionError:
        return None
