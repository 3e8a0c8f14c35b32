"""A plugin's manifest in any of its dialects, and the contents of its directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path, PurePosixPath

from fleet_agentpack.forge.definitions.definition import SUFFIXES, described, strings_of, text_of
from fleet_agentpack.forge.registries.client import Offer
from fleet_agentpack.forge.results import Components, PluginInfo
from fleet_agentpack.kit.results import UNKNOWN, Maybe


def plugin_info(
    name: str, version: str, manifest: Mapping[str, object], parts: Components
) -> PluginInfo:
    """A plugin as its manifest describes it."""
    keywords = strings_of(manifest.get("keywords") or manifest.get("tags"))
    repository = manifest.get("repository")
    inner = repository if isinstance(repository, Mapping) else {"url": repository}
    return PluginInfo(
        **vars(described(name, version, manifest)),
        homepage=text_of(manifest, "homepage"),
        repository=text_of(inner, "url"),
        keywords=tuple(keywords) or UNKNOWN,
        components=parts,
        dependencies=dependencies_of(manifest),
    )


def dependencies_of(manifest: Mapping[str, object]) -> Maybe[dict[str, str]]:
    """The plugins that a plugin needs, written as a map or as a list."""
    found = manifest.get("dependencies", manifest.get("requires"))
    if isinstance(found, Mapping):
        return {str(name): str(wanted) for name, wanted in found.items()}
    if not isinstance(found, list):
        return UNKNOWN
    pairs = {}
    for each in found:
        if isinstance(each, Mapping) and isinstance(each.get("name"), str):
            pairs[each["name"]] = str(each.get("version", "*"))
        elif isinstance(each, str):
            name, _, wanted = each[1:].partition("@")
            pairs[each[:1] + name] = wanted or "*"
    return pairs


def of_offer(offer: Offer) -> dict[str, str | list[str]]:
    """A registry's entry for a plugin in the form of a manifest."""
    names = ("description", "author", "license", "homepage", "repository")
    known = {name: getattr(offer, name) for name in names if getattr(offer, name) is not UNKNOWN}
    return {**known, "tags": list(offer.tags)}


def components(manifest: Mapping[str, object], folder: Path | None = None) -> Components:
    """The names of a plugin's parts: those that its manifest lists, then those only on disk."""
    inner = manifest.get("components")
    table = {**manifest, **inner} if isinstance(inner, Mapping) else manifest
    kinds = [each.name for each in fields(Components)]
    on_disk = {kind: _names_in(folder / kind) if folder else [] for kind in kinds}
    names = {kind: dict.fromkeys([*_names(table.get(kind)), *on_disk[kind]]) for kind in kinds}
    return Components(**{kind: tuple(found) for kind, found in names.items()})


def _names(items: object) -> list[str]:
    names = []
    for item in items if isinstance(items, list) else []:
        name = item.get("name") if isinstance(item, Mapping) else item
        if isinstance(name, str) and name:
            path = PurePosixPath(name)
            names.append(path.stem if path.suffix in (*SUFFIXES, ".js", ".json") else path.name)
    return names


def _names_in(folder: Path) -> list[str]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [
        each.name if each.is_dir() else each.stem
        for each in entries
        if not each.name.startswith(".")
    ]
