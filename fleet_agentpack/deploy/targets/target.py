"""What a target is: a name, and the directories that its options and scope select."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet_agentpack.deploy.desired import Part
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.manifest import Module, Scope, TargetConfig
from fleet_agentpack.deploy.model import Blob, Root
from fleet_agentpack.deploy.project import Project
from fleet_agentpack.deploy.trees import Tree

Chosen = list[tuple[Module, Tree]]
Made = dict[Any, Blob]  # generated contents, by what they were made from
Contents = Callable[[Root, Chosen, Made], Iterable[Part]]

_SWITCHES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Area:
    """A directory of a target, the modules that go into it, and the option that switches it."""

    option: str
    scope: Scope
    dir: str  # below the user's or the project's directory
    takes: str  # the module type
    contents: Contents
    scan: bool = True  # whether files in it that nobody manages are reported
    default: bool = True


def _users_own(_config: TargetConfig, home: Home) -> str:
    return str(home.user)


@dataclass(frozen=True)
class Target:
    """One tool that can be deployed to."""

    name: str
    areas: tuple[Area, ...]
    checks: tuple[str, ...] = ()  # module types that are checked even when their option is off
    user_dir: Callable[[TargetConfig, Home], str] = _users_own
    options: Mapping[str, str] = field(default_factory=dict)  # besides those of the areas
    original: bool = True  # whether agentpack 0.9.1 knows it; a starter repo names no others

    @property
    def project_only(self) -> bool:
        """Whether nothing goes to the user's own directories."""
        return all(area.scope == "project" for area in self.areas)

    @property
    def default_options(self) -> dict[str, str | bool]:
        """Every option with its default, which `init` writes out."""
        return {**self.options, **{area.option: area.default for area in self.areas}}

    def switched_on(self, config: TargetConfig) -> list[Area]:
        """The areas that the configuration selects."""
        return [
            area
            for area in self.areas
            if config.scope in (area.scope, "both") and _is_on(area, config.options)
        ]

    def roots(
        self, config: TargetConfig, home: Home, project: Project | None
    ) -> Iterator[tuple[Root, Area]]:
        """The selected areas and where they are; without a project, only the user's."""
        tops = {"user": self.user_dir(config, home), "project": project.root if project else None}
        for area in self.switched_on(config):
            top = tops[area.scope]
            if top is not None:
                directory = f"{top.rstrip('/')}/{area.dir}".rstrip("/") or "/"
                yield Root(self.name, directory, area.scan), area


def _is_on(area: Area, options: Mapping[str, Any]) -> bool:
    value = options.get(area.option)
    if isinstance(value, str):
        return _SWITCHES.get(value.strip().lower(), area.default)
    return value if isinstance(value, bool) else area.default
