"""Toolsets: named selections of installed tools, one of which may be active; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import is_name
from fleet_agentpack.enact.statefiles import McpFile
from fleet_agentpack.kit.actions import Action

_CREATE = Action.command("mcp", "toolset", "create", "NAME", text="create one with: {}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def with_tool(state: McpFile, name: str, version: str) -> McpFile:
    """A tool was installed: clients see it, also when a toolset is active."""
    tools = {**state.tools, name: version}
    members = state.toolsets.get(state.active or "")
    if members is None or name in members:
        return replace(state, tools=tools)
    return replace(state, tools=tools, toolsets=_with(state, state.active, (*members, name)))


def without_tool(state: McpFile, name: str) -> McpFile:
    """A tool is gone: from the list and from every toolset."""
    return replace(
        state,
        tools={key: value for key, value in state.tools.items() if key != name},
        toolsets={
            key: tuple(each for each in members if each != name)
            for key, members in state.toolsets.items()
        },
    )


def create(state: McpFile, name: str, installed: Mapping[str, str]) -> McpFile:
    """A new toolset of everything that is installed."""
    if not _NAME.match(name):
        raise EnactError.bad_argument("toolset", f"{name[:80]!r} is not a usable name")
    if name in state.toolsets:
        raise EnactError(
            "TOOLSET_EXISTS",
            f"there is already a toolset {name}",
            details={"toolset": name},
            actions=["choose another name, or delete it first"],
        )
    return replace(state, toolsets=_with(state, name, tuple(installed)))


def delete(state: McpFile, name: str) -> McpFile:
    """A toolset less; if it was active, clients see everything again."""
    _members(state, name)
    toolsets = {key: members for key, members in state.toolsets.items() if key != name}
    return replace(state, toolsets=toolsets, active=None if state.active == name else state.active)


def add(state: McpFile, name: str, tool: str) -> McpFile:
    """One tool more in a toolset."""
    members = _members(state, name)
    if not is_name(tool):
        raise EnactError.bad_argument("tool", f"{tool[:80]!r} is not a tool's name")
    if tool not in state.tools:
        raise EnactError.not_installed(tool)
    return replace(state, toolsets=_with(state, name, tuple(dict.fromkeys((*members, tool)))))


def remove(state: McpFile, name: str, tool: str) -> McpFile:
    """One tool less in a toolset."""
    members = _members(state, name)
    if tool not in members:
        raise EnactError(
            "NOT_IN_TOOLSET",
            f"{tool} is not in the toolset {name}",
            details={"toolset": name, "tool": tool, "tools": list(members)},
            actions=[f"choose one of {', '.join(members)}" if members else "it is empty"],
        )
    return replace(state, toolsets=_with(state, name, tuple(e for e in members if e != tool)))


def use(state: McpFile, name: str | None) -> McpFile:
    """Make a toolset the active one; None shows every tool."""
    if name is not None:
        _members(state, name)
    return replace(state, active=name)


def _members(state: McpFile, name: str) -> tuple[str, ...]:
    if name not in state.toolsets:
        known = sorted(state.toolsets)
        raise EnactError(
            "TOOLSET_NOT_FOUND",
            f"there is no toolset {name}",
            details={"toolset": name, "toolsets": known},
            actions=[f"choose one of {', '.join(known)}" if known else _CREATE],
        )
    return state.toolsets[name]


def _with(state: McpFile, name: str | None, members: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {**state.toolsets, str(name): members}
