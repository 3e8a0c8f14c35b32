"""Makes the service from the process's settings, checking those that concern it."""

from __future__ import annotations

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.enact.settings import ContainerSettings, EnactSettings
from fleet_agentpack.settings import Settings, SettingsError


def open_enact(settings: Settings) -> EnactService:
    """The service of one user. Raises `EnactError` for a `[enact.container]` that is wrong."""
    return EnactService(
        EnactSettings(
            home=settings.home,
            cwd=settings.cwd,
            cache=settings.directories.cache,
            state=settings.directories.state,
            environ=settings.environ,
            config=settings.directories.config,
            container=_container(settings),
            session_scope=settings.http.install_scope == "session",
        )
    )


def _container(settings: Settings) -> ContainerSettings:
    if not settings.table("enact", "container"):
        return ContainerSettings()  # at every start: the shapes are not imported for nothing
    from fleet_agentpack.config import ContainerTable

    try:
        table = settings.read_table(ContainerTable, "enact", "container")
    except SettingsError as error:
        raise EnactError.config_invalid("config.toml", str(error)) from error
    return ContainerSettings(table.program, table.global_args, table.run_args)
