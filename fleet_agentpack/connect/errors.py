"""The one error type of connecting clients."""

from __future__ import annotations

from fleet_agentpack.kit.errors import AppError


class ConnectError(AppError):
    """An expected failure; the advice says what to do next."""

    def __init__(self, message: str, *advice: str) -> None:
        super().__init__(message, actions=advice)
