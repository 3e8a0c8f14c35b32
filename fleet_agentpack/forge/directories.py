"""Where things are: the project, the user's `~/.fractary`, and how paths are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.kit.paths import PathArguments, expand_home


@dataclass(frozen=True)
class Directories:
    """The project, the home and the environment that a service works with."""

    root: Path | None  # the project's directory; None where there is no project
    home: Path
    environ: Mapping[str, str]
    no_project: str = ""  # why there is none and what to do, as a sentence
    start: Path | None = None  # of a caller's relative paths, unless it is the project

    @property
    def project(self) -> Path:
        """The project's own definitions and configuration. Raises `ForgeError` without one."""
        if self.root is None:
            raise ForgeError("CONFIG_ERROR", "this needs a project", self.no_project)
        return self.root / ".fractary"

    @property
    def user(self) -> Path:
        """The user's directory, shared by all projects."""
        return self.home / ".fractary"

    @property
    def paths(self) -> PathArguments:
        """What paths mean that a caller gives."""
        return PathArguments(self.start or self.root, self.home, self.environ, self.no_project)

    def shown(self, path: Path | str) -> str:
        """A path for a result: relative inside the project, else as it is."""
        inside = self.root is not None and Path(path).is_relative_to(self.root)
        return str(Path(path).relative_to(self.root)) if inside and self.root else str(path)

    def expanded(self, text: str) -> Path:
        """A configured path: `~` is the home, anything relative starts at the project."""
        return (self.root or self.home) / expand_home(text, self.home)
