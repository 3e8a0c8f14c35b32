"""Installed plugins with the lockfile that pins them, beside what registries offer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge import results
from fleet_agentpack.forge.catalogue import ManifestFile, Offer
from fleet_agentpack.forge.configuration import Configuration
from fleet_agentpack.forge.definition import sought, version_of
from fleet_agentpack.forge.errors import ADD_REGISTRY, ForgeError, noted, run
from fleet_agentpack.forge.folders import Folders, FoundPlugin, manifest_of, plugin_folders
from fleet_agentpack.forge.names import MAX_MANIFEST_BYTES, NO_VERSION, Format, Reference, Scope
from fleet_agentpack.forge.packages import (
    Package,
    choose,
    components,
    newest_first,
    not_offered,
    of_offer,
    package_of,
    plugin_info,
    ranked,
    similar_names,
)
from fleet_agentpack.forge.registries import RegistryClient, Survey
from fleet_agentpack.forge.results import PluginVersion
from fleet_agentpack.forge.trees import QUICK_S, FileContent
from fleet_agentpack.kit.mappings import UnparsableError, read_mapping
from fleet_agentpack.kit.results import UNKNOWN, Maybe, json_file
from fleet_agentpack.kit.semver import best_version, is_newer
from fleet_agentpack.kit.swap import Area, Swap

FORMAT = 1

Program = Literal["fractary", "claude"]


@dataclass(frozen=True)
class Pin:
    """What was installed: where it came from, its commit, and a checksum of every file."""

    version: str
    registry: str
    source: Mapping[str, str]  # `manifest`, or `git` with its path, or `directory` with its path
    files: Mapping[str, str] = field(default_factory=dict)  # path → SHA-256
    commit: str = ""
    revision: str = ""
    added: Mapping[str, Any] = field(default_factory=dict)  # to its manifest, by the registry

    @property
    def integrity(self) -> str:
        """One checksum of all files."""
        return integrity_of(self.files)


@dataclass(frozen=True)
class Place:
    """A directory of plugins that one program finds, in a project or for a user."""

    scope: Scope
    program: Program
    base: Path

    @property
    def lockfile(self) -> Path:
        """Beside the directory, to be kept under version control with the project."""
        name = "plugins.lock.json" if self.program == "fractary" else "forge-plugins.lock.json"
        return self.base.parent / name

    @property
    def swap(self) -> Swap:
        """Replaces plugin folders and the lockfile together; the caller holds the lock."""
        hidden = self.base.parent / ".forge" if self.program == "claude" else self.base
        staging = hidden / ".staging"
        return Swap(Area(staging / "journal.json", staging, hidden / ".kept"))

    def pins(self) -> dict[str, Pin]:
        """What the lockfile says, by the plugin's name. Raises `ForgeError` if it is unusable."""
        try:
            data = read_mapping(self.lockfile, MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            return {}
        except UnparsableError as error:
            raise ForgeError.config(self.lockfile, str(error)) from error
        if data.get("version") != FORMAT or not isinstance(data.get("plugins"), dict):
            raise ForgeError.config(self.lockfile, "not a lockfile of plugins that can be read")
        return {name: pin for name, row in data["plugins"].items() if (pin := _pin(row))}


@dataclass(frozen=True)
class InstalledPlugin(PluginVersion):
    """A plugin on disk."""

    folder: Path
    manifest: Mapping[str, Any]
    format: Maybe[Format]  # left out where it is Fractary's own
    place: Place
    pin: Pin | None = None  # what the lockfile says of it

    @classmethod
    def of(cls, found: FoundPlugin, place: Place, pin: Pin | None = None) -> InstalledPlugin:
        """A plugin as it is known: what was installed keeps the name that it was asked for by."""
        name, version = found.name, found.version
        if pin:
            name = _folder_name(found.folder)
            version = version_of(found.manifest) or pin.version
        written_in = UNKNOWN if found.format == "fractary" else found.format
        return cls(name, version, found.scope, found.folder, found.manifest, written_in, place, pin)

    def is_behind(self, offer: Offer) -> bool:
        """Whether an offer is newer; without versions another revision is."""
        if is_newer(offer.version, self.version):
            return True
        unversioned = offer.version == NO_VERSION and self.pin and self.pin.revision
        return bool(unversioned and offer.revision and offer.revision != unversioned)

    def is_offered_by(self, offer: Offer) -> bool:
        """Whether an offer is of this plugin: one that came from a registry stays with it.

        What somebody else put where another program finds it came from no registry of ours.
        """
        if self.pin is None and self.place.program != "fractary":
            return False
        known = self.pin.registry if self.pin else ""
        return offer.name == self.name and known in ("", offer.registry.name)


def lock_of(pins: Mapping[str, Pin]) -> bytes:
    """The lockfile for some plugins."""
    rows = {
        name: {
            "version": pin.version,
            "registry": pin.registry,
            "source": dict(pin.source),
            **({"commit": pin.commit} if pin.commit else {}),
            **({"revision": pin.revision} if pin.revision else {}),
            **({"added": dict(pin.added)} if pin.added else {}),
            "integrity": pin.integrity,
            "files": dict(sorted(pin.files.items())),
        }
        for name, pin in sorted(pins.items())
    }
    return json_file({"version": FORMAT, "plugins": rows})


def checksums(files: Mapping[str, FileContent]) -> dict[str, str]:
    """The checksum of every file; one that can be run counts as another file."""
    return {
        name: f"sha256-{hashlib.sha256(each.data).hexdigest()}{'+x' if each.executable else ''}"
        for name, each in files.items()
    }


def integrity_of(files: Mapping[str, str]) -> str:
    """One checksum for many."""
    rows = "".join(f"{name}\0{digest}\n" for name, digest in sorted(files.items()))
    return f"sha256-{hashlib.sha256(rows.encode()).hexdigest()}"


def _pin(row: object) -> Pin | None:
    table = row if isinstance(row, dict) else {}
    texts = {key: table.get(key, "") for key in ("version", "registry", "commit", "revision")}
    source, files = _texts(table.get("source")), _texts(table.get("files"))
    if source is None or files is None or not all(isinstance(x, str) for x in texts.values()):
        return None
    added = table.get("added")
    return Pin(**texts, source=source, files=files, added=added if isinstance(added, dict) else {})


def _texts(value: object) -> dict[str, str] | None:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        return None
    return value


SCOPES: tuple[Scope, ...] = ("local", "global")
PROGRAMS: tuple[Program, ...] = ("fractary", "claude")
NO_REGISTRY = f"No registry is configured. {ADD_REGISTRY.for_agent()}"


@dataclass(frozen=True)
class InstalledPlugins:
    """The plugins on disk, the project's first."""

    plugins: tuple[InstalledPlugin, ...]
    broken: Mapping[str, str]  # why a directory cannot be read as a plugin
    interrupted: tuple[str, ...]  # what the next command that writes has to finish

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with any of them."""
        return (*self.interrupted, *self.broken.values())

    def named(self, name: str, place: Place | None = None) -> InstalledPlugin | None:
        """The first plugin of a name."""
        found = (each for each in self.plugins if each.name == name)
        return next((each for each in found if place in (each.place, None)), None)

    def find(self, name: str) -> InstalledPlugin | None:
        """A plugin by its name or its directory's, the project's before the user's.

        Raises `ForgeError` when its directory exists but cannot be read.
        """
        by_folder = (each for each in self.plugins if _folder_name(each.folder) == name)
        found = self.named(name) or next(by_folder, None)
        if found is None and name in self.broken:
            raise ForgeError.invalid(
                f"Plugin {name} cannot be read: {self.broken[name]}",
                run("Install it again: {}", "install", name, "--force"),
                "Or correct the manifest by hand",
                plugin=name,
            )
        return found

    def missing(self, name: str) -> ForgeError:
        """No plugin of a name is installed; says which names are like it."""
        names = {each.name for each in self.plugins}
        return ForgeError.plugin_missing(name, similar=similar_names(name, names - {name}))


class Plugins:
    """Queries over installed and offered plugins."""

    def __init__(
        self, configuration: Configuration, client: RegistryClient, folders: Folders
    ) -> None:
        self._configuration = configuration
        self._client = client
        self._folders = folders

    def place(self, scope: Scope, program: Program = "fractary") -> Place:
        """Where a program finds the plugins of a scope. Raises `ForgeError` without a project."""
        directories = self._configuration.directories
        if program == "claude":
            own = directories.project.parent / ".claude" if scope == "local" else directories.claude
            return Place(scope, "claude", own / "skills")
        root = directories.project if scope == "local" else self._configuration.global_root
        return Place(scope, "fractary", root / "plugins")

    def places(self, scope: str = "all") -> list[Place]:
        """Every directory that plugins are in."""
        there = SCOPES if self._configuration.directories.root else ("global",)
        wanted = [each for each in there if scope in (each, "all")]
        return [self.place(each, program) for each in wanted for program in PROGRAMS]

    def installed(self, *places: Place) -> InstalledPlugins:
        """The plugins on disk, by default everywhere."""
        found: list[InstalledPlugin] = []
        broken: dict[str, str] = {}
        interrupted: list[str] = []
        for place in places or self.places():
            try:
                pins = place.pins()
            except ForgeError as error:
                pins = {}
                interrupted.append(str(error))
            for folder_name, folder in plugin_folders(place.base):
                plugin = self._folders.plugin(folder, place.scope, folder_name)
                if plugin.problem:
                    shown = self._configuration.directories.shown(manifest_of(folder) or folder)
                    broken.setdefault(folder_name, f"{shown}: {plugin.problem}")
                else:
                    found.append(InstalledPlugin.of(plugin, place, pins.get(folder_name)))
            if place.swap.is_pending:
                interrupted.append(
                    f"An installation ({place.scope}) was interrupted; the next "
                    "fleet-agentpack forge install, update or uninstall finishes it"
                )
        return InstalledPlugins(tuple(found), broken, tuple(interrupted))

    def present(self, scope: str = "all") -> InstalledPlugins:
        """Those that forge installed, and those that are there without it."""
        places = self.places(scope)
        installed = self.installed(*places)
        known = {os.path.realpath(each.folder) for each in installed.plugins}
        found: list[InstalledPlugin] = []
        broken = dict(installed.broken)
        for each in dict.fromkeys(place.scope for place in places):
            for plugin in self._folders.plugins(each):
                if os.path.realpath(plugin.folder) in known or plugin.name in broken:
                    continue
                if plugin.problem:
                    shown = self._configuration.directories.shown(plugin.folder)
                    broken[plugin.name] = f"{shown}: its manifest is {plugin.problem}"
                    continue
                at = Place(each, "claude", plugin.folder.parent)
                found.append(InstalledPlugin.of(plugin, at))
        return replace(installed, plugins=(*installed.plugins, *found), broken=broken)

    def listing(self, scope: str, *, outdated: bool) -> results.PluginList:
        """Plugins on disk; the network is asked only for what is outdated."""
        installed = self.present(scope)
        registries = self._configuration.manifest_registries
        ask = outdated and bool(installed.plugins)
        survey = self._client.survey(registries, network=ask)
        rows = [self._row(plugin, survey) for plugin in installed.plugins]
        said = [*installed.warnings, *self._folders.warnings]
        nothing = not rows and not said and not self._configuration.directories.no_project
        if outdated:
            rows = [row for row in rows if row.hasUpdate is True]
        warnings = self._configuration.noted(
            said,
            [NO_REGISTRY] if ask and not registries else [],
            survey.warnings,
            [sought("plugin", scope)] if nothing else [],
        )
        return results.PluginList(tuple(rows), len(rows), warnings)

    def info(self, name: str, wanted: str, *, remote: bool) -> results.PluginInfo:
        """One plugin, as it is on disk or as a registry offers it. Raises `ForgeError`."""
        installed = self.present()
        noticed = [*self._configuration.warnings, *installed.interrupted]
        if not remote:
            found = self._local_info(name, wanted, installed)
            return replace(found, warnings=noted(noticed))
        own = None
        try:
            own = installed.find(name)
        except ForgeError as error:
            noticed.append(str(error))
        survey = self.survey()
        noticed += survey.warnings
        offers = [offer for offer in survey.offers if offer.name == name]
        offer = choose(offers, wanted)
        versions = [version for each in offers for version in each.versions]
        if offer:
            package = self._glanced(offer)
            given = {**of_offer(offer), **package.manifest}
            version = version_of(package.manifest) or offer.version
            return replace(
                plugin_info(name, version, given, package.parts),
                installed=self._installed_copy(own) if own else UNKNOWN,
                availableVersions=newest_first(versions),
                warnings=noted(noticed, package.warnings),
            )
        if own is None or offers:
            raise not_offered(
                Reference(name, wanted), survey, newest_first([each.version for each in offers])
            )
        if survey.searched:
            noticed.append(f"{name} is in no registry that answered; this is the installed one")
        return replace(self._local_info(name, wanted, installed), warnings=noted(noticed))

    def search(
        self, query: str, tags: Sequence[str], limit: int, offset: int
    ) -> results.PluginSearch:
        """Plugins that registries offer, the best match first.

        Raises `ForgeError` when there are registries and none of them could be asked.
        """
        survey = self.survey()
        matches = ranked(survey.offers, query, tags)
        start = max(offset, 0)
        rows = tuple(
            results.PluginMatch(
                name=offer.name,
                version=offer.version,
                description=offer.description,
                author=offer.author,
                tags=offer.tags or UNKNOWN,
                downloads=offer.downloads,
                registry=offer.registry.name,
            )
            for offer in matches[start : start + max(limit, 0)]
        )
        warnings = self._configuration.noted(survey.warnings)
        return results.PluginSearch(rows, len(matches), query, warnings)

    def survey(self) -> Survey:
        """What all registries offer. Raises `ForgeError` when none of them answered."""
        registries = self._configuration.manifest_registries
        survey = self._client.survey(registries)
        if not registries:
            return replace(survey, warnings=(NO_REGISTRY,))
        if len(survey.unreached) == len(registries):
            errors = [error for _, error in survey.unreached]
            steps = {step.for_agent(): step for error in errors for step in error.actions}
            raise ForgeError(
                errors[0].code,
                f"No registry could be read: {'; '.join(str(error) for error in errors)}",
                *steps.values(),
                registries={name: str(error) for name, error in survey.unreached},
            )
        return survey

    def package_of(self, offer: Offer) -> Package:
        """The plugin with its files, their checksums verified. Raises `ForgeError`."""
        return package_of(offer, self._client, self._configuration)

    def _glanced(self, offer: Offer) -> Package:
        """The same for somebody who waits: without files that do not come at once."""
        try:
            return package_of(offer, self._client, self._configuration, QUICK_S)
        except ForgeError as error:
            # An entry with a source describes the plugin: it can be shown without its files.
            listed_alone = isinstance(offer.origin, ManifestFile)
            if error.code == "INTEGRITY_ERROR" or listed_alone:
                raise
            return Package(offer, {}, warnings=(f"This is what the registry says: {error}",))

    def _row(self, plugin: InstalledPlugin, survey: Survey) -> results.PluginRow:
        offers = [offer for offer in survey.offers if plugin.is_offered_by(offer)]
        latest = best_version([version for offer in offers for version in offer.versions])
        behind = any(plugin.is_behind(offer) for offer in offers)
        newer = latest is not None and (is_newer(latest, plugin.version) or behind)
        return results.PluginRow(
            name=plugin.name,
            version=plugin.version,
            scope=plugin.scope,
            path=self._configuration.directories.shown(plugin.folder),
            hasUpdate=UNKNOWN if latest is None else newer,
            latestVersion=latest or UNKNOWN,
            format=plugin.format,
        )

    def _local_info(
        self, name: str, wanted: str, installed: InstalledPlugins
    ) -> results.PluginInfo:
        own = installed.find(name)
        if own is None:
            raise installed.missing(name)
        if wanted != "latest" and best_version([own.version], wanted) is None:
            raise ForgeError.plugin_missing(f"{name}@{wanted}", versions=[own.version])
        parts = components(own.manifest, own.folder)
        found = plugin_info(own.name, own.version, own.manifest, parts)
        copy = self._installed_copy(own)
        return replace(found, format=own.format, installed=copy)

    def _installed_copy(self, plugin: InstalledPlugin) -> results.InstalledCopy:
        shown = self._configuration.directories.shown(plugin.folder)
        return results.InstalledCopy(plugin.scope, shown, plugin.version)


def _folder_name(folder: Path) -> str:
    scope = folder.parent.name
    return f"{scope}/{folder.name}" if scope.startswith("@") else folder.name
