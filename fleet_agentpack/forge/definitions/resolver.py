"""Definitions by name: the project's, then the user's, then the stockyard's; nearest first."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_agentpack.forge.config.configuration import Configuration
from fleet_agentpack.forge.definitions.definition import Definition, read_data, version_of
from fleet_agentpack.forge.definitions.index import (
    DefinitionFile,
    DefinitionFolder,
    DefinitionIndex,
    IndexedDefinition,
    Progress,
)
from fleet_agentpack.forge.definitions.stockyard import Stockyard
from fleet_agentpack.forge.errors import ForgeError, call
from fleet_agentpack.forge.loaded import Loaded
from fleet_agentpack.forge.names import Kind, Reference, Source, is_usable_name, version_order
from fleet_agentpack.forge.parsing import UnparsableError
from fleet_agentpack.forge.plugins.folders import plugin_folders
from fleet_agentpack.forge.results import DefinitionRow
from fleet_agentpack.kit.semver import Version

SOURCES: tuple[Source, ...] = ("local", "global", "stockyard")
MOST_SIMILAR = 3


@dataclass(frozen=True)
class Search:
    """The definition that a reference means, if there is one, and what was in its way."""

    definition: Definition | None = None
    broken: tuple[str, ...] = ()  # nearer files that cannot be read
    unreached: tuple[str, ...] = ()  # why the stockyard did not answer, or only with an old answer

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a caller should know; broken files only where another one took their place."""
        return (*self.unreached, *self.broken) if self.definition else self.unreached


class Resolver:
    """Looks up definitions in every tier that is switched on; made for one call.

    A file that was looked at is remembered: definitions refer to each other over and over.
    """

    def __init__(
        self, configuration: Configuration, index: DefinitionIndex, stockyard: Stockyard
    ) -> None:
        self._configuration = configuration
        self._index = index
        self._stockyard = stockyard
        self._folders: dict[tuple[Kind, Source], list[DefinitionFolder]] = {}
        self._files: dict[tuple[DefinitionFolder, str], list[DefinitionFile]] = {}
        self._opened: dict[Path, Definition | str] = {}

    def tiers(self, source: str = "all") -> list[Source]:
        """The tiers that are searched when a caller asks for a source."""
        return [
            tier
            for tier in SOURCES
            if source in (tier, "all") and self._configuration.tier_enabled(tier)
        ]

    @property
    def disk_tiers(self) -> list[Source]:
        """The tiers that need no network."""
        return [tier for tier in self.tiers() if tier != "stockyard"]

    def folders(self, kind: Kind, tier: Source) -> list[DefinitionFolder]:
        """The directories of a tier: its own, then those of installed plugins."""
        key = (kind, tier)
        if key not in self._folders:
            self._folders[key] = list(self._find_folders(kind, tier))
        return self._folders[key]

    def _find_folders(self, kind: Kind, tier: Source) -> Iterator[DefinitionFolder]:
        configuration = self._configuration
        if tier == "local":
            root, base = configuration.local_root(kind), configuration.directories.project
            within = base.parent
        else:
            base = within = configuration.global_root
            root = base / f"{kind}s"
        yield DefinitionFolder(kind, root, tier, within=within)
        for name, folder in plugin_folders(base / "plugins"):
            yield DefinitionFolder(kind, folder / f"{kind}s", tier, owner=name, within=within)

    def listing(
        self,
        kind: Kind,
        source: str,
        *,
        want_tags: bool = True,
        progress: Progress | None = None,
    ) -> Loaded[list[DefinitionRow]]:
        """Each name once, from the nearest tier that has it; a broken file is a warning."""
        listed: dict[str, DefinitionRow] = {}
        warnings: list[str] = []
        for tier in self.tiers(source):
            if tier == "stockyard":
                found = self._stockyard.listing(kind, want_tags=want_tags)
            else:
                found = self._on_disk(kind, tier, progress)
            warnings += found.warnings
            for each in found.value:
                listed.setdefault(each.name, each)
        return Loaded(list(listed.values()), tuple(warnings))

    def indexed(
        self, kind: Kind, tier: Source, progress: Progress | None = None
    ) -> Loaded[list[IndexedDefinition]]:
        """Every readable definition of a tier on disk, all versions; a broken file is a warning."""
        folders = self.folders(kind, tier)
        found = [each for folder in folders for each in self._index.listing(folder, progress)]
        problems = [(each.file.path, each.summary.problem) for each in found]
        broken = [self._broken(path, problem) for path, problem in problems if problem]
        return Loaded([each for each in found if not each.summary.problem], tuple(broken))

    def resolve(
        self,
        kind: Kind,
        reference: Reference,
        source: str = "all",
        *,
        apart_from: Path | None = None,
    ) -> Loaded[Definition]:
        """The nearest definition that a reference allows; the file `apart_from` does not count.

        Raises `ForgeError`: not found, or found only in files that cannot be read.
        """
        found = self._search(kind, reference, source, apart_from)
        if found.definition:
            return Loaded(found.definition, found.warnings)
        if found.broken:
            raise ForgeError.invalid(
                f"{kind} {reference.name!r} cannot be read: {found.broken[0]}",
                call(f"{kind}_validate", "See what is wrong: {}"),
                name=reference.name,
                problems=list(found.broken),
            )
        raise self._missing(kind, reference, self.tiers(source), found.warnings)

    def find(self, kind: Kind, reference: Reference) -> Search:
        """The nearest definition that a reference allows and that can be read."""
        if not is_usable_name(reference.name, kind):
            return Search()
        return self._search(kind, reference, "all", None)

    def _search(
        self, kind: Kind, reference: Reference, source: str, apart_from: Path | None
    ) -> Search:
        broken: list[str] = []
        for tier in self.tiers(source):
            if tier == "stockyard":
                remote = self._stockyard.resolve(kind, reference)
                return Search(remote.value, tuple(broken), remote.warnings)
            found = self._from_disk(kind, reference, tier, apart_from)
            broken += found.broken
            if found.definition:
                return Search(found.definition, tuple(broken))
        return Search(broken=tuple(broken))

    def nearest_file(self, kind: Kind, reference: Reference) -> Path | None:
        """The file that a reference means by its path alone, valid or not."""
        for tier in self.disk_tiers:
            found = self._find(kind, reference.name, tier, None)
            files = {each.version or "": each for each in found if not each.problem}
            chosen = "" if reference.any_version and "" in files else None
            if chosen is None:
                chosen = reference.choose([version for version in files if version])
            if chosen is not None:
                return files[chosen].path
        return None

    def find_local(self, kind: Kind, name: str) -> Path | None:
        """The project's own file of a name, in any layout; plugins do not count."""
        own = self.folders(kind, "local")[0]
        return next((file.path for file in self._index.find(own, name)), None)

    def versions(
        self, kind: Kind, name: str, *, network: bool = True, apart_from: Path | None = None
    ) -> Loaded[list[str]]:
        """Every known version of a name; the file `apart_from` does not count."""
        found = [f for tier in self.disk_tiers for f in self._find(kind, name, tier, apart_from)]
        known = [version for file in found if (version := self._version(file))]
        remote: Loaded[list[str]] = Loaded([])
        if network and "stockyard" in self.tiers():
            remote = self._stockyard.versions(kind, name)
        return Loaded(list(dict.fromkeys([*known, *remote.value])), remote.warnings)

    def _from_disk(
        self, kind: Kind, reference: Reference, tier: Source, apart_from: Path | None
    ) -> Search:
        broken: list[str] = []
        candidates: dict[str, DefinitionFile] = {}
        for file in self._find(kind, reference.name, tier, apart_from):
            version = self._version(file)
            if version is None:
                broken.append(str(self._open(file)))
            else:
                candidates.setdefault(version, file)
        while (chosen := reference.choose(list(candidates))) is not None:
            opened = self._open(candidates.pop(chosen))
            if isinstance(opened, Definition):
                return Search(opened, tuple(broken))
            broken.append(opened)
        return Search(broken=tuple(broken))

    def _find(
        self, kind: Kind, name: str, tier: Source, apart_from: Path | None
    ) -> list[DefinitionFile]:
        for folder in self.folders(kind, tier):
            wanted = name
            if folder.owner:
                owners = (f"{folder.owner}/", f"@{folder.owner}/")
                owner = next((each for each in owners if name.startswith(each)), "")
                wanted = name[len(owner) :]
            if (folder, wanted) not in self._files:
                self._files[folder, wanted] = self._index.find(folder, wanted)
            found = [each for each in self._files[folder, wanted] if each.path != apart_from]
            if found:
                return found
        return []

    def _open(self, file: DefinitionFile) -> Definition | str:
        """The definition in a file, or why there is none."""
        if file.path not in self._opened:
            self._opened[file.path] = self._read(file)
        return self._opened[file.path]

    def _read(self, file: DefinitionFile) -> Definition | str:
        try:
            if file.problem:
                raise UnparsableError(file.problem)
            data = read_data(file.path, file.folder.kind)
        except FileNotFoundError:
            return self._broken(file.path, "disappeared while it was read")
        except UnparsableError as error:
            return self._broken(file.path, str(error))
        return Definition(
            kind=file.folder.kind,
            name=file.name,
            version=file.version or version_of(data),
            source=file.folder.source,
            path=self._configuration.directories.shown(file.path),
            data=data,
            file=file.path,
        )

    def _version(self, file: DefinitionFile) -> str | None:
        """The version of the definition in a file, None when it cannot be read."""
        if file.version:
            return file.version
        opened = self._open(file)
        return opened.version if isinstance(opened, Definition) else None

    def _on_disk(
        self, kind: Kind, tier: Source, progress: Progress | None
    ) -> Loaded[list[DefinitionRow]]:
        """The newest version of each name, folder by folder."""
        found = self.indexed(kind, tier, progress)
        best: dict[tuple[str | None, str], IndexedDefinition] = {}
        for each in found.value:
            key = (each.file.folder.owner, each.file.name)
            if key not in best or _newness(each) > _newness(best[key]):
                best[key] = each
        return Loaded([_row(each, tier) for each in best.values()], found.warnings)

    def _missing(
        self, kind: Kind, reference: Reference, tiers: list[Source], warnings: tuple[str, ...]
    ) -> ForgeError:
        versions = self.versions(kind, reference.name, network=False).value
        names = {
            name
            for tier in tiers
            if tier != "stockyard"
            for folder in self.folders(kind, tier)
            for name in self._index.names(folder)
        }
        details: dict[str, Any] = {}
        if not reference.any_version:
            details["version"] = reference.wanted
            details |= {"availableVersions": versions} if versions else {}
        if warnings := (*self._configuration.warnings, *warnings):
            details["warnings"] = list(warnings)
        others = names - {reference.name}
        details["similar"] = difflib.get_close_matches(reference.name, others, n=MOST_SIMILAR)
        advice = self._configuration.directories.no_project
        return ForgeError.definition_missing(
            kind, reference.name, searched=tiers, advice=advice, **details
        )

    def _broken(self, path: Path, problem: str) -> str:
        return f"{self._configuration.directories.shown(path)}: {problem}"


def _row(found: IndexedDefinition, tier: Source) -> DefinitionRow:
    file, known = found.file, found.summary
    return DefinitionRow(
        file.name, known.version, known.description, known.tags, tier, file.location
    )


def _newness(indexed: IndexedDefinition) -> tuple[bool, bool, Version]:
    """A key to sort by: releases after prereleases, both after what is not a version."""
    known, version = version_order(indexed.summary.version)
    return known, not version.pre, version
