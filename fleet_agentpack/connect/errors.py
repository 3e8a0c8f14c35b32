"""The one error type of connecting clients."""

from __future__ import annotations

from collections.abc import Sequence

from fleet_agentpack.kit.errors import AppError, Problem


class ConnectError(AppError):
    """An expected failure; the advice says what to do next."""

    def __init__(self, message: str, *advice: str) -> None:
        super().__init__(message, actions=advice)

    def payload(self) -> dict[str, object]:
        """The message and what to do, as JSON."""
        return {"error": str(self), "next_actions": [each.for_agent() for each in self.actions]}

    @classmethod
    def invalid_arguments(cls, tool: str, problems: Sequence[Problem]) -> ConnectError:  # noqa: ARG003
        """The arguments do not fit."""
        return cls("; ".join(map(str, problems)))

    @classmethod
    def unexpected(cls, tool: str) -> ConnectError:
        """A fault of ours."""
        return cls(f"{tool} failed unexpectedly")
