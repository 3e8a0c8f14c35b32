"""`tools.json` and `mcp.json`: which tools are installed, and which of them clients see.

Both are read strictly and written whole; unknown keys are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.kit.files import UnreadableError, read_bytes
from fleet_agentpack.kit.mappings import UnparsableError, parse_object
from fleet_agentpack.kit.results import json_file


def read_object(path: Path) -> dict[str, object] | None:
    """A JSON object; None when there is no file. Raises `EnactError` for anything else."""
    try:
        return parse_object(read_bytes(path))
    except FileNotFoundError:
        return None
    except (UnreadableError, UnparsableError) as error:
        raise EnactError.store_corrupt(path, str(error)) from error


@dataclass(frozen=True)
class ToolsFile:
    """`tools.json`: which tools are installed, at which version."""

    path: Path
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> ToolsFile:
        """The file as it is; a missing one is empty."""
        data = read_object(path) or {}
        _texts(path, "tools", data.get("tools", {}))
        _texts(path, "aliases", data.get("aliases", {}))
        return cls(path, data)

    @property
    def tools(self) -> dict[str, str]:
        """The installed version of every tool."""
        return dict(self.data.get("tools", {}))

    def content(self) -> bytes:
        """What the file holds."""
        return json_file(self.data)

    def adding(self, name: str, version: str) -> ToolsFile:
        """The same, with this tool added."""
        return ToolsFile(self.path, {**self.data, "tools": {**self.tools, name: version}})

    def removing(self, name: str) -> ToolsFile:
        """The same, without this tool and its aliases."""
        data = {**self.data, "tools": _without(self.tools, name)}
        if "aliases" in data:
            aliases = self.data["aliases"].items()
            data["aliases"] = {key: value for key, value in aliases if value != name}
        return ToolsFile(self.path, data)


@dataclass(frozen=True)
class McpFile:
    """`mcp.json`: which tools MCP clients see, and the toolsets that narrow them down."""

    path: Path
    tools: Mapping[str, str] = field(default_factory=dict)
    toolsets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    active: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, installed: Callable[[], Mapping[str, str]]) -> McpFile:
        """The file as it is; without one, what is installed is what clients see."""
        data = read_object(path)
        if data is None:
            return cls(path, dict(installed()))
        tools = _texts(path, "tools", data.get("tools", {}))
        active = data.get("activeToolset")
        if active is not None and not isinstance(active, str):
            raise EnactError.store_corrupt(path, "activeToolset is neither a name nor null")
        known = ("tools", "toolsets", "activeToolset")
        other = {key: value for key, value in data.items() if key not in known}
        return cls(path, tools, _sets(path, data.get("toolsets", {})), active, other)

    @property
    def dangling(self) -> bool:
        """Whether the active toolset does not exist."""
        return self.active is not None and self.active not in self.toolsets

    def visible(self) -> dict[str, str]:
        """What clients see: everything, or the active toolset; nothing when that is missing."""
        if self.active is None:
            return dict(self.tools)
        members = self.toolsets.get(self.active, ())
        return {name: self.tools[name] for name in members if name in self.tools}

    def adding(self, name: str, version: str) -> McpFile:
        """The same, with this tool added; clients see it also when a toolset is active."""
        added = replace(self, tools={**self.tools, name: version})
        members = self.toolsets.get(self.active or "")
        return added if members is None else added.with_toolset(str(self.active), (*members, name))

    def removing(self, name: str) -> McpFile:
        """The same, without this tool in the list or in any toolset."""
        toolsets = {
            key: tuple(each for each in members if each != name)
            for key, members in self.toolsets.items()
        }
        return replace(self, tools=_without(self.tools, name), toolsets=toolsets)

    def with_toolset(self, name: str, members: Iterable[str]) -> McpFile:
        """The same, with this toolset, in which every tool is named once."""
        return replace(self, toolsets={**self.toolsets, name: tuple(dict.fromkeys(members))})

    def content(self) -> bytes:
        """What the file holds."""
        toolsets = {name: list(members) for name, members in self.toolsets.items()}
        lists = {"tools": dict(self.tools), "toolsets": toolsets, "activeToolset": self.active}
        return json_file({**self.other, **lists})


def _without(tools: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in tools.items() if key != name}


def _texts(path: Path, key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise EnactError.store_corrupt(path, f"{key} must map names to strings")
    return value


def _sets(path: Path, value: Any) -> dict[str, tuple[str, ...]]:
    fine = isinstance(value, dict) and all(
        isinstance(members, list) and all(isinstance(each, str) for each in members)
        for members in value.values()
    )
    if not fine:
        raise EnactError.store_corrupt(path, "toolsets must map names to lists of tools")
    return {name: tuple(dict.fromkeys(members)) for name, members in value.items()}
