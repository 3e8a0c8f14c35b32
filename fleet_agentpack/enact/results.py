"""Every answer of the tool registry, with its fields in wire order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fleet_agentpack.enact.errors import EnactError
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
class ChangeResult:
    """An install or uninstall that was carried out."""

    success: Literal[True] = field(default=True, init=False)
    message: str
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
class RunResult:
    """What a run printed, and how it went."""

    parts: ClassVar[tuple[Part, ...]] = (Text("output"),)
    output: Any  # parsed JSON, or text
    exit_code: int
    duration_ms: int
    provider: str
    warnings: Maybe[tuple[str, ...]] = UNKNOWN


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
