"""Toolsets: named selections of installed tools, one of which may be active."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import is_name
from fleet_agentpack.enact.results import Toolset, ToolsetChange, ToolsetInUse
from fleet_agentpack.enact.tool_lists import McpFile
from fleet_agentpack.kit.actions import Action

if TYPE_CHECKING:
    from fleet_agentpack.enact.store import Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


class Toolsets:
    """The toolsets of one store; every change raises `EnactError` when it makes no sense."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self) -> Sequence[Toolset]:
        """Every toolset, and whether it is the active one."""
        state = self._store.mcp()
        return [
            Toolset(name, members, isActive=name == state.active)
            for name, members in state.toolsets.items()
        ]

    def use(self, name: str | None) -> ToolsetInUse:
        """Make a toolset the active one; None shows every tool."""
        self._store.change_mcp(partial(_used, name=name))
        message = f"Now using toolset: {name}" if name else "Clients see every installed tool"
        return ToolsetInUse(name, message)

    def members(self, name: str) -> Sequence[str]:
        """The tools of a toolset."""
        return _members(self._store.mcp(), name)

    def check_new(self, name: str) -> None:
        """Refuse a name that cannot be used, or is. Raises `EnactError`."""
        _created(self._store.mcp(), name)

    def create(self, name: str, members: Sequence[str] | None = None) -> ToolsetChange:
        """A new toolset of these tools, or of everything that is installed."""
        made = self._store.change_mcp(partial(_created, name=name, members=members))
        count = len(made.toolsets[name])
        message = f"Created {name} with {count} tool{'s' * (count != 1)}"
        return ToolsetChange("create", name, message)

    def delete(self, name: str) -> ToolsetChange:
        """Remove a toolset; if it was active, clients see everything again."""
        self._store.change_mcp(partial(_deleted, name=name))
        return ToolsetChange("delete", name, f"Deleted {name}")

    def add(self, name: str, tool: str) -> ToolsetChange:
        """Add a tool to a toolset."""
        self._store.change_mcp(partial(_added, name=name, tool=tool))
        return ToolsetChange("add", name, f"Added {tool} to {name}", tool)

    def remove(self, name: str, tool: str) -> ToolsetChange:
        """Take a tool out of a toolset."""
        self._store.change_mcp(partial(_removed, name=name, tool=tool))
        return ToolsetChange("remove", name, f"Removed {tool} from {name}", tool)


def _used(state: McpFile, name: str | None) -> McpFile:
    if name is not None:
        _members(state, name)
    return replace(state, active=name)


def _created(state: McpFile, name: str, members: Sequence[str] | None = None) -> McpFile:
    if not _NAME.match(name):
        raise EnactError.bad_argument("toolset", f"{name[:80]!r} is not a usable name")
    if name in state.toolsets:
        step = "choose another name, or delete it first"
        raise EnactError("TOOLSET_EXISTS", f"there is already a toolset {name}", step, toolset=name)
    return state.with_toolset(name, tuple(state.tools) if members is None else members)


def _deleted(state: McpFile, name: str) -> McpFile:
    _members(state, name)
    toolsets = {key: members for key, members in state.toolsets.items() if key != name}
    return replace(state, toolsets=toolsets, active=None if state.active == name else state.active)


def _added(state: McpFile, name: str, tool: str) -> McpFile:
    members = _members(state, name)
    if not is_name(tool):
        raise EnactError.bad_argument("tool", f"{tool[:80]!r} is not a tool's name")
    if tool not in state.tools:
        raise EnactError.not_installed(tool)
    return state.with_toolset(name, (*members, tool))


def _removed(state: McpFile, name: str, tool: str) -> McpFile:
    members = _members(state, name)
    if tool not in members:
        raise EnactError(
            "NOT_IN_TOOLSET",
            f"{tool} is not in the toolset {name}",
            f"choose one of {', '.join(members)}" if members else "it is empty",
            toolset=name,
            tool=tool,
            tools=[*members],
        )
    return state.with_toolset(name, (each for each in members if each != tool))


def _members(state: McpFile, name: str) -> tuple[str, ...]:
    if name not in state.toolsets:
        known = sorted(state.toolsets)
        create = Action.command("mcp", "toolset", "create", "NAME", text="create one with: {}")
        step = f"choose one of {', '.join(known)}" if known else create
        message = f"there is no toolset {name}"
        raise EnactError("TOOLSET_NOT_FOUND", message, step, toolset=name, toolsets=known)
    return state.toolsets[name]
