"""Every answer of the tool registry, with its fields in wire order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.permissions import Bounds, Permissions
from fleet_agentpack.kit.fit import Part, Rows, Text, Whole
from fleet_agentpack.kit.results import UNKNOWN, Maybe


def if_any(warnings: Iterable[str]) -> Maybe[tuple[str, ...]]:
    """Warnings as a field that is left out when there are none."""
    return tuple(warnings) or UNKNOWN


@dataclass(frozen=True)
class Hit:
    """One tool that a search found."""

    name: str
    description: str
    version: Maybe[str] = UNKNOWN
    tags: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class SearchResult:
    """Tools that match a query, best first."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("results"),)
    results: tuple[Hit, ...]
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class LearnResult:
    """A tool's documentation as Markdown."""

    parts: ClassVar[tuple[Part, ...]] = (Whole("documentation"),)
    documentation: str
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class PermissionsOf:
    """What a tool asks for, and what it has."""

    wanted: Permissions
    granted: Permissions
    bounds: Bounds  # of memory, processes, time, disk; and the image
    changes: Maybe[tuple[str, ...]] = UNKNOWN  # the inputs whose directories a call may change


@dataclass(frozen=True)
class ChangeResult:
    """An install, uninstall or grant that was carried out."""

    success: Literal[True] = field(default=True, init=False)
    message: str
    permissions: Maybe[PermissionsOf] = UNKNOWN  # of a tool that asks for any
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class InstalledTool:
    """One row of the list; of a tool that a project pins, only name and version are known."""

    name: str
    version: str
    description: Maybe[str] = UNKNOWN
    mcp_tools: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class BrokenTool:
    """An installed tool that must not run: unreadable, changed since the install, or distrusted."""

    name: str
    version: str
    error: EnactError


@dataclass(frozen=True)
class ToolList:
    """What is installed."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("tools"),)
    tools: tuple[InstalledTool, ...]
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class AuditedTool:
    """What is known of an installed tool after asking its registry again."""

    name: str
    version: str
    state: Literal["ok", "refused", "unchecked"]
    checked_at: str  # when its registry last told; the install counts
    signers: tuple[str, ...]
    code: Maybe[str] = UNKNOWN  # why it will not run, or was not checked
    message: Maybe[str] = UNKNOWN


@dataclass(frozen=True)
class AuditResult:
    """Every tool that was asked about."""

    tools: tuple[AuditedTool, ...]
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class OutdatedTool:
    """An installed tool beside what its registry offers."""

    name: str
    version: str
    outdated: bool
    latest: Maybe[str] = UNKNOWN
    problem: Maybe[str] = UNKNOWN


@dataclass(frozen=True)
class OutdatedResult:
    """Every tool that was looked at."""

    tools: tuple[OutdatedTool, ...]


@dataclass(frozen=True)
class UpdatedTool:
    """What an update did with one tool."""

    name: str
    before: str
    version: str
    state: Literal["updated", "current", "refused"]
    code: Maybe[str] = UNKNOWN
    message: Maybe[str] = UNKNOWN


@dataclass(frozen=True)
class UpdateResult:
    """Every tool that was to be updated."""

    tools: tuple[UpdatedTool, ...]
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class BuildInfo:
    """How a tool is built, and when it last was."""

    steps: tuple[str, ...]
    built_at: Maybe[str] = UNKNOWN  # unknown where it is not built
    backend: Maybe[str] = UNKNOWN
    duration_ms: Maybe[int] = UNKNOWN
    size_bytes: Maybe[int] = UNKNOWN
    network: Maybe[tuple[str, ...]] = UNKNOWN  # the hosts that it had


@dataclass(frozen=True)
class ToolInfo:
    """Everything that is known of an installed tool."""

    name: str
    version: str
    source: str
    digest: str
    installed_at: str
    signers: tuple[str, ...]
    versions: tuple[str, ...]  # that its registry offers, the newest first
    audit: Maybe[AuditedTool]
    wanted: Permissions
    granted: Permissions
    bounds: Bounds
    changes: Maybe[tuple[str, ...]] = UNKNOWN
    build: Maybe[BuildInfo] = UNKNOWN  # of a tool that has to be built
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class LockedRow:
    """One tool of a lock file."""

    version: str
    digest: str
    signers: tuple[str, ...]


@dataclass(frozen=True)
class LockResult:
    """A lock file that was written."""

    success: Literal[True] = field(default=True, init=False)
    message: str
    file: str
    tools: Mapping[str, LockedRow]


@dataclass(frozen=True)
class RunResult:
    """What a run printed, and how it went."""

    parts: ClassVar[tuple[Part, ...]] = (Text("output"),)
    output: Any  # parsed JSON, or text
    exit_code: int
    duration_ms: int
    provider: str
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


@dataclass(frozen=True)
class Run:
    """One of a tool's last runs."""

    time: str
    arguments: tuple[str, ...]  # their names
    status: str  # `ok`, or the code of its error
    duration_ms: int
    output: str  # its beginning, without secrets


@dataclass(frozen=True)
class Toolset:
    """A named selection of installed tools."""

    name: str
    tools: tuple[str, ...]
    isActive: bool


@dataclass(frozen=True)
class ToolsetInUse:
    """The toolset that clients see from now on; null for every tool."""

    success: Literal[True] = field(default=True, init=False)
    activeToolset: str | None
    message: str


@dataclass(frozen=True)
class ToolsetChange:
    """A toolset that was created, deleted or changed."""

    success: Literal[True] = field(default=True, init=False)
    action: str
    toolset: str
    message: str
    tool: Maybe[str] = UNKNOWN
    warnings: Maybe[tuple[str, ...]] = UNKNOWN
