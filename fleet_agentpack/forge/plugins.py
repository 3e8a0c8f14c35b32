"""Plugins: those installed, with their components, and those that registries offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.config import Configuration
from fleet_agentpack.forge.definitions import version_of
from fleet_agentpack.forge.errors import ADD_REGISTRY, ForgeError
from fleet_agentpack.forge.masking import masked_url
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
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.kit.semver import best_version, is_newer

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

    def installed(self, warnings: list[str], scope: str = "all") -> list[Installed]:
        """The plugins on disk, the project's first; one that is broken is a warning."""
        broken: dict[str, str] = {}
        plugins = self._on_disk(scope, broken, warnings)
        warnings.extend(broken.values())
        return plugins

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
        if not remote:
            return self._local_info(name, wanted, self.find_installed(name, warnings))
        try:
            own = self.find_installed(name, warnings)
        except ForgeError as error:
            warnings.append(str(error))
            own = None
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
            errors = [error for _, error in survey.unreached]
            advice = [each for error in errors for each in error.suggestions]
            raise ForgeError(
                errors[0].code,
                f"No registry was reached: {'; '.join(str(error) for error in errors)}",
                details={"registries": {name: str(error) for name, error in survey.unreached}},
                suggestions=list(dict.fromkeys(advice)),
            )
        return survey

    def find_installed(self, name: str, warnings: list[str]) -> Installed | None:
        """An installed plugin by its name or its directory's, the project's before the user's.

        Raises `ForgeError` when its directory is there and cannot be read.
        """
        broken: dict[str, str] = {}
        plugins = self._on_disk("all", broken, warnings)
        by_name = [each for each in plugins if each.name == name]
        by_folder = [each for each in plugins if _folder_name(each.folder) == name]
        found = next(iter([*by_name, *by_folder]), None)
        if found is None and name in broken:
            raise ForgeError.invalid(
                f"Plugin {name} cannot be read: {broken[name]}",
                f"Install it again: fleet-agentpack forge install {name} --force",
                "Or correct the manifest by hand",
                plugin=name,
            )
        return found

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
                f"invalid plugin manifest from {masked_url(offer.manifest_url)}", plugin=offer.name
            ) from error

    def _on_disk(self, scope: str, broken: dict[str, str], warnings: list[str]) -> list[Installed]:
        """The plugins that can be read; why others cannot goes to `broken`, by their directory."""
        scopes: tuple[Scope, ...] = ("local", "global")
        wanted = [each for each in scopes if scope in (each, "all")]
        for each in wanted:
            if is_interrupted(self.base(each)):
                warnings.append(
                    f"An installation ({each}) was interrupted; the next "
                    "fleet-agentpack forge install, update or uninstall finishes it"
                )
        return [plugin for each in wanted for plugin in self._in_scope(each, broken)]

    def _in_scope(self, scope: Scope, broken: dict[str, str]) -> Iterator[Installed]:
        shown = self._configuration.places.shown
        for folder_name, folder in plugin_folders(self.base(scope)):
            path = manifest_of(folder)
            try:
                manifest = read_mapping(path, MAX_MANIFEST_BYTES) if path else {}
            except FileNotFoundError:
                continue
            except UnparsableError as error:
                broken.setdefault(folder_name, f"{shown(path or folder)}: {error}")
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
            versions = newest_first([each.version for each in offers])
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
