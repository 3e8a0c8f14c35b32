"""Eighteen queries over definitions, plugins, configuration, cache and forks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fleet_agentpack.forge import results
from fleet_agentpack.forge.access import Credentials, Keyring, Transport, Vault, masked_url
from fleet_agentpack.forge.configuration import ConfigReader, Configuration, look_up
from fleet_agentpack.forge.definition import MAX_DEFINITION_BYTES, SKILL_FILES, SUFFIXES, sought
from fleet_agentpack.forge.errors import SWITCH_ON, ForgeError, call, list_all, run
from fleet_agentpack.forge.index import DefinitionIndex, Progress
from fleet_agentpack.forge.names import Directories, Kind, check_name, checked_reference
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.paths import NoBaseError, is_inside
from fleet_agentpack.kit.results import UNKNOWN, Maybe, to_text
from fleet_agentpack.settings import Settings

if TYPE_CHECKING:
    from fleet_agentpack.forge.catalogue import Stockyard
    from fleet_agentpack.forge.forking import Merge
    from fleet_agentpack.forge.forks import Forks
    from fleet_agentpack.forge.plugins import Plugins
    from fleet_agentpack.forge.registries import Cache, RegistryClient
    from fleet_agentpack.forge.resolver import Resolver
    from fleet_agentpack.forge.validation import JudgedFile, TreeVerdict


@dataclass(frozen=True)
class Workspace:
    """The parts that one call works with, each imported and made when it is first needed."""

    configuration: Configuration
    index: DefinitionIndex
    transport: Transport
    credentials: Credentials
    clock: Callable[[], float]

    @cached_property
    def cache(self) -> Cache:
        """What was fetched before."""
        from fleet_agentpack.forge.registries import Cache

        return Cache(self.configuration.cache_directory, self.configuration.directories, self.clock)

    @cached_property
    def registries(self) -> RegistryClient:
        """The registries that offer plugins."""
        from fleet_agentpack.forge.registries import RegistryClient

        environ = self.configuration.directories.environ
        return RegistryClient(self.cache, self.transport, self.credentials, environ)

    @cached_property
    def resolver(self) -> Resolver:
        """Agents and tools by name."""
        from fleet_agentpack.forge.resolver import Resolver

        return Resolver(self.configuration, self.index, self._stockyard)

    def _stockyard(self) -> Stockyard:
        from fleet_agentpack.forge.catalogue import Stockyard

        return Stockyard(self.configuration.stockyard, self.registries)

    @cached_property
    def plugins(self) -> Plugins:
        """Installed and offered plugins."""
        from fleet_agentpack.forge.plugins import Plugins

        return Plugins(self.configuration, self.registries, self.resolver.places)

    @cached_property
    def forks(self) -> Forks:
        """Forked agents and tools."""
        from fleet_agentpack.forge.forks import Forks

        return Forks(self.configuration, self.resolver)


LOG_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "silent": logging.CRITICAL + 1,
}


def open_service(settings: Settings) -> ForgeService:
    """The service for these settings."""
    start = None if settings.serving else settings.cwd
    advice = settings.place.advice
    directories = Directories(settings.project, settings.home, settings.environ, advice, start)
    return ForgeService(directories)


class ForgeService:
    """The queries; writes nothing but the cache directory."""

    def __init__(
        self,
        directories: Directories,
        *,
        vault: Vault | None = None,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directories = directories
        self._configurations = ConfigReader(directories)
        self._index = DefinitionIndex()
        self._transport = transport or Transport()
        self._vault = vault or Keyring()
        self._clock = clock
        _set_log_level(directories.environ.get("FRACTARY_LOG_LEVEL", ""))

    def workspace(self, *, strict: bool = False) -> Workspace:
        """The parts that a call works with. Raises `ForgeError` for an unusable configuration."""
        reader = self._configurations
        configuration = reader.strict() if strict else reader.load()
        credentials = Credentials(self.directories, self._vault)
        return Workspace(configuration, self._index, self._transport, credentials, self._clock)

    def listing(
        self,
        kind: Kind,
        *,
        tags: Sequence[str] = (),
        source: str = "all",
        limit: int = 100,
        offset: int = 0,
        report: Progress | None = None,
    ) -> results.AgentList | results.ToolList:
        """Agents or tools, nearest first; of several tags one is enough."""
        from fleet_agentpack.forge.listing import list_definitions

        workspace = self.workspace()
        resolver = workspace.resolver
        lacks_project = source == "local" and self.directories.root is None
        off = source != "all" and not resolver.tiers(source) and not lacks_project
        found = list_definitions(resolver, kind, source, want_tags=bool(tags), progress=report)
        rows = found.value
        if tags:
            rows = [each for each in rows if each.tags is not UNKNOWN and {*tags} & {*each.tags}]
        page = [
            replace(row, path=self.directories.shown(row.path))
            for row in (each.row for each in rows[offset : offset + limit])
        ]
        empty = not found.value and not found.warnings
        nothing = empty and not off and not self.directories.no_project
        warnings = workspace.configuration.noted(
            [f"{source} is not searched. {SWITCH_ON}"] if off else [],
            found.warnings,
            [sought(kind, source)] if nothing else [],
        )
        answer = results.AgentList if kind == "agent" else results.ToolList
        return answer(tuple(page), len(rows), limit, offset, warnings)

    def names(self, kind: Kind | Literal["plugin", "fork"]) -> list[str]:
        """The names of everything of a kind. Raises `ForgeError`."""
        from fleet_agentpack.forge.listing import list_definitions

        if kind == "plugin":
            return [row.name for row in self.plugin_list().plugins]
        if kind == "fork":
            return [row.name for row in self.fork_list().forks]
        found = list_definitions(self.workspace().resolver, kind, "all", want_tags=False)
        return [row.name for row in found.value]

    def info(
        self, kind: Kind, name: str, version: str | None = None, source: str = "all"
    ) -> results.AgentInfo | results.ToolInfo:
        """One agent or tool in detail. Raises `ForgeError`."""
        from fleet_agentpack.forge.listing import agent_info, tool_info

        reference = checked_reference(kind, name, version)
        workspace = self.workspace()
        found = workspace.resolver.resolve(kind, reference, source)
        noticed = (*workspace.configuration.warnings, *found.warnings)
        info = agent_info if kind == "agent" else tool_info
        return info(found.value, workspace.resolver, noticed)

    def validate(
        self,
        kind: Kind,
        *,
        path: str | None = None,
        name: str | None = None,
        strict: bool = False,
        anywhere: bool = False,
    ) -> results.Validation:
        """Validate a definition by path or by name. Raises `ForgeError` when there is none."""
        from fleet_agentpack.forge.validation import validate

        if (path is None) == (name is None):
            raise ForgeError.invalid(
                "give either `path` or `name`" + ("" if path is None else ", not both"),
                call(f"{kind}_list", "List the names: {}"),
            )
        workspace = self.workspace()
        if path is not None:
            file = self._given_path(workspace.configuration, kind, path, anywhere=anywhere)
        else:
            file = _named_file(workspace.resolver, kind, name or "")
        shown = self.directories.shown(file)
        try:
            return validate(file, kind, shown, workspace.resolver, strict=strict)
        except FileNotFoundError as error:
            place = (path or str(file))[:200]
            raise ForgeError(
                "AGENT_NOT_FOUND" if kind == "agent" else "TOOL_NOT_FOUND",
                f"No {kind} definition at {place}{self.directories.paths.hint(place)}",
                list_all(kind),
                path=place,
            ) from error

    def validate_tree(
        self, paths: Sequence[str], *, strict: bool = False, fix: bool = False
    ) -> TreeVerdict:
        """Validate everything in some directories, or single files. Raises `ForgeError`."""
        from fleet_agentpack.forge.validation import TreeValidation, tree_verdict

        files: list[JudgedFile] = []
        for text in paths or ["."]:
            path = self._existing(text)
            root = path if path.is_dir() else self._tree_around(path)
            directories = replace(self.directories, root=root, no_project="")
            workspace = replace(self.workspace(), configuration=ConfigReader(directories).load())
            tree = TreeValidation(workspace.resolver, directories, self.directories.shown)
            only = None if path.is_dir() else path
            files += tree.run(fix=fix, only=only)
        return tree_verdict(files, strict=strict)

    def _existing(self, text: str) -> Path:
        try:
            path = self.directories.paths.resolve(text)
            if path.exists():
                return path
        except (NoBaseError, ValueError, OSError) as error:
            raise ForgeError.invalid(f"{text[:200]}: not a usable path") from error
        raise ForgeError.invalid(f"{text[:200]} does not exist", path=text[:200])

    def _tree_around(self, path: Path) -> Path:
        """The project of a file, or the directory that its program would start in."""
        root = self.directories.root
        if root and path.is_relative_to(root):
            return root
        hidden = [each for each in path.parents if each.name.startswith(".")]
        return hidden[-1].parent if hidden else path.parent

    def definition_text(self, kind: Kind, name: str) -> tuple[str, str]:
        """The text of a definition and its file's ending. Raises `ForgeError`."""
        reference = checked_reference(kind, name)
        definition = self.workspace().resolver.resolve(kind, reference).value
        if definition.file is None:
            return to_text(dict(definition.data)), "json"
        return _text_of(definition.file), definition.file.suffix.lstrip(".")

    def plugin_manifest_text(self, name: str) -> tuple[str, str]:
        """The manifest of an installed plugin and its ending. Raises `ForgeError`."""
        from fleet_agentpack.forge.folders import manifest_of

        check_name("plugin", name)
        plugin = self.workspace().plugins.present().find(name)
        path = manifest_of(plugin.folder) if plugin else None
        if path is None:
            raise ForgeError.plugin_missing(name)
        return _text_of(path), path.suffix.lstrip(".")

    def plugin_list(self, scope: str = "all", *, outdated: bool = False) -> results.PluginList:
        """Installed plugins, perhaps only those with an update."""
        return self.workspace().plugins.listing(scope, outdated=outdated)

    def plugin_info(
        self, plugin: str, version: str | None = None, *, remote: bool = False
    ) -> results.PluginInfo:
        """One plugin in detail. Raises `ForgeError`."""
        reference = checked_reference("plugin", plugin, version)
        return self.workspace().plugins.info(reference.name, reference.wanted, remote=remote)

    def plugin_search(
        self, query: str, tags: Sequence[str] = (), limit: int = 20, offset: int = 0
    ) -> results.PluginSearch:
        """Plugins that registries offer. Raises `ForgeError` when none could be asked."""
        return self.workspace().plugins.search(query, tags, limit, offset)

    def config_get(self, key: str) -> results.ConfigValue:
        """One configuration value, secrets masked. Raises `ForgeError`."""
        if not key.strip():
            raise ForgeError.invalid("the key is empty", call("config_show", "See every key: {}"))
        configuration = self._configurations.strict()
        value, exists = look_up(configuration.shown(), key)
        return results.ConfigValue(key, value, exists, configuration.noted())

    def config_show(
        self, *, include_defaults: bool = True, layout: str = "json"
    ) -> results.ConfigView:
        """The configuration and the files it comes from, secrets masked. Raises `ForgeError`."""
        configuration = self._configurations.strict()
        shown = configuration.shown(include_defaults=include_defaults)
        text: Maybe[str] = UNKNOWN
        if layout == "yaml":
            from fleet_agentpack.kit import yaml12

            text = yaml12.dump(shown)
        sources = tuple(self.directories.shown(path) for path in configuration.sources)
        return results.ConfigView(shown, sources, text, configuration.noted())

    def registry_list(self) -> results.RegistryList:
        """The configured registries in the order in which they are asked. Raises `ForgeError`."""
        workspace = self.workspace(strict=True)
        registries = workspace.configuration.registries
        rows = tuple(
            results.RegistryRow(
                name=registry.name,
                url=masked_url(registry.url),
                priority=registry.priority,
                authenticated=workspace.credentials.is_authenticated(registry),
            )
            for registry in registries
        )
        disabled = [f"Registry {each.name} is disabled" for each in registries if not each.enabled]
        return results.RegistryList(rows, workspace.configuration.noted(disabled))

    def cache_stats(self) -> results.CacheStats:
        """How much the cache holds."""
        workspace = self.workspace()
        return replace(workspace.cache.stats(), warnings=workspace.configuration.noted())

    def cache_clear(self, kind: str = "all", older_than: int | None = None) -> results.CacheCleared:
        """Empty the cache, or what is older than some days. Raises `ForgeError`."""
        if older_than is not None and older_than < 0:
            raise ForgeError.invalid(
                "olderThan must be a number of days, 0 or more",
                call("cache_stats", "Leave it out to clear everything, or see the ages: {}"),
                olderThan=older_than,
            )
        workspace = self.workspace()
        cleared = workspace.cache.clear(kind, older_than)
        return replace(cleared, warnings=workspace.configuration.noted())

    def fork_list(self, kind: str = "all") -> results.ForkList:
        """Forked agents and tools."""
        return self.workspace().forks.listing(kind)

    def fork_info(self, name: str) -> results.ForkInfo:
        """One fork in detail. Raises `ForgeError`."""
        check_name("agent", name)
        return self.workspace().forks.info(name)

    def fork_diff(self, name: str, layout: str = "unified") -> results.ForkDiff:
        """How a fork differs from its upstream. Raises `ForgeError`."""
        check_name("agent", name)
        return self.workspace().forks.diff(name, layout)

    def fork_check(self, name: str | None = None) -> results.ForkCheck:
        """Which forks have a newer upstream. Raises `ForgeError`."""
        if name is not None:
            check_name("agent", name)
        return self.workspace().forks.check(name)

    def merge_plan(self, name: str) -> Merge:
        """What merging upstream into a fork would do. Raises `ForgeError`."""
        from fleet_agentpack.forge.forking import plan_merge

        check_name("agent", name)
        workspace = self.workspace()
        plan = plan_merge(workspace.forks, name)
        return plan.shown(warnings=workspace.configuration.noted(plan.warnings))

    def _given_path(
        self, configuration: Configuration, kind: Kind, text: str, *, anywhere: bool
    ) -> Path:
        home = self.directories.home
        programs = [home / name for name in (".claude", ".agents", ".codex", ".copilot")]
        shared = (configuration.global_root, self.directories.user, *programs)
        roots = (self.directories.root, *shared) if self.directories.root else shared
        try:
            path = self.directories.paths.resolve(text)
            if path.is_dir():
                skills = SKILL_FILES if kind == "tool" else ()
                names = (*(f"{kind}{ending}" for ending in SUFFIXES), *skills)
                inside = [path / name for name in names]
                path = next((each for each in inside if each.is_file()), inside[0])
            allowed = anywhere or is_inside(path, *roots)
        except NoBaseError as error:
            raise ForgeError.invalid(f"`path`: {error}", path=text[:200]) from error
        except (ValueError, OSError) as error:  # also a name that is too long for any file
            raise ForgeError.invalid(
                "`path` is not a usable path",
                call(f"{kind}_list", "Use a path of {}, or the name instead"),
            ) from error
        if not allowed:
            raise ForgeError.denied(
                f"`path` is outside the project and ~/.fractary{self.directories.paths.hint(text)}",
                run(
                    "Start the server in the directory of the file, or use: {}",
                    f"{kind}-validate",
                    "PATH",
                ),
                path=text[:200],
            )
        return path


def _named_file(resolver: Resolver, kind: Kind, name: str) -> Path:
    reference = checked_reference(kind, name)
    file = resolver.nearest_file(kind, reference) or resolver.resolve(kind, reference).value.file
    if file is None:
        raise ForgeError.invalid(
            f"{name} is only in the stockyard; only files can be validated",
            "Copy the definition into the project first",
            name=name,
        )
    return file


def _set_log_level(name: str) -> None:
    """Without a level of its own forge logs as the rest of the server does."""
    logger = logging.getLogger("fleet_agentpack.forge")
    level = LOG_LEVELS.get(name.lower())
    logger.setLevel(logging.NOTSET if level is None else level)
    if name and level is None:
        known = ", ".join(LOG_LEVELS)
        logger.warning("FRACTARY_LOG_LEVEL is ignored: it must be one of %s", known)


def _text_of(path: Path) -> str:
    try:
        return read_text(path, MAX_DEFINITION_BYTES)
    except (UnreadableError, FileNotFoundError) as error:
        raise ForgeError.invalid(
            f"{path.name} cannot be read: {error}", "Correct the file or move it away"
        ) from error
