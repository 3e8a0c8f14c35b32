"""The one error type of connecting clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleet_agentpack.kit.errors import AppError, Problem


class ConnectError(AppError):
    """An expected failure; the advice says what to do next."""

    def __init__(self, message: str, *advice: str) -> None:
        super().__init__(message)
        self.message = message
        self._advice = advice

    def payload(self) -> dict[str, Any]:
        """The message and what to do, as JSON."""
        return {"error": self.message, "next_actions": list(self._advice)}

    def advice(self) -> Sequence[str]:
        """What a person can do next."""
        return self._advice

    @classmethod
    def invalid_arguments(cls, tool: str, problems: Sequence[Problem]) -> ConnectError:  # noqa: ARG003
        """The arguments do not fit."""
        return cls("; ".join(map(str, problems)))

    @classmethod
    def unexpected(cls, tool: str) -> ConnectError:
        """A fault of ours."""
        return cls(f"{tool} failed unexpectedly")
