"""Makes the service from the process's settings, checking those that concern it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.enact.settings import ContainerSettings, EnactSettings

if TYPE_CHECKING:
    from fleet_agentpack.settings import Settings


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
            container=_container(settings.table("enact", "container")),
            session_scope=settings.http.install_scope == "session",
        )
    )


def _container(table: Mapping[str, Any]) -> ContainerSettings:
    program = table.get("program")
    if program is not None and (not isinstance(program, str) or not program):
        raise _wrong("program", "must be the name of a program")
    return ContainerSettings(program, _words(table, "global_args"), _words(table, "run_args"))


def _words(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise _wrong(key, "must be a list of texts")
    return tuple(value)


def _wrong(key: str, reason: str) -> EnactError:
    return EnactError.config_invalid("config.toml", f"enact.container.{key} {reason}")
