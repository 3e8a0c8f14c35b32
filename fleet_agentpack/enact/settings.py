"""What the tool registry takes from outside; imported at every start, so it imports little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Keyring = Callable[[str, str], str | None]  # a secret by service and account


@dataclass(frozen=True)
class ContainerSettings:
    """How the container program is called on this machine."""

    program: str | None = None
    global_args: tuple[str, ...] = ()
    run_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class EnactSettings:
    """Where things are, and how tools are run."""

    home: Path
    cwd: Path
    cache: Path
    state: Path
    environ: Mapping[str, str]
    config: Path | None = None  # the directory of the settings that name programs to run
    container: ContainerSettings = field(default_factory=ContainerSettings)
    session_scope: bool = False
    keyring: Keyring | None = None  # None: the system's own

    @property
    def root(self) -> Path:
        """The store of the user."""
        return self.home / ".enact"

    @property
    def own(self) -> tuple[Path, ...]:
        """This program's own directories, which no tool may be given to write to."""
        return (self.state, self.cache, *([self.config] if self.config else []))

    @property
    def project_file(self) -> Path:
        """The project's own list of tools."""
        return self.cwd / ".enact" / "tools.json"
