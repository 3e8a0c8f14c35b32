"""climpt's one error type: the contract's three shapes, and bad arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fleet_agentpack.kit.actions import Action, Commands, called, steps
from fleet_agentpack.kit.errors import AppError, Problem

Hint = Action | str | None


class ClimptError(AppError):
    """An expected failure; `hint` says what to do next."""

    is_missing_registry = False
    commands: ClassVar[Commands] = {"search": "climpt search QUERY"}

    def __init__(self, error: str, *, hint: Hint = None, **fields: str) -> None:
        self.error = error
        self.fields = fields
        super().__init__(error, actions=[hint] if hint else [])

    def __str__(self) -> str:
        """One line for people."""
        between = " " if "c1" in self.fields else ": "
        return ": ".join(filter(None, [self.error, between.join(self.fields.values())]))

    def payload(self) -> dict[str, str]:
        """The contract's object; a hint is one key more."""
        hints = steps(self.actions)
        return {"error": self.error, **self.fields, **({"hint": hints[0]} if hints else {})}

    @classmethod
    def registry_unreadable(cls, path: str, details: str, hint: Hint) -> ClimptError:
        """A registry, or the file that names it, cannot be used."""
        return cls("Failed to load registry", path=path, details=details, hint=hint)

    @classmethod
    def registry_missing(cls, path: str, hint: Hint) -> ClimptError:
        """There is no registry yet."""
        error = cls.registry_unreadable(path, "File not found", hint)
        error.is_missing_registry = True
        return error

    @classmethod
    def invalid_arguments(cls, tool: str, problems: Sequence[Problem]) -> ClimptError:  # noqa: ARG003
        """The arguments of a call do not fit."""
        error = cls("Invalid arguments", details="; ".join(map(str, problems)))
        error.is_about_arguments = True
        return error

    @classmethod
    def unexpected(cls, tool: str) -> ClimptError:
        """An internal failure."""
        details = f"{called(tool)} failed unexpectedly; the server's log on stderr has the cause"
        return cls("Unexpected error", details=details)


class RenderError(Exception):
    """Why a command produced no prompt, before it is known how the caller named the command."""

    def __init__(self, message: str, hint: Hint = None) -> None:
        super().__init__(message)
        self.hint = hint
