"""Installs, updates and removes plugins: all of a plugin and what it needs, or nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.catalogue import ManifestFile, Offer, origin_as_text, origin_of_text
from fleet_agentpack.forge.configuration import Configuration
from fleet_agentpack.forge.errors import MOST_SHOWN, ForgeError, Loaded, Warnings, call, noted, run
from fleet_agentpack.forge.folders import MANIFESTS, manifest_of
from fleet_agentpack.forge.forks import is_breaking
from fleet_agentpack.forge.names import (
    Reference,
    Registry,
    Scope,
    checked_reference,
    is_usable_name,
    writing_below,
)
from fleet_agentpack.forge.packages import (
    ENDINGS,
    Package,
    choose,
    dependencies_of,
    listed_components,
    listed_files,
    not_offered,
    rivals,
)
from fleet_agentpack.forge.plugins import (
    InstalledPlugin,
    InstalledPlugins,
    Pin,
    Place,
    Plugins,
    checksums,
    lock_of,
)
from fleet_agentpack.forge.registries import RegistryClient, Survey
from fleet_agentpack.forge.results import PluginVersion
from fleet_agentpack.forge.trees import FileContent, write_files
from fleet_agentpack.kit.results import UNKNOWN, Maybe, json_file, jsonable
from fleet_agentpack.kit.swap import New, Swap


@dataclass(frozen=True)
class Installation:
    """What `install` put in place."""

    installed: tuple[PluginVersion, ...]
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class Removal:
    """What `uninstall` removed."""

    removed: PluginVersion
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class PluginUpdate:
    """A plugin's step to a newer version, or why it was not taken."""

    name: str
    from_: str
    to: str
    scope: Maybe[Scope] = UNKNOWN
    reason: Maybe[Literal["breaking"]] = UNKNOWN


@dataclass(frozen=True)
class Updates:
    """What `update` did, or would do."""

    updated: tuple[PluginUpdate, ...]
    skipped: tuple[PluginUpdate, ...]
    dryRun: bool
    warnings: Warnings = UNKNOWN


def refuse_edited(plugin: InstalledPlugin) -> None:
    """Refuse to change a plugin with edited or added files: the user wants to keep them."""
    edited = edited_files(plugin)
    if edited:
        more = f" and {len(edited) - MOST_SHOWN} more" if len(edited) > MOST_SHOWN else ""
        raise ForgeError.conflict(
            f"{plugin.name} contains files that were edited or added after installation: "
            f"{', '.join(edited[:MOST_SHOWN])}{more}; nothing was changed",
            run("Keep your version as a fork: {}", "fork", "create", "NAME", "MY-NAME"),
            "Then use --force",
            plugin=plugin.name,
            edited=edited[:MOST_SHOWN],
        )


def edited_files(plugin: InstalledPlugin) -> list[str]:
    """The files that are not as they were installed, by the lockfile or else by the manifest."""
    if plugin.pin:
        recorded: dict[str, str | None] = {
            name: digest.removeprefix("sha256-").removesuffix("+x")
            for name, digest in plugin.pin.files.items()
        }
    else:
        recorded = {**dict(_recorded(plugin)), **dict.fromkeys(MANIFESTS)}
    files = [path for path in sorted(plugin.folder.rglob("*")) if not path.is_dir()]
    names = {path.relative_to(plugin.folder).as_posix(): path for path in files}
    return [
        name
        for name, path in names.items()
        if name not in recorded or _differs(path, recorded[name])
    ]


def _recorded(plugin: InstalledPlugin) -> Iterator[tuple[str, str | None]]:
    """The files that the manifest accounts for, each with its checksum if there is one."""
    for each in listed_components(plugin.manifest):
        for ending in ENDINGS[each.kind]:
            yield f"{each.kind}/{each.name}{ending}", each.checksum


def _differs(path: Path, digest: str | None) -> bool:
    return digest is not None and hashlib.sha256(path.read_bytes()).hexdigest() != digest


MOST_DEPENDENCIES = 50


@dataclass(frozen=True)
class Installer:
    """Writes below the `plugins` directories of a project and of a user."""

    _configuration: Configuration
    _plugins: Plugins
    _client: RegistryClient

    def install(self, plugin: str, place: Place, *, force: bool = False) -> Installation:
        """Install a plugin and what it needs, all of it or nothing. Raises `ForgeError`."""
        reference = checked_reference("plugin", plugin)
        survey = self._plugins.survey()
        order = self._with_dependencies(reference, survey, place)
        if not order.value:
            raise not_offered(reference, survey)
        with self._writing(place) as swap:
            installed = self._plugins.installed(place)
            own = installed.named(reference.name)
            if own and not force:
                raise ForgeError.conflict(
                    f"{own.name} {own.version} is already installed ({place.scope})",
                    run("Update it: {}", "update", own.name),
                    "Or install it again with --force",
                )
            self._put(order.value, place, installed, swap.value, force=force)
        return Installation(
            _versions(order.value, place),
            self._configuration.noted(
                survey.warnings, order.warnings, swap.warnings, installed.warnings
            ),
        )

    def restore(self, place: Place, *, force: bool = False) -> Installation:
        """Install what the lockfile says and is not there, at the same commits.

        Raises `ForgeError`, with nothing installed: `INTEGRITY_ERROR` for other files than then.
        """
        pins = place.pins()
        if not pins:
            raise ForgeError.config(
                self._configuration.directories.shown(place.lockfile),
                "there is nothing to install; name a plugin: fleet-agentpack forge install PLUGIN",
            )
        with self._writing(place) as swap:
            installed = self._plugins.installed(place)
            packages = []
            for name, pin in pins.items():
                own = installed.named(name)
                if own and (not force or not edited_files(own)):
                    continue
                packages.append(self._pinned(name, pin))
            self._put(packages, place, installed, swap.value, force=force)
        warnings = [warning for each in packages for warning in each.warnings]
        return Installation(
            _versions(packages, place), self._configuration.noted(warnings, swap.warnings)
        )

    def uninstall(self, name: str, place: Place | None, *, force: bool = False) -> Removal:
        """Remove a plugin. Raises `ForgeError` when it was edited or is needed, unless forced."""
        name = checked_reference("plugin", name).name
        installed = self._plugins.installed()
        own = installed.named(name, place)
        if own is None:
            raise installed.missing(name)
        copies = [each for each in installed.plugins if each.name == name]
        needing = [each.name for each in installed.plugins if name in _needs(each.manifest)]
        if needing and len(copies) == 1 and not force:
            raise ForgeError.dependency(
                f"{', '.join(needing)} needs {name}; nothing was removed",
                f"Remove {needing[0]} first, or use --force",
                plugin=name,
                neededBy=needing,
            )
        with self._writing(own.place) as swap:
            if not force:
                refuse_edited(own)
            pins = {k: pin for k, pin in own.place.pins().items() if k != name}
            swap.value.replace({own.folder: None, **_lock_change(own.place, pins)})
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
            raise installed.missing(min(unknown))
        survey = self._plugins.survey()
        updated: list[PluginUpdate] = []
        skipped: list[PluginUpdate] = []
        warnings = [*self._configuration.warnings, *installed.warnings, *survey.warnings]
        for plugin in installed.plugins:
            offers = [each for each in survey.offers if plugin.is_offered_by(each)]
            newest = choose(offers, "latest")
            if (names and plugin.name not in names) or newest is None:
                continue
            current = self._plugins.installed(plugin.place).named(plugin.name) or plugin
            if not current.is_behind(newest):
                continue  # also when another plugin's update has brought it along
            step = _step(plugin, newest)
            if is_breaking(plugin.version, newest.version) and not breaking:
                skipped.append(replace(step, reason="breaking"))
                continue
            if not dry_run:
                reference = Reference(plugin.name, newest.version)
                own = replace(survey, offers=_without_rivals(survey.offers, plugin))
                warnings += self._update(reference, plugin.place, own, updated)
            updated.append(replace(step, scope=plugin.scope))
        return Updates(tuple(updated), tuple(skipped), dry_run, noted(warnings))

    def _update(
        self, reference: Reference, place: Place, survey: Survey, done: Sequence[PluginUpdate]
    ) -> tuple[str, ...]:
        """Update one plugin with what it needs; an error names those that were updated before."""
        try:
            order = self._with_dependencies(reference, survey, place)
            with self._writing(place) as swap:
                installed = self._plugins.installed(place)
                self._put(order.value, place, installed, swap.value, force=False)
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
        self, reference: Reference, survey: Survey, place: Place
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
            if known or (needed_by and self._satisfied(wanted, place)):
                continue
            offers = [each for each in survey.offers if each.name == wanted.name]
            offer = choose(offers, wanted.wanted)
            if offer is None and needed_by:
                raise _unmet(needed_by, wanted, "which no registry offers")
            if offer is None:
                return Loaded([])
            chosen[wanted.name] = package = self._plugins.package_of(offer)
            warnings += package.warnings
            if all(each.name != wanted.wanted for each in self._configuration.registries):
                warnings += rivals(offer, offers)
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
                    if not self._satisfied(need, place)
                ]
        return Loaded(list(reversed(chosen.values())), tuple(warnings))

    def _satisfied(self, wanted: Reference, place: Place) -> bool:
        """Whether a plugin there finds what it needs; all projects share the global one."""
        own = self._plugins.installed(place).named(wanted.name)
        if own is None and place.scope == "local":
            shared = self._plugins.place("global", place.program)
            own = self._plugins.installed(shared).named(wanted.name)
        return own is not None and wanted.choose([own.version]) is not None

    def _pinned(self, name: str, pin: Pin) -> Package:
        """What the lockfile says of a plugin, fetched again. Raises `ForgeError`."""
        origin = origin_of_text(pin.source, pin.commit)
        known = {each.name: each for each in self._configuration.registries}
        registry = known.get(pin.registry) or Registry(pin.registry, pin.source.get("url", ""), 0)
        if origin is None or not is_usable_name(name):
            raise ForgeError.config(name[:80], "the lockfile has no usable source for this plugin")
        offer = Offer(
            name,
            pin.version,
            UNKNOWN,
            UNKNOWN,
            UNKNOWN,
            registry,
            origin,
            revision=pin.revision,
            entry=pin.added,
        )
        package = self._with_files(self._plugins.package_of(offer))
        if checksums(package.files) != dict(pin.files):
            raise ForgeError(
                "INTEGRITY_ERROR",
                f"{name} {pin.version} has other files than the lockfile says; "
                "nothing was installed",
                "If the change is meant, install it anew: fleet-agentpack forge install "
                f"{name} --force",
                plugin=name,
                expected=pin.integrity,
            )
        return package

    def _put(
        self,
        order: Sequence[Package],
        place: Place,
        installed: InstalledPlugins,
        swap: Swap,
        *,
        force: bool,
    ) -> None:
        """Stage everything, then put it in place together with the lockfile."""
        changes: dict[Path, New] = {}
        pins = place.pins()
        for package in order:
            name = package.offer.name
            own = installed.named(name)
            folder = own.folder if own else place.base / name
            if own is None:
                _refuse_occupied(folder, force=force)
            elif not force:
                refuse_edited(own)
            whole = self._with_files(package)
            pins[name] = _pin_of(whole)
            changes[folder] = partial(write_files, whole.files)
        if changes:
            swap.replace({**changes, **_lock_change(place, pins)})

    def _with_files(self, package: Package) -> Package:
        """The package with every file; a manifest's are downloaded and verified now."""
        offer, origin = package.offer, package.offer.origin
        if package.files or not isinstance(origin, ManifestFile):
            return package
        files = {
            name: FileContent(self._content(offer, name, url, checksum))
            for name, url, checksum in listed_files(offer, origin, package.manifest)
        }
        # Known by the name it was requested by, whatever its manifest calls it.
        known_as = {"name": offer.name, "version": offer.version}
        files["plugin.json"] = FileContent(json_file({**package.manifest, **known_as}))
        return replace(package, files=files)

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
    def _writing(self, place: Place) -> Iterator[Loaded[Swap]]:
        with writing_below(place.base.parent):
            swap = place.swap
            recovered = swap.recover()
            yield Loaded(swap, recovered.left if recovered else ())


def _versions(packages: Sequence[Package], place: Place) -> tuple[PluginVersion, ...]:
    return tuple(
        PluginVersion(each.offer.name, each.offer.version, place.scope) for each in packages
    )


def _step(plugin: InstalledPlugin, newest: Offer) -> PluginUpdate:
    """The step to an offer; where both have the same version, their revisions tell them apart."""
    before, after = plugin.version, newest.version
    if before == after and plugin.pin:
        before, after = f"{before}+{plugin.pin.revision[:7]}", f"{after}+{newest.revision[:7]}"
    return PluginUpdate(plugin.name, before, after)


def _without_rivals(offers: Sequence[Offer], plugin: InstalledPlugin) -> tuple[Offer, ...]:
    """The offers without those of other registries for a plugin that came from one."""
    return tuple(each for each in offers if each.name != plugin.name or plugin.is_offered_by(each))


def _pin_of(package: Package) -> Pin:
    offer = package.offer
    return Pin(
        version=offer.version,
        registry=offer.registry.name,
        source=origin_as_text(offer.origin),
        files=checksums(package.files),
        commit=package.commit,
        revision=offer.revision or package.commit,
        added=package.added,
    )


def _lock_change(place: Place, pins: Mapping[str, Pin]) -> dict[Path, New]:
    if not pins and not place.lockfile.exists():
        return {}
    return {place.lockfile: lock_of(pins) if pins else None}


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
