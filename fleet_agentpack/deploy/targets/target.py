"""What a target is: a name, and the areas that its options and scope select."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet_agentpack.deploy.home import Home, Project
from fleet_agentpack.deploy.manifest import Module, TargetConfig
from fleet_agentpack.deploy.model import Blob, Output, Root
from fleet_agentpack.deploy.trees import Tree

Made = dict[Any, Blob]  # generated contents, by what they were made from
Contents = Callable[[Root, "list[tuple[Module, Tree]]", Made], Iterable[Output]]

_TRUE, _FALSE = {"true", "yes", "1"}, {"false", "no", "0"}


@dataclass(frozen=True)
class TargetContext:
    """What a target's areas depend on."""

    target: str
    config: TargetConfig
    home: Home
    project: Project

    def user(self, option: str, default: bool = True) -> bool:
        """Whether an option for the user's own directories is on."""
        return self.config.scope in ("user", "both") and self._flag(option, default)

    def in_project(self, option: str, default: bool = True) -> bool:
        """Whether an option for the project's directories is on."""
        return self.config.scope in ("project", "both") and self._flag(option, default)

    def text(self, option: str) -> str | None:
        """An option's text, None when it is missing or blank."""
        value = self.config.options.get(option)
        return value if isinstance(value, str) and value.strip() else None

    def user_dir(self, *parts: str) -> str:
        """A directory in the user's home."""
        return "/".join([str(self.home.user).rstrip("/"), *parts])

    def project_dir(self, *parts: str) -> str:
        """A directory in the project."""
        return "/".join([self.project.root.rstrip("/"), *parts]) or "/"

    def _flag(self, option: str, default: bool) -> bool:
        value = self.config.options.get(option)
        if isinstance(value, bool):
            return value
        word = value.strip().lower() if isinstance(value, str) else ""
        return True if word in _TRUE else False if word in _FALSE else default


@dataclass(frozen=True)
class Area:
    """A root and what goes into it."""

    dir: str
    takes: str  # the module type
    contents: Contents
    scan_extras: bool = True


@dataclass(frozen=True)
class Target:
    """One tool that can be deployed to."""

    name: str
    areas: Callable[[TargetContext], Iterator[Area]]
    project_only: bool = False
    checks: tuple[str, ...] = ()  # module types that are checked even when their option is off
    options: Mapping[str, Any] = field(default_factory=dict)  # what `init` writes out
