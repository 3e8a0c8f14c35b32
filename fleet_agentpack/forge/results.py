"""What forge answers: one frozen class per answer, its fields named and ordered as on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from fleet_agentpack.forge.errors import Warnings
from fleet_agentpack.forge.names import Format, Kind, Scope, Source
from fleet_agentpack.kit.fit import Part, Rows, Text, Whole
from fleet_agentpack.kit.results import UNKNOWN, Maybe


@dataclass(frozen=True)
class Described:
    """What an agent, a tool and a plugin say of themselves."""

    name: str
    version: str
    description: Maybe[str]
    author: Maybe[str]
    license: Maybe[str]


@dataclass(frozen=True, slots=True)
class DefinitionRow:
    """One line of a list of agents or tools."""

    name: str
    version: str
    description: Maybe[str]
    tags: Maybe[tuple[str, ...]]
    source: Source
    path: str
    format: Maybe[Format] = UNKNOWN


@dataclass(frozen=True)
class AgentList:
    """A page of agents."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("agents"),)
    agents: tuple[DefinitionRow, ...]
    total: int
    limit: int
    offset: int
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class ToolList:
    """A page of tools."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("tools"),)
    tools: tuple[DefinitionRow, ...]
    total: int
    limit: int
    offset: int
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class Dependency:
    """An agent or a tool that an agent needs."""

    name: str
    version: str
    type: Kind


@dataclass(frozen=True)
class AgentInfo(Described):
    """One agent in detail."""

    parts: ClassVar[tuple[Part, ...]] = (Whole("prompt"), Rows("dependencies"))
    tags: Maybe[tuple[str, ...]]
    tools: Maybe[tuple[str, ...]]
    extends: Maybe[str]
    prompt: Maybe[str]
    source: Source
    path: str
    dependencies: Maybe[tuple[Dependency, ...]]
    format: Maybe[Format] = UNKNOWN
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class ToolInfo(Described):
    """One tool in detail; the two schemas are JSON Schemas."""

    parts: ClassVar[tuple[Part, ...]] = (Text("inputSchema"), Text("outputSchema"))
    tags: Maybe[tuple[str, ...]]
    inputSchema: Maybe[Mapping[str, Any]]
    outputSchema: Maybe[Mapping[str, Any]]
    source: Source
    path: str
    format: Maybe[Format] = UNKNOWN
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class Issue:
    """One finding of a validation."""

    field: str
    message: str
    severity: Maybe[Literal["error"]] = UNKNOWN


@dataclass(frozen=True)
class Validation:
    """Whether a definition is valid, and everything found in it."""

    valid: bool
    path: str
    errors: tuple[Issue, ...]
    warnings: tuple[Issue, ...]
    schema_version: str


@dataclass(frozen=True)
class PluginVersion:
    """A plugin that is, was or will be installed."""

    name: str
    version: str
    scope: Scope


@dataclass(frozen=True)
class PluginRow(PluginVersion):
    """One line of a list of installed plugins."""

    path: str
    hasUpdate: Maybe[bool]
    latestVersion: Maybe[str]
    format: Maybe[Format] = UNKNOWN


@dataclass(frozen=True)
class PluginList:
    """Installed plugins."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("plugins"),)
    plugins: tuple[PluginRow, ...]
    total: int
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class Components:
    """The names of what a plugin contains."""

    agents: tuple[str, ...]
    tools: tuple[str, ...]
    workflows: tuple[str, ...]
    hooks: tuple[str, ...]
    commands: tuple[str, ...]
    mcpServers: Maybe[tuple[str, ...]] = UNKNOWN
    instructions: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class InstalledCopy:
    """Where a plugin is installed."""

    scope: Scope
    path: str
    installedVersion: str


@dataclass(frozen=True)
class PluginInfo(Described):
    """One plugin in detail."""

    homepage: Maybe[str]
    repository: Maybe[str]
    keywords: Maybe[tuple[str, ...]]
    components: Components
    dependencies: Maybe[Mapping[str, str]]
    format: Maybe[Format] = UNKNOWN
    installed: Maybe[InstalledCopy] = UNKNOWN
    availableVersions: Maybe[tuple[str, ...]] = UNKNOWN
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class PluginMatch:
    """A plugin that a registry offers."""

    name: str
    version: str
    description: Maybe[str]
    author: Maybe[str]
    tags: Maybe[tuple[str, ...]]
    downloads: Maybe[int]
    registry: str


@dataclass(frozen=True)
class PluginSearch:
    """The plugins that match a query, the best match first."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("results"),)
    results: tuple[PluginMatch, ...]
    total: int
    query: str
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class ConfigValue:
    """One configuration value."""

    key: str
    value: object
    exists: bool
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class ConfigView:
    """The whole configuration, secrets masked, and the files it comes from."""

    parts: ClassVar[tuple[Part, ...]] = (Text("config"), Text("yaml"))
    config: Mapping[str, Any]
    sources: tuple[str, ...]
    yaml: Maybe[str] = UNKNOWN
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class RegistryRow:
    """One configured registry."""

    name: str
    url: str
    priority: float
    authenticated: bool


@dataclass(frozen=True)
class RegistryList:
    """The configured registries in the order in which they are asked."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("registries"),)
    registries: tuple[RegistryRow, ...]
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class DownloadStats:
    """How many downloads the cache holds."""

    count: int
    size: str


@dataclass(frozen=True)
class ManifestStats(DownloadStats):
    """How many registry manifests the cache holds, and how old they are."""

    oldestEntry: str
    newestEntry: str


@dataclass(frozen=True)
class CacheStats:
    """How much the cache holds."""

    manifests: ManifestStats
    downloads: DownloadStats
    totalSize: str
    location: str
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class ClearedEntries:
    """How much was removed from the cache."""

    manifests: int
    downloads: int
    totalSize: str


@dataclass(frozen=True)
class CacheCleared:
    """That the cache was cleared."""

    success: bool
    cleared: ClearedEntries
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class Upstream:
    """What a fork was made from; `currentVersion` is upstream's newest."""

    name: str
    version: str
    currentVersion: Maybe[str] = UNKNOWN

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class ForkRow:
    """One line of a list of forks."""

    name: str
    type: Kind
    upstream: Upstream
    localVersion: str
    path: str
    hasUpstreamUpdate: bool


@dataclass(frozen=True)
class ForkList:
    """Forked agents and tools."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("forks"),)
    forks: tuple[ForkRow, ...]
    total: int
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class ForkInfo:
    """One fork in detail."""

    name: str
    type: Kind
    path: str
    upstream: Upstream
    localVersion: str
    createdAt: str
    lastMerged: Maybe[str]
    hasUpstreamUpdate: bool
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class Difference:
    """A value that a fork and its upstream do not share; a missing side is null."""

    field: str
    local: object
    upstream: object
    changeType: Literal["added", "removed", "modified"]


@dataclass(frozen=True)
class DifferenceCounts:
    """How many values differ, by kind."""

    added: int
    removed: int
    modified: int


@dataclass(frozen=True)
class ForkDiff:
    """How a fork differs from its upstream."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("differences"), Text("unified"))
    name: str
    upstreamVersion: str
    localVersion: str
    differences: tuple[Difference, ...]
    summary: DifferenceCounts
    unified: Maybe[str] = UNKNOWN
    warnings: Warnings = UNKNOWN


@dataclass(frozen=True)
class ForkUpdate:
    """A fork whose upstream has a newer version."""

    name: str
    type: Kind
    localVersion: str
    upstreamVersion: str
    breakingChanges: bool


@dataclass(frozen=True)
class ForkCheck:
    """The forks whose upstream has a newer version."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("updates"),)
    updates: tuple[ForkUpdate, ...]
    total: int
    hasUpdates: bool
    warnings: Warnings = UNKNOWN


def timestamp(now: datetime) -> str:
    """A time as the original program writes it."""
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
