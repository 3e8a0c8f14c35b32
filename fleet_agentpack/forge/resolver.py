"""Looks up definitions by reference in every tier, and follows what they extend and need."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_agentpack.forge.configuration import Configuration
from fleet_agentpack.forge.definition import (
    Definition,
    format_of,
    is_host_tool,
    listed_in,
    read_data,
    version_of,
)
from fleet_agentpack.forge.errors import (
    MOST_SHOWN,
    SWITCH_ON,
    ForgeError,
    Loaded,
    Step,
    call,
    list_all,
)
from fleet_agentpack.forge.folders import Folders
from fleet_agentpack.forge.index import (
    DefinitionFile,
    DefinitionFolder,
    DefinitionIndex,
    FilesByName,
    IndexedDefinition,
    Progress,
    closest,
    owned_once,
)
from fleet_agentpack.forge.names import (
    NO_VERSION,
    Format,
    Kind,
    Reference,
    Source,
    is_usable_name,
    parse_reference,
    with_format,
    without_owner,
)
from fleet_agentpack.kit.mappings import UnparsableError

if TYPE_CHECKING:
    from fleet_agentpack.forge.catalogue import Stockyard


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
        self,
        configuration: Configuration,
        index: DefinitionIndex,
        stockyard: Callable[[], Stockyard],
    ) -> None:
        self._configuration = configuration
        self._index = index
        self.stockyard = stockyard
        self.places = Folders(configuration, index)
        self._folders: dict[tuple[Kind, Source], Sequence[DefinitionFolder]] = {}
        self._files = FilesByName(index)
        self._opened: dict[tuple[str, str | None], Definition | str] = {}

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

    def folders(self, kind: Kind, tier: Source) -> Sequence[DefinitionFolder]:
        """The directories of a tier: its own, then those of installed plugins."""
        key = (kind, tier)
        if key not in self._folders:
            self._folders[key] = self.places.of(kind, "local" if tier == "local" else "global")
        return self._folders[key]

    def folder_of(self, kind: Kind, path: Path) -> DefinitionFolder | None:
        """The directory of definitions that a file is in, the closest around it."""
        around = [
            folder
            for tier in self.disk_tiers
            for folder in self.folders(kind, tier)
            if path.is_relative_to(folder.root)
        ]
        return max(around, key=lambda each: len(each.root.parts), default=None)

    def everything(self, kind: Kind, tier: Source) -> list[DefinitionFile]:
        """Every file of a tier on disk that defines something, readable or not."""
        folders = self.folders(kind, tier)
        found = [each for folder in folders for each in self._index.listing(folder)]
        return [each.file for each in owned_once(found)]

    def indexed(
        self, kind: Kind, tier: Source, progress: Progress | None = None
    ) -> Loaded[list[IndexedDefinition]]:
        """Every readable definition of a tier on disk, all versions; a broken file is a warning."""
        folders = self.folders(kind, tier)
        found = owned_once(
            each for folder in folders for each in self._index.listing(folder, progress)
        )
        broken = [
            f"{self.shown(each.file.path)}: {problem}"
            for each in found
            if (problem := each.summary.problem)
        ]
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

    def find(self, kind: Kind, reference: Reference, near: Definition | None = None) -> Search:
        """The definition that a reference allows and that can be read.

        What the same plugin ships as the definition `near` comes first, then the nearest.
        """
        if not is_usable_name(reference.name, kind):
            return Search()
        return self._search(kind, reference, "all", None, near)

    def _search(
        self,
        kind: Kind,
        reference: Reference,
        source: str,
        apart_from: Path | None,
        near: Definition | None = None,
    ) -> Search:
        broken: list[str] = []
        if near and near.owner:
            own = [
                folder for folder in self.folders(kind, near.source) if folder.owner == near.owner
            ]
            found = self._chosen(reference, self._find(reference.name, own, apart_from))
            if found.definition:
                return found
        for tier in self.tiers(source):
            if tier == "stockyard":
                remote = self.stockyard().resolve(kind, reference)
                return Search(remote.value, tuple(broken), remote.warnings)
            files = self._find(reference.name, self.folders(kind, tier), apart_from)
            found = self._chosen(reference, files)
            broken += found.broken
            if found.definition:
                return Search(found.definition, tuple(broken))
        return Search(broken=tuple(broken))

    def nearest_file(self, kind: Kind, reference: Reference) -> Path | None:
        """The file that a reference means by its path alone, valid or not."""
        for tier in self.disk_tiers:
            found = self._find(reference.name, self.folders(kind, tier), None)
            files = {each.version or "": each for each in reversed(found) if not each.problem}
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
        folders = [self.folders(kind, tier) for tier in self.disk_tiers]
        found = [file for each in folders for file in self._find(name, each, apart_from)]
        known = [version for file in found if (version := self._version(file))]
        remote: Loaded[list[str]] = Loaded([])
        if network and "stockyard" in self.tiers():
            remote = self.stockyard().versions(kind, name)
        return Loaded(list(dict.fromkeys([*known, *remote.value])), remote.warnings)

    def _chosen(self, reference: Reference, files: Sequence[DefinitionFile]) -> Search:
        """The definition in the file of the version that is meant; of two formats, the first."""
        broken: list[str] = []
        candidates: dict[str, Definition] = {}
        for file in files:
            opened = self._open(file)
            if isinstance(opened, str):
                broken.append(opened)
            elif all(each.format == opened.format for each in candidates.values()):
                candidates.setdefault(opened.version, opened)
        chosen = reference.choose(list(candidates))
        return Search(None if chosen is None else candidates[chosen], tuple(broken))

    def _find(
        self, name: str, folders: Sequence[DefinitionFolder], apart_from: Path | None
    ) -> list[DefinitionFile]:
        """The files of a name in the first folder that has any.

        `owner/name` means its owner's, `format/name` the one that is written in a format.
        """
        for folder in folders:
            inner = without_owner(name, folder.owner, *folder.aliases) if folder.owner else None
            for full in (inner, name) if inner else (name,):
                written_in, wanted = with_format(full)
                found = [
                    each
                    for each in self._files.of(folder, wanted)
                    if each.path != apart_from and written_in in (None, self._format(each))
                ]
                if found:
                    return found
        return self._by_place(name, folders, apart_from)

    def _by_place(
        self, name: str, folders: Sequence[DefinitionFolder], apart_from: Path | None
    ) -> list[DefinitionFile]:
        """The file of a name below some directories, which are its owner: `archive/NAME`."""
        *place, last = name.split("/")
        files = (
            each
            for folder in folders
            if place and folder.layout != "fractary"
            for each in self._files.of(folder, last)
            if each.path != apart_from
        )
        found = closest(place, [(each.around, each) for each in files])
        if found is None:
            return []
        return [replace(found, folder=replace(found.folder, owner="/".join(place)))]

    def _format(self, file: DefinitionFile) -> Format | None:
        opened = self._open(file)
        return opened.format if isinstance(opened, Definition) else None

    def _open(self, file: DefinitionFile) -> Definition | str:
        """The definition in a file, or why there is none."""
        key = (file.location, file.folder.owner)
        if key not in self._opened:
            self._opened[key] = self._read(file)
        return self._opened[key]

    def _read(self, file: DefinitionFile) -> Definition | str:
        folder, foreign = file.folder, file.folder.layout != "fractary"
        problem, data = file.problem, dict[str, Any]()
        try:
            data = {} if problem else read_data(file.path, folder.kind, forgiving=foreign)
        except FileNotFoundError:
            problem = "disappeared while it was read"
        except UnparsableError as error:
            problem = str(error)
        if problem:
            return f"{self.shown(file.path)}: {problem}"
        return Definition(
            kind=folder.kind,
            name=file.name,
            version=file.version
            or version_of(data)
            or (folder.version or NO_VERSION if foreign else ""),
            source=folder.source,
            path=self.shown(file.path),
            data=data,
            file=file.path,
            owner=folder.owner,
            format=format_of(file.path, folder.kind, data, folder.layout),
        )

    def _version(self, file: DefinitionFile) -> str | None:
        """The version of the definition in a file, None when it cannot be read."""
        opened = None if file.version else self._open(file)
        return opened.version if isinstance(opened, Definition) else file.version

    def _missing(
        self, kind: Kind, reference: Reference, tiers: list[Source], warnings: tuple[str, ...]
    ) -> ForgeError:
        versions = self.versions(kind, reference.name, network=False).value
        names = {
            name
            for tier in tiers
            if tier != "stockyard"
            for folder in self.folders(kind, tier)
            for name in self._files.names(folder)
        }
        known = [version for version in versions if not reference.any_version]
        details: dict[str, Any] = {} if reference.any_version else {"version": reference.wanted}
        details |= {"availableVersions": known} if known else {}
        if warnings := (*self._configuration.warnings, *warnings):
            details["warnings"] = list(warnings)
        others = names - {reference.name}
        similar = difflib.get_close_matches(reference.name, others, n=MOST_SIMILAR)
        advice, hints = self._configuration.directories.no_project, list[Step]()
        what = f"No {kind} {reference.name!r}"
        if known:
            what = f"{kind.capitalize()} {reference.name!r} has no version {reference.wanted!r}"
            hints = [f"Ask for another version: {', '.join(known[:MOST_SHOWN])}"]
        elif similar:
            hints = [f"Did you mean {', '.join(similar)}?"]
        hints += [advice] if advice else [] if tiers else [SWITCH_ON]
        off = ": there is no project" if advice else ": this source is switched off"
        return ForgeError(
            "AGENT_NOT_FOUND" if kind == "agent" else "TOOL_NOT_FOUND",
            f"{what} in {', '.join(tiers)}" if tiers else f"{what}{off}",
            *hints,
            list_all(kind),
            name=reference.name,
            **details,
            similar=similar,
            searched=tiers,
        )

    def shown(self, path: Path | str) -> str:
        """A path for a reader."""
        return self._configuration.directories.shown(path)


MAX_DEPTH = 50
MOST_LOOKED_UP = 200  # references of one definition; far more than anybody writes by hand


@dataclass(frozen=True)
class Inherited:
    """A definition's fields over those of its bases, `extends` removed."""

    fields: Mapping[str, Any]
    searches: tuple[Search, ...] = ()  # for each base
    problem: ForgeError | None = None  # a base is missing or circular; the fields are its own alone

    @property
    def warnings(self) -> tuple[str, ...]:
        """What came up while the bases were looked for."""
        return tuple(warning for search in self.searches for warning in search.warnings)

    def warnings_if(self, done: str) -> tuple[str, ...]:
        """The warnings, and that a definition was `shown` or `compared` without its base."""
        problem = [f"{self.problem}; {done} without its base"] if self.problem else []
        return (*self.warnings, *problem)


def inherit(definition: Definition, resolver: Resolver) -> Inherited:
    """A definition with everything that it inherits."""
    chain: list[Definition] = [definition]
    searches: list[Search] = []
    while isinstance(text := chain[-1].data.get("extends"), str) and text:
        searches.append(resolver.find(definition.kind, parse_reference(text), chain[-1]))
        base = searches[-1].definition
        problem = _problem(chain, text, base)
        if problem or base is None:
            return Inherited(definition.data, tuple(searches), problem)
        chain.append(base)
    fields: Mapping[str, Any] = {}
    for each in reversed(chain):
        fields = _merged(fields, each.data, each.kind).fields if fields else each.data
    own = {key: value for key, value in fields.items() if key != "extends"}
    return Inherited(own, tuple(searches))


def dependency_cycle(definition: Definition, resolver: Resolver) -> list[str] | None:
    """The names along the first circle among a definition's dependencies, None without one.

    The number of definitions is bounded: files from outside must not cost minutes.
    """
    finished: set[tuple[Kind, str, str]] = set()

    def visit(current: Definition, trail: list[Definition]) -> list[str] | None:
        if _key(current) in finished:
            return None
        for at, before in enumerate(trail):
            if _key(before) == _key(current):
                return [each.name for each in (*trail[at:], current)]
        if len(trail) < MAX_DEPTH:
            for text in requirements(current)[:MOST_LOOKED_UP]:
                if len(finished) + len(trail) > MOST_LOOKED_UP:
                    break
                found = resolver.find("tool", parse_reference(text), current).definition
                cycle = visit(found, [*trail, current]) if found else None
                if cycle:
                    return cycle
        finished.add(_key(current))
        return None

    return visit(definition, [])


def requirements(definition: Definition) -> list[str]:
    """The references to tools that a definition needs and does not bring with it, each once.

    Tools that a program brings are not among them.
    """
    references = listed_in(definition.data.get(requirement_field(definition)))
    custom = definition.data.get("custom_tools")
    own = {
        each["name"]
        for each in (custom if isinstance(custom, list) else [])
        if isinstance(each, Mapping) and isinstance(each.get("name"), str)
    }
    return [
        text
        for text in dict.fromkeys(references)
        if parse_reference(text).name not in own and not is_host_tool(text)
    ]


def requirement_field(definition: Definition) -> str:
    """The field that names what a definition needs; the programs' own agents name skills."""
    if definition.kind == "tool":
        return "depends_on"
    return "tools" if definition.format == "fractary" else "skills"


def _problem(chain: list[Definition], text: str, base: Definition | None) -> ForgeError | None:
    """Why a base cannot be the next of a chain."""
    names = [each.name for each in chain]
    if base is None:
        return ForgeError.dependency(
            f"{names[-1]} extends {text}, which is not found", child=names[-1], base=text
        )
    if any(_key(each) == _key(base) for each in chain):
        cycle = [*names, base.name]
        return ForgeError.dependency(f"circular extends: {' -> '.join(cycle)}", cycle=cycle)
    if len(chain) >= MAX_DEPTH:
        return ForgeError.dependency(f"{names[0]} extends more than {MAX_DEPTH} bases")
    return None


def _key(definition: Definition) -> tuple[Kind, str, str]:
    return definition.kind, definition.identity.qualified, definition.version


def _merged(base: Mapping[str, Any], child: Mapping[str, Any], kind: Kind) -> Inherited:
    fields = {**base, **child}
    unions = ("tools", "tags") if kind == "agent" else ("depends_on", "tags")
    for name in unions:
        if name in base or name in child:
            both = [*listed_in(base.get(name)), *listed_in(child.get(name))]
            fields[name] = list(dict.fromkeys(both))
    shallow = "config" if kind == "agent" else "parameters"
    if isinstance(base.get(shallow), Mapping) and isinstance(child.get(shallow), Mapping):
        fields[shallow] = {**base[shallow], **child[shallow]}
    if isinstance(base.get("custom_tools"), list) and isinstance(child.get("custom_tools"), list):
        # The child's tools win by name and keep the base's position.
        tools = [*base["custom_tools"], *child["custom_tools"]]
        names = [each.get("name") if isinstance(each, Mapping) else None for each in tools]
        keys = [name if isinstance(name, str) else at for at, name in enumerate(names)]
        fields["custom_tools"] = list(dict(zip(keys, tools, strict=True)).values())
    return Inherited(fields)
