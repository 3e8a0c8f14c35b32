"""Where things are: the project, the user's `~/.fractary`, and how paths are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.kit.paths import expand_home


@dataclass(frozen=True)
class Directories:
    """The working directory, the home and the environment that a service was started with."""

    cwd: Path
    home: Path
    environ: Mapping[str, str]

    @property
    def project(self) -> Path:
        """The project's own directory of definitions and configuration."""
        return self.cwd / ".fractary"

    @property
    def user(self) -> Path:
        """The user's directory, shared by all projects."""
        return self.home / ".fractary"

    def shown(self, path: Path | str) -> str:
        """A path for a result: relative under the working directory, else as it is."""
        try:
            return str(Path(path).relative_to(self.cwd))
        except ValueError:
            return str(path)

    def expanded(self, text: str) -> Path:
        """A configured path: `~` is the home, anything relative starts at the project."""
        return self.cwd / expand_home(text, self.home)
