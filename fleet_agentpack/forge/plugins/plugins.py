"""Plugins: those installed, with their components, and those that registries offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleet_agentpack.forge import parsing, results
from fleet_agentpack.forge.config.configuration import Configuration
from fleet_agentpack.forge.config.masking import masked_url
from fleet_agentpack.forge.definitions.definition import version_of
from fleet_agentpack.forge.errors import ADD_REGISTRY, ForgeError, run
from fleet_agentpack.forge.loaded import noted
from fleet_agentpack.forge.names import Scope, version_order
from fleet_agentpack.forge.plugins.folders import manifest_of, plugin_folders, plugin_swap
from fleet_agentpack.forge.plugins.manifest import components, of_offer, plugin_info
from fleet_agentpack.forge.plugins.search import ranked
from fleet_agentpack.forge.registries.client import Offer, RegistryClient, Survey
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.kit.semver import best_version, is_newer

SCOPES: tuple[Scope, ...] = ("local", "global")
NO_REGISTRY = f"No registry is configured. {ADD_REGISTRY.for_agent()}"


@dataclass(frozen=True)
class InstalledPlugin(results.PluginVersion):
    """A plugin on disk."""

    folder: Path
    manifest: Mapping[str, Any]


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

    def named(self, name: str, scope: Scope | None = None) -> InstalledPlugin | None:
        """The first plugin of a name."""
        found = (each for each in self.plugins if each.name == name)
        return next((each for each in found if scope in (each.scope, None)), None)

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


@dataclass(frozen=True)
class Package:
    """A plugin that a registry offers, with its own manifest."""

    offer: Offer
    manifest: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


class Plugins:
    """Queries over installed and offered plugins."""

    def __init__(self, configuration: Configuration, client: RegistryClient) -> None:
        self._configuration = configuration
        self._client = client

    def base(self, scope: Scope) -> Path:
        """The directory that a scope's plugins are in."""
        configuration = self._configuration
        root = configuration.directories.project if scope == "local" else configuration.global_root
        return root / "plugins"

    def installed(self, scope: str = "all") -> InstalledPlugins:
        """The plugins on disk."""
        there = SCOPES if self._configuration.directories.root else ("global",)
        wanted = [each for each in there if scope in (each, "all")]
        found: list[InstalledPlugin] = []
        broken: dict[str, str] = {}
        for each in wanted:
            for folder_name, folder in plugin_folders(self.base(each)):
                path = manifest_of(folder)
                try:
                    manifest = (
                        parsing.read_mapping(path, parsing.MAX_MANIFEST_BYTES) if path else {}
                    )
                except FileNotFoundError:
                    continue
                except parsing.UnparsableError as error:
                    shown = self._configuration.directories.shown(path or folder)
                    broken.setdefault(folder_name, f"{shown}: {error}")
                    continue
                name = manifest.get("name")
                known = name if isinstance(name, str) and name else folder_name
                found.append(InstalledPlugin(known, version_of(manifest), each, folder, manifest))
        interrupted = [
            f"An installation ({each}) was interrupted; the next "
            "fleet-agentpack forge install, update or uninstall finishes it"
            for each in wanted
            if plugin_swap(self.base(each)).is_pending
        ]
        return InstalledPlugins(tuple(found), broken, tuple(interrupted))

    def listing(self, scope: str, *, outdated: bool) -> results.PluginList:
        """Installed plugins; the network is asked only for what is outdated."""
        installed = self.installed(scope)
        registries = self._configuration.manifest_registries
        ask = outdated and bool(installed.plugins)
        survey = self._client.survey(registries, network=ask)
        rows = [self._row(plugin, survey) for plugin in installed.plugins]
        if outdated:
            rows = [row for row in rows if row.hasUpdate is True]
        warnings = self._configuration.noted(
            installed.warnings, [NO_REGISTRY] if ask and not registries else [], survey.warnings
        )
        return results.PluginList(tuple(rows), len(rows), warnings)

    def info(self, name: str, wanted: str, *, remote: bool) -> results.PluginInfo:
        """One plugin, as installed or as a registry offers it. Raises `ForgeError`."""
        installed = self.installed()
        noticed = [*self._configuration.warnings, *installed.interrupted]
        if not remote:
            found = self._local_info(name, wanted, installed.find(name))
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
            package = self.package_of(offer)
            given = {**of_offer(offer), **package.manifest}
            version = version_of(package.manifest) or offer.version
            return replace(
                plugin_info(name, version, given, components(package.manifest)),
                installed=self._installed_copy(own) if own else UNKNOWN,
                availableVersions=newest_first(versions),
                warnings=noted(noticed, package.warnings),
            )
        if own is None or offers:
            raise ForgeError.plugin_missing(
                name if wanted == "latest" else f"{name}@{wanted}",
                searched=survey.searched,
                versions=newest_first([each.version for each in offers]),
            )
        if survey.searched:
            noticed.append(f"{name} is in no registry that answered; this is the installed one")
        return replace(self._local_info(name, wanted, own), warnings=noted(noticed))

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
        """The plugin's own manifest, its checksum verified. Raises `ForgeError`."""
        warnings: list[str] = []
        if offer.checksum is None:
            warnings.append(f"Registry {offer.registry.name} has no checksum for {offer.name}")
        try:
            body = self._client.download(offer, offer.manifest_url, offer.checksum)
        except ForgeError as error:
            if error.code != "INTEGRITY_ERROR" or self._configuration.verify_checksums:
                raise
            warnings.append(f"{error} (install.verify_checksums is off)")
            body = self._client.download(offer, offer.manifest_url, None)
        try:
            text = body.decode("utf-8-sig")
            is_yaml = offer.manifest_url.endswith((".yaml", ".yml"))
            manifest = parsing.as_mapping(
                parsing.parse_yaml(text) if is_yaml else parsing.parse_json(text)
            )
        except (UnicodeDecodeError, parsing.UnparsableError) as error:
            raise ForgeError.network(
                f"invalid plugin manifest from {masked_url(offer.manifest_url)}", plugin=offer.name
            ) from error
        return Package(offer, manifest, tuple(warnings))

    def _row(self, plugin: InstalledPlugin, survey: Survey) -> results.PluginRow:
        latest = best_version(
            [v for offer in survey.offers if offer.name == plugin.name for v in offer.versions]
        )
        return results.PluginRow(
            name=plugin.name,
            version=plugin.version,
            scope=plugin.scope,
            path=self._configuration.directories.shown(plugin.folder),
            hasUpdate=UNKNOWN if latest is None else is_newer(latest, plugin.version),
            latestVersion=latest or UNKNOWN,
        )

    def _local_info(
        self, name: str, wanted: str, own: InstalledPlugin | None
    ) -> results.PluginInfo:
        if own is None:
            raise ForgeError.plugin_missing(name)
        if wanted != "latest" and best_version([own.version], wanted) is None:
            raise ForgeError.plugin_missing(f"{name}@{wanted}", versions=[own.version])
        parts = components(own.manifest, own.folder)
        found = plugin_info(own.name, own.version, own.manifest, parts)
        return replace(found, installed=self._installed_copy(own))

    def _installed_copy(self, plugin: InstalledPlugin) -> results.InstalledCopy:
        shown = self._configuration.directories.shown(plugin.folder)
        return results.InstalledCopy(plugin.scope, shown, plugin.version)


def choose(offers: Sequence[Offer], wanted: str) -> Offer | None:
    """The highest offer that fits, the first registry's among equals."""
    version = best_version([offer.version for offer in offers], wanted)
    return next((offer for offer in offers if offer.version == version), None)


def newest_first(versions: Sequence[str]) -> tuple[str, ...]:
    """Versions in falling order, each once; what is not a version comes last."""
    return tuple(sorted(dict.fromkeys(versions), key=version_order, reverse=True))


def _folder_name(folder: Path) -> str:
    scope = folder.parent.name
    return f"{scope}/{folder.name}" if scope.startswith("@") else folder.name
