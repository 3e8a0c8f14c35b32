"""Installs, updates and removes plugins: all of a plugin and what it needs, or nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from fleet_agentpack.forge.command_results import Installation, PluginUpdate, Removal, Updates
from fleet_agentpack.forge.config.configuration import Configuration
from fleet_agentpack.forge.errors import MOST_SHOWN, ForgeError, call, run
from fleet_agentpack.forge.files import write_json, writing_below
from fleet_agentpack.forge.forks.forks import is_breaking
from fleet_agentpack.forge.loaded import Loaded, noted
from fleet_agentpack.forge.names import Reference, Scope, checked_reference, is_usable_name
from fleet_agentpack.forge.plugins.folders import MANIFESTS, manifest_of, plugin_swap
from fleet_agentpack.forge.plugins.manifest import dependencies_of
from fleet_agentpack.forge.plugins.plugins import (
    InstalledPlugin,
    InstalledPlugins,
    Package,
    Plugins,
    choose,
)
from fleet_agentpack.forge.registries.client import Offer, RegistryClient, checksum_of, safe_url
from fleet_agentpack.forge.results import PluginVersion
from fleet_agentpack.kit.results import UNKNOWN, jsonable
from fleet_agentpack.kit.semver import is_newer
from fleet_agentpack.kit.swap import New, Swap

MOST_DEPENDENCIES = 50

# Kind of component → the endings its files may have; the first is the default.
ENDINGS = {
    "agents": (".yaml", ".yml", ".md"),
    "tools": (".yaml", ".yml", ".md"),
    "workflows": (".yaml", ".yml", ".json"),
    "templates": (".yaml", ".yml", ".md"),
    "hooks": (".js", ".sh", ".py"),
    "commands": (".md",),
}


@dataclass(frozen=True)
class ListedComponent:
    """One component as a manifest lists it, not yet checked."""

    kind: str
    name: object
    source: object
    checksum: str | None


@dataclass(frozen=True)
class Installer:
    """Writes below the `plugins` directories of a project and of a user."""

    _configuration: Configuration
    _plugins: Plugins
    _client: RegistryClient

    def install(self, plugin: str, scope: Scope, *, force: bool = False) -> Installation:
        """Install a plugin and what it needs, all of it or nothing. Raises `ForgeError`."""
        reference = checked_reference("plugin", plugin)
        survey = self._plugins.survey()
        order = self._with_dependencies(reference, survey.offers, scope)
        if not order.value:
            raise ForgeError.plugin_missing(str(reference), searched=survey.searched)
        with self._writing(scope) as swap:
            installed = self._plugins.installed(scope)
            own = installed.named(reference.name)
            if own and not force:
                raise ForgeError.conflict(
                    f"{own.name} {own.version} is already installed ({scope})",
                    run("Update it: {}", "update", own.name),
                    "Or install it again with --force",
                )
            self._put(order.value, scope, installed, swap.value, force=force)
        return Installation(
            tuple(
                PluginVersion(each.offer.name, each.offer.version, scope) for each in order.value
            ),
            self._configuration.noted(
                survey.warnings, order.warnings, swap.warnings, installed.warnings
            ),
        )

    def uninstall(self, name: str, scope: Scope | None, *, force: bool = False) -> Removal:
        """Remove a plugin. Raises `ForgeError` when it was edited or is needed, unless forced."""
        name = checked_reference("plugin", name).name
        installed = self._plugins.installed()
        own = installed.named(name, scope)
        if own is None:
            raise ForgeError.plugin_missing(name)
        copies = [each for each in installed.plugins if each.name == name]
        needing = [each.name for each in installed.plugins if name in _needs(each.manifest)]
        if needing and len(copies) == 1 and not force:
            raise ForgeError.dependency(
                f"{', '.join(needing)} needs {name}; nothing was removed",
                f"Remove {needing[0]} first, or use --force",
                plugin=name,
                neededBy=needing,
            )
        with self._writing(own.scope) as swap:
            if not force:
                _refuse_edited(own)
            swap.value.replace({own.folder: None})
        removed = PluginVersion(own.name, own.version, own.scope)
        warnings = self._configuration.noted(installed.warnings, swap.warnings)
        return Removal(removed, warnings)

    def update(
        self, names: Sequence[str], *, breaking: bool = False, dry_run: bool = False
    ) -> Updates:
        """Update installed plugins, by name or all; a major step only when asked for."""
        installed = self._plugins.installed()
        unknown = set(names) - {each.name for each in installed.plugins}
        if unknown:
            raise ForgeError.plugin_missing(min(unknown))
        survey = self._plugins.survey()
        updated: list[PluginUpdate] = []
        skipped: list[PluginUpdate] = []
        warnings = [*self._configuration.warnings, *installed.warnings, *survey.warnings]
        for plugin in installed.plugins:
            offers = [each for each in survey.offers if each.name == plugin.name]
            newest = choose(offers, "latest")
            if (names and plugin.name not in names) or newest is None:
                continue
            current = self._plugins.installed(plugin.scope).named(plugin.name) or plugin
            if not is_newer(newest.version, current.version):
                continue  # also when another plugin's update has brought it along
            step = PluginUpdate(plugin.name, plugin.version, newest.version)
            if is_breaking(plugin.version, newest.version) and not breaking:
                skipped.append(replace(step, reason="breaking"))
                continue
            if not dry_run:
                reference = Reference(plugin.name, newest.version)
                warnings += self._update(reference, plugin.scope, survey.offers, updated)
            updated.append(replace(step, scope=plugin.scope))
        return Updates(tuple(updated), tuple(skipped), dry_run, noted(warnings))

    def _update(
        self,
        reference: Reference,
        scope: Scope,
        offers: Sequence[Offer],
        done: Sequence[PluginUpdate],
    ) -> tuple[str, ...]:
        """Update one plugin with what it needs; an error names those that were updated before."""
        try:
            order = self._with_dependencies(reference, offers, scope)
            with self._writing(scope) as swap:
                installed = self._plugins.installed(scope)
                self._put(order.value, scope, installed, swap.value, force=False)
        except ForgeError as error:
            if not done:
                raise
            before = ", ".join(each.name for each in done)
            raise ForgeError(
                error.code,
                f"{error} (already updated: {before})",
                *error.actions,
                **error.details,
                updated=jsonable(done),
            ) from error
        return (*order.warnings, *swap.warnings)

    def _with_dependencies(
        self, reference: Reference, offers: Sequence[Offer], scope: Scope
    ) -> Loaded[list[Package]]:
        """The plugin and those it needs that are not installed; empty when no registry offers it.

        Raises `ForgeError` when no registry offers a dependency, or not in one version for all.
        """
        chosen: dict[str, Package] = {}
        warnings: list[str] = []
        pending = [(reference, "")]
        while pending:
            wanted, needed_by = pending.pop(0)
            known = chosen.get(wanted.name)
            if known and wanted.choose([known.offer.version]) is None:
                raise _unmet(needed_by, wanted, f"but another plugin needs {known.offer.version}")
            if known or (needed_by and self._satisfied(wanted, scope)):
                continue
            offer = choose([each for each in offers if each.name == wanted.name], wanted.wanted)
            if offer is None and needed_by:
                raise _unmet(needed_by, wanted, "which no registry offers")
            if offer is None:
                return Loaded([])
            chosen[wanted.name] = package = self._plugins.package_of(offer)
            warnings += package.warnings
            if len(chosen) > MOST_DEPENDENCIES:
                raise ForgeError.dependency(
                    f"{reference.name} needs more than {MOST_DEPENDENCIES} plugins; "
                    "nothing was installed"
                )
            needs = [Reference(name, ask) for name, ask in _needs(package.manifest).items()]
            if self._configuration.auto_install_dependencies:
                pending += [(need, wanted.name) for need in needs]
            else:
                warnings += [
                    f"{wanted.name} needs {need}, which is not installed"
                    for need in needs
                    if not self._satisfied(need, scope)
                ]
        return Loaded(list(reversed(chosen.values())), tuple(warnings))

    def _satisfied(self, wanted: Reference, scope: Scope) -> bool:
        """Whether a plugin of that scope finds what it needs; all projects share the global one."""
        own = self._plugins.installed(scope).named(wanted.name)
        if own is None and scope == "local":
            own = self._plugins.installed("global").named(wanted.name)
        return own is not None and wanted.choose([own.version]) is not None

    def _put(
        self,
        order: Sequence[Package],
        scope: Scope,
        installed: InstalledPlugins,
        swap: Swap,
        *,
        force: bool,
    ) -> None:
        """Stage everything, then put it in place together."""
        changes: dict[Path, New] = {}
        for package in order:
            name = package.offer.name
            own = installed.named(name)
            place = own.folder if own else self._plugins.base(scope) / name
            if own is None:
                _refuse_occupied(place, force=force)
            elif not force:
                _refuse_edited(own)
            changes[place] = partial(self._stage, package)
        swap.replace(changes)

    def _stage(self, package: Package, folder: Path) -> None:
        offer, manifest = package.offer, package.manifest
        for name, url, checksum in _files(offer, manifest):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(self._content(offer, name, url, checksum))
        # Known by the name it was requested by, whatever its manifest calls it.
        known_as = {"name": offer.name, "version": offer.version}
        write_json(folder / "plugin.json", {**manifest, **known_as})

    def _content(self, offer: Offer, name: str, url: str, checksum: str | None) -> bytes:
        verify = self._configuration.verify_checksums
        if checksum is None and verify:
            raise ForgeError(
                "INTEGRITY_ERROR",
                f"{offer.name}: {name} has no checksum; nothing was installed",
                "Ask the maintainer to add one, or set install.verify_checksums: false",
                plugin=offer.name,
                file=name,
            )
        return self._client.download(offer, url, checksum if verify else None)

    @contextmanager
    def _writing(self, scope: Scope) -> Iterator[Loaded[Swap]]:
        base = self._plugins.base(scope)
        with writing_below(base.parent):
            swap = plugin_swap(base)
            recovered = swap.recover()
            yield Loaded(swap, recovered.left if recovered else ())


def _components(manifest: Mapping[str, Any]) -> Iterator[ListedComponent]:
    inner = manifest.get("components")
    table = {**manifest, **inner} if isinstance(inner, Mapping) else manifest
    for kind in ENDINGS:
        items = table.get(kind)
        for item in items if isinstance(items, list) else ():
            fields = item if isinstance(item, Mapping) else {"name": item}
            source = fields.get("source") or fields.get("url") or fields.get("file")
            yield ListedComponent(
                kind, fields.get("name"), source, checksum_of(fields.get("checksum"))
            )


def _files(offer: Offer, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """The files of a plugin: where each goes, where it comes from, what it must hash to."""
    for each in _components(manifest):
        url, kind = safe_url(offer.manifest_url, each.source), each.kind
        if url is None or not is_usable_name(each.name) or "/" in str(each.name):
            raise ForgeError.invalid(
                f"{offer.name}: one of its {kind} has no usable name or source; "
                "nothing was installed",
                "Tell the plugin's maintainer",
                plugin=offer.name,
            )
        ending = PurePosixPath(urlsplit(url).path).suffix
        file_name = f"{each.name}{ending if ending in ENDINGS[kind] else ENDINGS[kind][0]}"
        yield f"{kind}/{file_name}", url, each.checksum


def _unmet(needed_by: str, wanted: Reference, why: str) -> ForgeError:
    return ForgeError.dependency(
        f"{needed_by} needs {wanted.name}@{wanted.wanted}, {why}; nothing was installed",
        call("plugin_search", "See what is offered: {}"),
        "Or install without dependencies: set install.auto_install_dependencies to false",
        plugin=needed_by,
        missing=wanted.name,
    )


def _needs(manifest: Mapping[str, Any]) -> dict[str, str]:
    found = dependencies_of(manifest)
    return {} if found is UNKNOWN else {k: v for k, v in found.items() if is_usable_name(k)}


def _refuse_occupied(folder: Path, *, force: bool) -> None:
    """Refuse to replace something that is not a plugin: it belongs to the user."""
    is_broken_plugin = folder.is_dir() and manifest_of(folder) is not None
    if os.path.lexists(folder) and not (is_broken_plugin and force):
        raise ForgeError.conflict(
            f"{folder} exists but cannot be read as a plugin; nothing was installed",
            "Install over it with --force" if is_broken_plugin else "Move it away first",
            path=str(folder),
        )


def _refuse_edited(plugin: InstalledPlugin) -> None:
    """Refuse to change a plugin with edited or added files: the user wants to keep them."""
    recorded = dict(_recorded(plugin))
    files = [path for path in sorted(plugin.folder.rglob("*")) if not path.is_dir()]
    edited = [
        name
        for path in files
        if (name := path.relative_to(plugin.folder).as_posix()) not in MANIFESTS
        and (name not in recorded or _differs(path, recorded[name]))
    ]
    if edited:
        more = f" and {len(edited) - MOST_SHOWN} more" if len(edited) > MOST_SHOWN else ""
        raise ForgeError.conflict(
            f"{plugin.name} contains files that were edited or added after installation: "
            f"{', '.join(edited[:MOST_SHOWN])}{more}; nothing was changed",
            "Copy them into an agent or tool of your own, then use --force",
            plugin=plugin.name,
            edited=edited[:MOST_SHOWN],
        )


def _recorded(plugin: InstalledPlugin) -> Iterator[tuple[str, str | None]]:
    """The files that the manifest accounts for, each with its checksum if there is one."""
    for each in _components(plugin.manifest):
        for ending in ENDINGS[each.kind]:
            yield f"{each.kind}/{each.name}{ending}", each.checksum


def _differs(path: Path, digest: str | None) -> bool:
    return digest is not None and hashlib.sha256(path.read_bytes()).hexdigest() != digest
