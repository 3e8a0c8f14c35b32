"""What the tool registry takes from outside; imported at every start, so it imports little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_agentpack.enact.errors import EnactError

if TYPE_CHECKING:
    from fleet_agentpack.settings import Settings

Keyring = Callable[[str, str], str | None]  # a secret by service and account


@dataclass(frozen=True)
class ContainerSettings:
    """How the container program is called on this machine."""

    program: str | None = None
    global_args: tuple[str, ...] = ()
    run_args: tuple[str, ...] = ()

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> ContainerSettings:
        """The table `[enact.container]`. Raises `EnactError` when a value cannot be used."""
        program = table.get("program")
        if program is not None and (not isinstance(program, str) or not program):
            raise _wrong("program", "must be the name of a program")
        return cls(program, _words(table, "global_args"), _words(table, "run_args"))


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

    @classmethod
    def of(cls, settings: Settings) -> EnactSettings:
        """What concerns this domain. Raises `EnactError` for a wrong `[enact.container]`."""
        return cls(
            home=settings.home,
            cwd=settings.cwd,
            cache=settings.directories.cache,
            state=settings.directories.state,
            environ=settings.environ,
            config=settings.directories.config,
            container=ContainerSettings.parse(settings.table("enact", "container")),
            session_scope=settings.http.install_scope == "session",
        )

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


def _words(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise _wrong(key, "must be a list of strings")
    return tuple(value)


def _wrong(key: str, reason: str) -> EnactError:
    return EnactError.config_invalid("config.toml", f"enact.container.{key} {reason}")
