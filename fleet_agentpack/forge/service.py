"""Eighteen queries over definitions, plugins, configuration, cache and forks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet_agentpack.forge.cache import Cache
from fleet_agentpack.forge.config import ConfigReader, Configuration, look_up
from fleet_agentpack.forge.credentials import Credentials, Keyring, Vault
from fleet_agentpack.forge.definitions import MAX_DEFINITION_BYTES, SUFFIXES, Definition, Kind, Row
from fleet_agentpack.forge.details import agent_details, tool_details
from fleet_agentpack.forge.errors import SWITCH_ON, ForgeError
from fleet_agentpack.forge.forks import Forks
from fleet_agentpack.forge.library import Library, Report
from fleet_agentpack.forge.masking import masked_url
from fleet_agentpack.forge.merging import plan_merge
from fleet_agentpack.forge.names import check_name, checked_reference
from fleet_agentpack.forge.places import Places
from fleet_agentpack.forge.plugin_folders import manifest_of
from fleet_agentpack.forge.plugins import Plugins
from fleet_agentpack.forge.registries import RegistryClient
from fleet_agentpack.forge.resolver import Resolver
from fleet_agentpack.forge.stockyard import Stockyard
from fleet_agentpack.forge.transport import Transport
from fleet_agentpack.forge.validation import validate
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.results import UNKNOWN, to_text

MOST_WARNINGS = 50
LOG_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "silent": logging.CRITICAL + 1,
}


@dataclass(frozen=True)
class Desk:
    """Everything that one call works with, over one reading of the configuration."""

    configuration: Configuration
    cache: Cache
    credentials: Credentials
    client: RegistryClient
    resolver: Resolver
    plugins: Plugins
    forks: Forks
    warnings: list[str] = field(default_factory=list)

    def answer(self, result: dict[str, Any]) -> dict[str, Any]:
        """A result with the call's warnings, when there are any."""
        warnings = list(dict.fromkeys(self.warnings))
        if len(warnings) > MOST_WARNINGS:
            left = len(warnings) - MOST_WARNINGS
            warnings = [*warnings[:MOST_WARNINGS], f"… and {left} more warnings"]
        return {**result, "warnings": warnings} if warnings else result


class ForgeService:
    """The queries; writes nothing but the cache directory."""

    def __init__(
        self,
        places: Places,
        *,
        vault: Vault | None = None,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.places = places
        self._configurations = ConfigReader(places)
        self._library = Library()
        self._transport = transport or Transport()
        self._vault = vault or Keyring()
        self._clock = clock
        _set_log_level(places.environ.get("FRACTARY_LOG_LEVEL", ""))

    def desk(self, *, strict: bool = False) -> Desk:
        """The parts that a call works with. Raises `ForgeError` for an unusable configuration."""
        reader = self._configurations
        configuration = reader.strict() if strict else reader.load()
        cache = Cache(configuration.cache_directory, self.places, self._clock)
        credentials = Credentials(self.places, self._vault)
        client = RegistryClient(cache, self._transport, credentials)
        stockyard = Stockyard(configuration.stockyard, cache, self._transport, credentials)
        resolver = Resolver(configuration, self._library, stockyard)
        return Desk(
            configuration,
            cache,
            credentials,
            client,
            resolver,
            Plugins(configuration, client),
            Forks(configuration, resolver),
            list(configuration.warnings),
        )

    def listing(
        self,
        kind: Kind,
        *,
        tags: Sequence[str] = (),
        source: str = "all",
        limit: int = 100,
        offset: int = 0,
        report: Report | None = None,
    ) -> dict[str, Any]:
        """Agents or tools, nearest first; of several tags one is enough."""
        desk = self.desk()
        if source != "all" and not desk.resolver.tiers(source):
            desk.warnings.append(f"{source} is not searched. {SWITCH_ON}")
        rows = desk.resolver.listing(
            kind, source, desk.warnings, want_tags=bool(tags), report=report
        )
        if tags:
            rows = [row for row in rows if set(tags) & set(row.summary.tags or ())]
        page = rows[offset : offset + limit]
        return desk.answer(
            {
                f"{kind}s": [self._listed(row) for row in page],
                "total": len(rows),
                "limit": limit,
                "offset": offset,
            }
        )

    def info(
        self, kind: Kind, name: str, version: str | None = None, source: str = "all"
    ) -> dict[str, Any]:
        """One agent or tool in detail. Raises `ForgeError`."""
        desk = self.desk()
        definition = self._resolved(desk, kind, name, version, source)
        details = agent_details if kind == "agent" else tool_details
        return desk.answer(details(definition, desk.resolver, desk.warnings))

    def validate(
        self,
        kind: Kind,
        *,
        path: str | None = None,
        name: str | None = None,
        strict: bool = False,
        anywhere: bool = False,
    ) -> dict[str, Any]:
        """Validate a definition by path or by name. Raises `ForgeError` when there is none."""
        if (path is None) == (name is None):
            raise ForgeError.invalid(
                "give either `path` or `name`" + ("" if path is None else ", not both of them"),
                f"List the names: fractary_forge_{kind}_list",
            )
        desk = self.desk()
        if path is not None:
            file = self._given_path(desk, kind, path, anywhere=anywhere)
        else:
            file = self._named_file(desk, kind, name or "")
        try:
            return validate(file, kind, self.places.shown(file), desk.resolver, strict=strict)
        except FileNotFoundError as error:
            raise _no_file(kind, path or str(file)) from error

    def definition_text(self, kind: Kind, name: str) -> tuple[str, str]:
        """The text of a definition and its file's ending. Raises `ForgeError`."""
        desk = self.desk()
        definition = self._resolved(desk, kind, name, None, "all")
        if definition.file is None:
            return to_text(dict(definition.data)), "json"
        return _text_of(definition.file), definition.file.suffix.lstrip(".")

    def plugin_manifest_text(self, name: str) -> tuple[str, str]:
        """The manifest of an installed plugin and its ending. Raises `ForgeError`."""
        check_name("plugin", name)
        desk = self.desk()
        plugin = desk.plugins.find_installed(name, desk.warnings)
        path = manifest_of(plugin.folder) if plugin else None
        if path is None:
            raise ForgeError.plugin_missing(name, searched=[], installed_only=True)
        return _text_of(path), path.suffix.lstrip(".")

    def plugin_list(self, scope: str = "all", *, outdated: bool = False) -> dict[str, Any]:
        """Installed plugins, perhaps only those with an update."""
        desk = self.desk()
        return desk.answer(desk.plugins.listing(scope, outdated=outdated, warnings=desk.warnings))

    def plugin_info(
        self, plugin: str, version: str | None = None, *, remote: bool = False
    ) -> dict[str, Any]:
        """One plugin in detail. Raises `ForgeError`."""
        reference = checked_reference("plugin", plugin, version)
        desk = self.desk()
        found = desk.plugins.info(
            reference.name, reference.wanted, remote=remote, warnings=desk.warnings
        )
        return desk.answer(found)

    def plugin_search(
        self, query: str, tags: Sequence[str] = (), limit: int = 20, offset: int = 0
    ) -> dict[str, Any]:
        """Plugins that registries offer. Raises `ForgeError` when none could be asked."""
        desk = self.desk()
        return desk.answer(desk.plugins.search(query, tags, limit, offset, desk.warnings))

    def config_get(self, key: str) -> dict[str, Any]:
        """One configuration value, secrets masked. Raises `ForgeError`."""
        if not key.strip():
            raise ForgeError.invalid(
                "the key is empty", "See every key: fractary_forge_config_show"
            )
        desk = self.desk(strict=True)
        value, exists = look_up(desk.configuration.shown(), key)
        return desk.answer({"key": key, "value": value, "exists": exists})

    def config_show(self, *, include_defaults: bool = True, layout: str = "json") -> dict[str, Any]:
        """The configuration and the files it comes from, secrets masked. Raises `ForgeError`."""
        desk = self.desk(strict=True)
        shown = desk.configuration.shown(include_defaults=include_defaults)
        result: dict[str, Any] = {
            "config": shown,
            "sources": [self.places.shown(path) for path in desk.configuration.sources],
        }
        if layout == "yaml":
            from fleet_agentpack.kit import yaml12

            result["yaml"] = yaml12.dump(shown)
        return desk.answer(result)

    def registry_list(self) -> dict[str, Any]:
        """The configured registries in the order in which they are asked. Raises `ForgeError`."""
        desk = self.desk(strict=True)
        registries = desk.configuration.registries
        disabled = [registry.name for registry in registries if not registry.enabled]
        desk.warnings.extend(f"Registry {name} is disabled" for name in disabled)
        return desk.answer(
            {
                "registries": [
                    {
                        "name": registry.name,
                        "url": masked_url(registry.url),
                        "priority": registry.priority,
                        "authenticated": desk.credentials.is_authenticated(registry),
                    }
                    for registry in registries
                ]
            }
        )

    def cache_stats(self) -> dict[str, Any]:
        """How much the cache holds."""
        desk = self.desk()
        return desk.answer(desk.cache.stats())

    def cache_clear(self, kind: str = "all", older_than: int | None = None) -> dict[str, Any]:
        """Empty the cache, or what is older than some days. Raises `ForgeError`."""
        if older_than is not None and older_than < 0:
            raise ForgeError.invalid(
                "olderThan is a number of days, 0 or more",
                "Leave it out to clear everything, or see the ages: fractary_forge_cache_stats",
                olderThan=older_than,
            )
        desk = self.desk()
        return desk.answer(desk.cache.clear(kind, older_than))

    def fork_list(self, kind: str = "all") -> dict[str, Any]:
        """Forked agents and tools."""
        desk = self.desk()
        return desk.answer(desk.forks.listing(kind, desk.warnings))

    def fork_info(self, name: str) -> dict[str, Any]:
        """One fork in detail. Raises `ForgeError`."""
        check_name("agent", name)
        desk = self.desk()
        return desk.answer(desk.forks.info(name, desk.warnings))

    def fork_diff(self, name: str, layout: str = "unified") -> dict[str, Any]:
        """How a fork differs from its upstream. Raises `ForgeError`."""
        check_name("agent", name)
        desk = self.desk()
        return desk.answer(desk.forks.diff(name, layout, desk.warnings))

    def fork_check(self, name: str | None = None) -> dict[str, Any]:
        """Which forks have a newer upstream. Raises `ForgeError`."""
        if name is not None:
            check_name("agent", name)
        desk = self.desk()
        return desk.answer(desk.forks.check(name, desk.warnings))

    def merge_plan(self, name: str) -> dict[str, Any]:
        """What merging upstream into a fork would do. Raises `ForgeError`."""
        check_name("agent", name)
        desk = self.desk()
        plan = plan_merge(desk.forks, desk.resolver, name, desk.warnings)
        return desk.answer(plan.shown())

    def _listed(self, row: Row) -> dict[str, Any]:
        return {
            "name": row.name,
            "version": row.summary.version,
            "description": row.summary.description,
            "tags": UNKNOWN if row.summary.tags is None else list(row.summary.tags),
            "source": row.source,
            "path": row.path if isinstance(row.path, str) else self.places.shown(row.path),
        }

    def _resolved(
        self, desk: Desk, kind: Kind, name: str, version: str | None, source: str
    ) -> Definition:
        reference = checked_reference(kind, name, version)
        return desk.resolver.resolve(kind, reference, desk.warnings, source)

    def _named_file(self, desk: Desk, kind: Kind, name: str) -> Path:
        reference = checked_reference(kind, name)
        file = desk.resolver.nearest_file(kind, reference)
        if file is not None:
            return file
        definition = desk.resolver.resolve(kind, reference, desk.warnings)
        if definition.file is None:
            raise ForgeError.invalid(
                f"{name} is only in the stockyard; what is validated is a file",
                "Copy the definition into the project first",
                name=name,
            )
        return definition.file

    def _given_path(self, desk: Desk, kind: Kind, text: str, *, anywhere: bool) -> Path:
        roots = (self.places.cwd, desk.configuration.global_root, self.places.user)
        try:
            path = self.places.expanded(text)
            if path.is_dir():
                inside = [path / f"{kind}{ending}" for ending in SUFFIXES]
                path = next((each for each in inside if each.is_file()), inside[0])
            allowed = anywhere or is_inside(path, *roots)
        except (ValueError, OSError) as error:  # also a name that is too long for any file
            raise ForgeError.invalid(
                "`path` is not a usable path",
                f"Use a path of fractary_forge_{kind}_list, or the name instead",
            ) from error
        if not allowed:
            raise ForgeError.denied(
                "`path` leads out of the working directory and of ~/.fractary",
                "Start the server in the directory of the file, or use: "
                f"fleet-agentpack forge {kind}-validate PATH",
                path=text[:200],
            )
        return path


def _set_log_level(name: str) -> None:
    """Without a level of its own forge logs as the rest of the server does."""
    logger = logging.getLogger("fleet_agentpack.forge")
    level = LOG_LEVELS.get(name.lower())
    logger.setLevel(logging.NOTSET if level is None else level)
    if name and level is None:
        known = ", ".join(LOG_LEVELS)
        logger.warning("FRACTARY_LOG_LEVEL is none of %s and is ignored", known)


def _no_file(kind: Kind, path: str) -> ForgeError:
    return ForgeError(
        "AGENT_NOT_FOUND" if kind == "agent" else "TOOL_NOT_FOUND",
        f"There is no {kind} definition at {path[:200]}",
        details={"path": path[:200]},
        suggestions=[f"List what there is: fractary_forge_{kind}_list"],
    )


def _text_of(path: Path) -> str:
    try:
        return read_text(path, MAX_DEFINITION_BYTES)
    except (UnreadableError, FileNotFoundError) as error:
        raise ForgeError.invalid(
            f"{path.name} cannot be read: {error}", "Correct the file or move it away"
        ) from error
