"""The tool registry's settings; imported at every start, so it imports little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.kit.paths import PathArguments
from fleet_agentpack.settings import Settings, SettingsError

Keyring = Callable[[str, str], str | None]  # a secret by service and account


@dataclass(frozen=True)
class ContainerSettings:
    """How to call the container program on this machine."""

    program: str | None = None
    global_args: tuple[str, ...] = ()
    run_args: tuple[str, ...] = ()
    relabel: bool = False  # whether SELinux labels of the user's files may be changed

    @classmethod
    def of(cls, settings: Settings) -> ContainerSettings:
        """The table `[enact.container]`. Raises `EnactError` for a value that cannot be used."""
        if settings.value("enact", "container") is None:
            return cls()  # runs at every start: without a table, the shapes are not imported
        from fleet_agentpack.config import ContainerTable

        try:
            table = settings.read_table(ContainerTable, "enact", "container")
        except SettingsError as error:
            raise EnactError.config_invalid("config.toml", str(error)) from error
        return cls(table.program, table.global_args, table.run_args, table.relabel)


@dataclass(frozen=True)
class EnactSettings:
    """Where things are, and how tools are run."""

    home: Path
    project: Path | None
    paths: PathArguments  # what paths mean that a caller gives
    cache: Path
    state: Path
    environ: Mapping[str, str]
    config: Path | None = None  # the directory of the settings that name programs to run
    container: ContainerSettings = field(default_factory=ContainerSettings)
    session_scope: bool = False
    keyring: Keyring | None = None  # None: the system's own

    @classmethod
    def of(cls, settings: Settings) -> EnactSettings:
        """The settings of this domain. Raises `EnactError` for an invalid `[enact.container]`."""
        return cls(
            home=settings.home,
            project=settings.project,
            paths=settings.paths,
            cache=settings.directories.cache,
            state=settings.directories.state,
            environ=settings.environ,
            config=settings.directories.config,
            container=ContainerSettings.of(settings),
            session_scope=settings.http.install_scope == "session",
        )

    @property
    def root(self) -> Path:
        """The user's store."""
        return self.home / ".enact"

    @property
    def own(self) -> tuple[Path, ...]:
        """This program's own directories, which no tool may write to."""
        return (self.state, self.cache, *([self.config] if self.config else []))

    @property
    def project_file(self) -> Path:
        """The project's own list of tools. Raises `EnactError` where there is no project."""
        if self.project is None:
            raise EnactError("PROJECT_REQUIRED", "this needs a project", self.paths.no_base)
        return self.project / ".enact" / "tools.json"
