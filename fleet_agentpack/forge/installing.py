"""Installs, updates and removes plugins: staged whole, verified, then swapped in by a rename."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.forks import is_breaking
from fleet_agentpack.forge.names import checked_reference, is_usable_name
from fleet_agentpack.forge.plugin_folders import plugin_folders
from fleet_agentpack.forge.plugin_manifest import dependencies_of
from fleet_agentpack.forge.plugins import Installed, Scope, choose
from fleet_agentpack.forge.registries import Offer, checksum_of, safe_url
from fleet_agentpack.forge.service import Desk
from fleet_agentpack.forge.writing import write_json, writing_below
from fleet_agentpack.support.results import UNKNOWN
from fleet_agentpack.support.semver import best_version, is_newer

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
class Part:
    """One file of a plugin: where it goes, where it comes from, what it must hash to."""

    path: str
    url: str
    checksum: str | None


class Installer:
    """Writes below the `plugins` directories of a project and of a user."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def install(self, plugin: str, scope: Scope, *, force: bool = False) -> list[dict[str, Any]]:
        """Install a plugin and what it needs, each whole or not at all. Raises `ForgeError`."""
        reference = checked_reference("plugin", plugin)
        survey = self._desk.plugins.survey(self._desk.warnings)
        order = self._with_dependencies(reference.name, reference.wanted, survey.offers, scope)
        if not order:
            raise ForgeError.plugin_missing(str(reference), searched=survey.searched)
        with self._writing(scope):
            own = self._installed(reference.name, scope)
            if own and not force:
                raise ForgeError.conflict(
                    f"{own.name} {own.version} is already installed ({scope})",
                    f"Update it: fleet-agentpack forge update {own.name}",
                    "Or install it again with --force",
                )
            return [self._put(offer, manifest, scope, force=force) for offer, manifest in order]

    def uninstall(self, name: str, scope: Scope | None, *, force: bool = False) -> dict[str, Any]:
        """Remove a plugin. Raises `ForgeError` when it was edited or is needed, unless forced."""
        name = checked_reference("plugin", name).name
        plugins = self._desk.plugins.installed(self._desk.warnings, scope or "all")
        own = next((each for each in plugins if each.name == name), None)
        if own is None:
            raise ForgeError.plugin_missing(name, searched=[], installed_only=True)
        needing = [each.name for each in plugins if name in _needs(each.manifest)]
        if needing and not force:
            raise ForgeError.dependency(
                f"{', '.join(needing)} needs {name}; --force removes it all the same",
                plugin=name,
                neededBy=needing,
            )
        with self._writing(own.scope):
            if not force:
                _refuse_edited(own)
            trash = self._scratch(own.scope)
            trash.parent.mkdir(parents=True, exist_ok=True)
            own.folder.rename(trash)
            shutil.rmtree(trash, ignore_errors=True)
        return {"name": own.name, "version": own.version, "scope": own.scope}

    def update(
        self, names: Sequence[str], *, breaking: bool = False, dry_run: bool = False
    ) -> dict[str, Any]:
        """Update installed plugins, by name or all; a major step only when asked for."""
        plugins = self._desk.plugins.installed(self._desk.warnings)
        unknown = set(names) - {each.name for each in plugins}
        if unknown:
            raise ForgeError.plugin_missing(min(unknown), searched=[], installed_only=True)
        survey = self._desk.plugins.survey(self._desk.warnings)
        updated, skipped = [], []
        for plugin in plugins:
            offers = [each for each in survey.offers if each.name == plugin.name]
            newest = choose(offers, "latest")
            if (names and plugin.name not in names) or newest is None:
                continue
            if not is_newer(newest.version, plugin.version):
                continue
            step = {"name": plugin.name, "from": plugin.version, "to": newest.version}
            if is_breaking(plugin.version, newest.version) and not breaking:
                skipped.append({**step, "reason": "breaking"})
                continue
            if not dry_run:
                manifest = self._desk.plugins.manifest_of_offer(newest, self._desk.warnings)
                with self._writing(plugin.scope):
                    self._put(newest, manifest, plugin.scope, force=False)
            updated.append({**step, "scope": plugin.scope})
        return {"updated": updated, "skipped": skipped, "dryRun": dry_run}

    def _with_dependencies(
        self, name: str, wanted: str, offers: Sequence[Offer], scope: Scope
    ) -> list[tuple[Offer, dict[str, Any]]]:
        """The plugin and those it needs that are not installed, dependencies first."""
        chosen: dict[str, tuple[Offer, dict[str, Any]]] = {}
        pending = [(name, wanted, "")]
        while pending:
            each, version, needed_by = pending.pop(0)
            if each in chosen or (needed_by and self._satisfied(each, version, scope)):
                continue
            offer = choose([offer for offer in offers if offer.name == each], version)
            if offer is None and needed_by:
                raise ForgeError.dependency(
                    f"{needed_by} needs {each}@{version}, which no registry offers; "
                    "nothing was installed",
                    plugin=needed_by,
                    missing=each,
                )
            if offer is None:
                return []
            manifest = self._desk.plugins.manifest_of_offer(offer, self._desk.warnings)
            chosen[each] = (offer, manifest)
            if len(chosen) > MOST_DEPENDENCIES:
                raise ForgeError.dependency(f"{name} needs more than {MOST_DEPENDENCIES} plugins")
            if self._desk.configuration.auto_install_dependencies:
                pending += [(need, ask, each) for need, ask in _needs(manifest).items()]
        return list(reversed(chosen.values()))

    def _satisfied(self, name: str, wanted: str, scope: Scope) -> bool:
        own = self._installed(name, scope) or self._desk.plugins.find_installed(name, [])
        return own is not None and best_version([own.version], wanted) is not None

    def _installed(self, name: str, scope: Scope) -> Installed | None:
        plugins = self._desk.plugins.installed(self._desk.warnings, scope)
        return next((each for each in plugins if each.name == name), None)

    def _put(
        self, offer: Offer, manifest: dict[str, Any], scope: Scope, *, force: bool
    ) -> dict[str, Any]:
        own = self._installed(offer.name, scope)
        if own and not force:
            _refuse_edited(own)
        stage = self._scratch(scope)
        try:
            for part in self._parts(offer, manifest):
                path = stage / part.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._content(offer, part))
            stage.mkdir(parents=True, exist_ok=True)
            write_json(stage / "plugin.json", manifest)
            self._swap_in(stage, self._desk.plugins.base(scope) / offer.name, scope, offer.name)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        return {"name": offer.name, "version": offer.version, "scope": scope}

    def _parts(self, offer: Offer, manifest: Mapping[str, Any]) -> Iterator[Part]:
        inner = manifest.get("components")
        table = {**manifest, **inner} if isinstance(inner, Mapping) else manifest
        for kind, endings in ENDINGS.items():
            items = table.get(kind)
            for item in items if isinstance(items, list) else ():
                yield self._part(offer, kind, endings, item)

    def _part(self, offer: Offer, kind: str, endings: tuple[str, ...], item: Any) -> Part:
        fields = item if isinstance(item, Mapping) else {}
        source = fields.get("source") or fields.get("url") or fields.get("file")
        url, name = safe_url(offer.manifest_url, source), fields.get("name")
        if url is None or not is_usable_name(name) or "/" in str(name):
            raise ForgeError.invalid(
                f"{offer.name}: one of its {kind} has no usable name or source; "
                "nothing was installed",
                plugin=offer.name,
            )
        ending = PurePosixPath(urlsplit(url).path).suffix
        file_name = f"{name}{ending if ending in endings else endings[0]}"
        return Part(f"{kind}/{file_name}", url, checksum_of(fields.get("checksum")))

    def _content(self, offer: Offer, part: Part) -> bytes:
        verify = self._desk.configuration.verify_checksums
        if part.checksum is None and verify:
            raise ForgeError(
                "INTEGRITY_ERROR",
                f"{offer.name}: {part.path} has no checksum; nothing was installed",
                details={"plugin": offer.name, "file": part.path},
                suggestions=[
                    "Ask the maintainer to add one, or set install.verify_checksums: false"
                ],
            )
        return self._desk.client.download(offer, part.url, part.checksum if verify else None)

    @contextmanager
    def _writing(self, scope: Scope) -> Iterator[None]:
        base = self._desk.plugins.base(scope)
        with writing_below(base.parent):
            _recover(base)
            try:
                yield
            finally:
                _recover(base)

    def _scratch(self, scope: Scope) -> Path:
        return self._desk.plugins.base(scope) / ".staging" / secrets.token_hex(8)

    def _swap_in(self, stage: Path, target: Path, scope: Scope, name: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = self._desk.plugins.base(scope) / ".replaced" / name
        if target.exists():
            aside.parent.mkdir(parents=True, exist_ok=True)
            target.rename(aside)
        stage.rename(target)
        shutil.rmtree(aside, ignore_errors=True)


def _recover(base: Path) -> None:
    """Undo an interrupted swap: a plugin that was moved aside and not replaced comes back."""
    for name, aside in plugin_folders(base / ".replaced"):
        target = base / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            aside.rename(target)
    for leftover in (".replaced", ".staging"):
        shutil.rmtree(base / leftover, ignore_errors=True)


def _needs(manifest: Mapping[str, Any]) -> dict[str, str]:
    found = dependencies_of(manifest)
    return {} if found is UNKNOWN else {k: v for k, v in found.items() if is_usable_name(k)}


def _refuse_edited(plugin: Installed) -> None:
    """A file that is not what was installed was edited by somebody, who wants to keep it."""
    edited = [path for path, digest in _recorded(plugin) if _differs(plugin.folder / path, digest)]
    if edited:
        raise ForgeError.conflict(
            f"{plugin.name} was edited after it was installed: {', '.join(edited)}; "
            "nothing was changed",
            "Copy your changes into an agent or tool of your own, then use --force",
            plugin=plugin.name,
            edited=edited,
        )


def _recorded(plugin: Installed) -> Iterator[tuple[str, str]]:
    for kind, endings in ENDINGS.items():
        items = plugin.manifest.get(kind)
        for item in items if isinstance(items, list) else ():
            fields = item if isinstance(item, Mapping) else {}
            digest, name = checksum_of(fields.get("checksum")), fields.get("name")
            if digest and is_usable_name(name):
                for ending in endings:
                    path = f"{kind}/{name}{ending}"
                    if (plugin.folder / path).is_file():
                        yield path, digest


def _differs(path: Path, digest: str) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() != digest
