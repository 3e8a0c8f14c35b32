"""The common base of every domain's error, and the shape of a bad argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from fleet_agentpack.kit.actions import Action, Commands, called, steps
from fleet_agentpack.kit.approval import Refusal, Remedy


@dataclass(frozen=True)
class Problem:
    """One thing wrong with the arguments of a call."""

    field: str  # dotted path of the argument; empty when the whole call is meant
    kind: str  # pydantic's error type, such as `missing` or `literal_error`
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class AppError(Exception):
    """An expected failure that knows how its domain tells it to the caller, and what to do next."""

    commands: ClassVar[Commands] = {}  # the command lines of the room's tools
    remedy: Remedy | None = None  # what a person could agree to instead
    is_about_arguments = False

    def __init__(self, message: str, *, actions: Iterable[Action | str] = ()) -> None:
        super().__init__(message)
        self.actions = tuple(
            Action.instruction(each) if isinstance(each, str) else each for each in actions
        )

    def payload(self) -> Mapping[str, object]:
        """The JSON object that the caller receives, unless the domain's contract has its own."""
        return {"error": str(self), "next_actions": steps(self.actions)}

    def advice(self) -> Sequence[str]:
        """What a person can do next, a line each; the command line prints them below the error."""
        return [action.for_person(self.commands) for action in self.actions]

    @classmethod
    def invalid_arguments(cls, tool: str, problems: Sequence[Problem]) -> Self:
        """The error for a call whose arguments do not fit the tool's schema."""
        return cls(f"{called(tool)}: {'; '.join(map(str, problems))}")

    @classmethod
    def confirm_required(cls, tool: str) -> AppError:
        """The error for a mutating call without `yes: true`, where a domain has such calls."""
        raise NotImplementedError(f"{cls.__name__} has no error for an unconfirmed {tool}")

    @classmethod
    def not_approved(cls, tool: str, refusal: Refusal) -> AppError:
        """The error for a call that a person was to agree to and has not; nothing was done."""
        return cls(f"{tool} was not carried out: {refusal.told}.")

    @classmethod
    def unexpected(cls, tool: str) -> Self:
        """The error for an internal failure; never carries the failure's own text."""
        return cls(f"{called(tool)} failed unexpectedly")
