"""Plugins: those installed, with their components, and those that registries offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.config import Configuration
from fleet_agentpack.forge.definitions import version_of
from fleet_agentpack.forge.errors import ADD_REGISTRY, ForgeError
from fleet_agentpack.forge.names import version_order
from fleet_agentpack.forge.parsing import (
    MAX_MANIFEST_BYTES,
    UnparsableError,
    as_mapping,
    parse_json,
    parse_yaml,
    read_mapping,
)
from fleet_agentpack.forge.plugin_folders import manifest_of, plugin_folders
from fleet_agentpack.forge.plugin_manifest import (
    COMPONENTS,
    components,
    components_in,
    described,
    of_offer,
)
from fleet_agentpack.forge.registries import Offer, RegistryClient, Survey
from fleet_agentpack.forge.search import ranked
from fleet_agentpack.forge.swapping import is_interrupted
from fleet_agentpack.support.results import UNKNOWN
from fleet_agentpack.support.semver import best_version, is_newer

Scope = Literal["local", "global"]
NO_REGISTRY = f"No registry is configured. {ADD_REGISTRY}"


@dataclass(frozen=True)
class Installed:
    """A plugin on disk."""

    name: str
    version: str
    scope: Scope
    folder: Path
    manifest: Mapping[str, Any]


class Plugins:
    """Queries over installed and offered plugins."""

    def __init__(self, configuration: Configuration, client: RegistryClient) -> None:
        self._configuration = configuration
        self._client = client

    def base(self, scope: Scope) -> Path:
        """The directory that a scope's plugins are in."""
        configuration = self._configuration
        root = configuration.places.project if scope == "local" else configuration.global_root
        return root / "plugins"

    def installed(
        self, warnings: list[str], scope: str = "all", *, about: str | None = None
    ) -> list[Installed]:
        """The plugins on disk, the project's first; one that is broken is a warning.

        With `about`, only the plugin in that directory is warned of.
        """
        scopes: tuple[Scope, ...] = ("local", "global")
        wanted = [each for each in scopes if scope in (each, "all")]
        for each in wanted:
            if is_interrupted(self.base(each)):
                warnings.append(
                    f"An installation ({each}) was interrupted; the next "
                    "fleet-agentpack forge install, update or uninstall finishes it"
                )
        return [plugin for each in wanted for plugin in self._in_scope(each, warnings, about)]

    def listing(self, scope: str, *, outdated: bool, warnings: list[str]) -> dict[str, Any]:
        """Installed plugins; the network is asked only for what is outdated."""
        plugins = self.installed(warnings, scope)
        registries = self._configuration.manifest_registries
        if outdated and plugins and not registries:
            warnings.append(NO_REGISTRY)
        survey = self._client.survey(registries, warnings, network=outdated and bool(plugins))
        rows = [self._row(plugin, survey) for plugin in plugins]
        if outdated:
            rows = [row for row in rows if row["hasUpdate"] is True]
        return {"plugins": rows, "total": len(rows)}

    def info(self, name: str, wanted: str, *, remote: bool, warnings: list[str]) -> dict[str, Any]:
        """One plugin, as installed or as a registry offers it. Raises `ForgeError`."""
        own = self.find_installed(name, warnings)
        if not remote:
            return self._local_info(name, wanted, own)
        survey = self.survey(warnings)
        offers = [offer for offer in survey.offers if offer.name == name]
        offer = choose(offers, wanted)
        if offer is None:
            return self._without_offer(name, wanted, own, survey, offers, warnings)
        manifest = self.manifest_of_offer(offer, warnings)
        versions = [version for each in offers for version in each.versions]
        return {
            **described(name, {**of_offer(offer), **manifest}, components(manifest)),
            "version": version_of(manifest) or offer.version,
            "installed": self._installed_part(own) if own else UNKNOWN,
            "availableVersions": newest_first(versions),
        }

    def search(
        self, query: str, tags: Sequence[str], limit: int, offset: int, warnings: list[str]
    ) -> dict[str, Any]:
        """Plugins that registries offer, the best match first.

        Raises `ForgeError` when there are registries and none of them could be asked.
        """
        survey = self.survey(warnings)
        matches = ranked(survey.offers, query, tags)
        rows = [
            {
                "name": offer.name,
                "version": offer.version,
                "description": offer.description,
                "author": offer.author,
                "tags": list(offer.tags) if offer.tags else UNKNOWN,
                "downloads": offer.downloads,
                "registry": offer.registry.name,
            }
            for offer in matches
        ]
        start = max(offset, 0)
        return {
            "results": rows[start : start + max(limit, 0)],
            "total": len(rows),
            "query": query,
        }

    def survey(self, warnings: list[str]) -> Survey:
        """What all registries offer. Raises `ForgeError` when none of several could be asked."""
        registries = self._configuration.manifest_registries
        if not registries:
            warnings.append(NO_REGISTRY)
        survey = self._client.survey(registries, warnings)
        if registries and len(survey.unreached) == len(registries):
            error = survey.unreached[0][1]
            raise ForgeError(
                error.code,
                f"No registry was reached: {error}",
                details={"registries": {name: str(each) for name, each in survey.unreached}},
                suggestions=error.suggestions,
            )
        return survey

    def find_installed(self, name: str, warnings: list[str]) -> Installed | None:
        """An installed plugin by its name or its directory's, the project's before the user's."""
        plugins = self.installed(warnings, about=name)
        for plugin in plugins:
            if plugin.name == name:
                return plugin
        return next((each for each in plugins if _folder_name(each.folder) == name), None)

    def manifest_of_offer(self, offer: Offer, warnings: list[str]) -> dict[str, Any]:
        """The plugin's own manifest, its checksum verified. Raises `ForgeError`."""
        if offer.checksum is None:
            warnings.append(f"{offer.registry.name} gives no checksum for {offer.name}")
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
            return as_mapping(parse_yaml(text) if is_yaml else parse_json(text))
        except (UnicodeDecodeError, UnparsableError) as error:
            raise ForgeError.network(
                f"invalid plugin manifest from {offer.manifest_url}", plugin=offer.name
            ) from error

    def _in_scope(
        self, scope: Scope, warnings: list[str], about: str | None
    ) -> Iterator[Installed]:
        shown = self._configuration.places.shown
        for folder_name, folder in plugin_folders(self.base(scope)):
            path = manifest_of(folder)
            try:
                manifest = read_mapping(path, MAX_MANIFEST_BYTES) if path else {}
            except FileNotFoundError:
                continue
            except UnparsableError as error:
                if about in (None, folder_name):
                    warnings.append(f"{shown(path or folder)}: {error}")
                continue
            name = manifest.get("name")
            known = name if isinstance(name, str) and name else folder_name
            yield Installed(known, version_of(manifest), scope, folder, manifest)

    def _row(self, plugin: Installed, survey: Survey) -> dict[str, Any]:
        latest = best_version(
            [v for offer in survey.offers if offer.name == plugin.name for v in offer.versions]
        )
        return {
            "name": plugin.name,
            "version": plugin.version,
            "scope": plugin.scope,
            "path": self._configuration.places.shown(plugin.folder),
            "hasUpdate": UNKNOWN if latest is None else is_newer(latest, plugin.version),
            "latestVersion": latest or UNKNOWN,
        }

    def _local_info(self, name: str, wanted: str, own: Installed | None) -> dict[str, Any]:
        if own is None:
            raise ForgeError.plugin_missing(name, searched=[], installed_only=True)
        if wanted != "latest" and best_version([own.version], wanted) is None:
            raise ForgeError.plugin_missing(
                f"{name}@{wanted}",
                searched=[],
                installed_only=True,
                versions=[own.version],
            )
        return {
            **described(own.name, own.manifest, self.components(own)),
            "version": own.version,
            "installed": self._installed_part(own),
        }

    def components(self, plugin: Installed) -> dict[str, list[str]]:
        """The names of a plugin's parts: those of its manifest, then those only on disk."""
        named, on_disk = components(plugin.manifest), components_in(plugin.folder)
        return {kind: list(dict.fromkeys([*named[kind], *on_disk[kind]])) for kind in COMPONENTS}

    def _without_offer(
        self,
        name: str,
        wanted: str,
        own: Installed | None,
        survey: Survey,
        offers: Sequence[Offer],
        warnings: list[str],
    ) -> dict[str, Any]:
        if own is None or offers:
            versions = newest_first([version for each in offers for version in each.versions])
            raise ForgeError.plugin_missing(
                name if wanted == "latest" else f"{name}@{wanted}",
                searched=survey.searched,
                versions=versions,
            )
        if survey.searched:
            warnings.append(f"{name} is in no registry that was reached; this is the installed one")
        return self._local_info(name, wanted, own)

    def _installed_part(self, plugin: Installed) -> dict[str, str]:
        return {
            "scope": plugin.scope,
            "path": self._configuration.places.shown(plugin.folder),
            "installedVersion": plugin.version,
        }


def choose(offers: Sequence[Offer], wanted: str) -> Offer | None:
    """The highest offer that fits, the first registry's among equals."""
    version = best_version([offer.version for offer in offers], wanted)
    return next((offer for offer in offers if offer.version == version), None)


def newest_first(versions: Sequence[str]) -> list[str]:
    """Versions in falling order, each once; what is no version comes last."""
    return sorted(dict.fromkeys(versions), key=version_order, reverse=True)


def _folder_name(folder: Path) -> str:
    scope = folder.parent.name
    return f"{scope}/{folder.name}" if scope.startswith("@") else folder.name
