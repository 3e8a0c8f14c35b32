"""The one error of this domain and the four kinds that the contract has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self, TypedDict

from fleet_agentpack.kit.actions import Action, Commands, called, steps
from fleet_agentpack.kit.approval import Refusal
from fleet_agentpack.kit.errors import AppError, Problem

Kind = Literal["bad_request", "not_found", "conflict", "unavailable"]

STATUS: dict[Kind, int] = {
    "bad_request": 400,
    "not_found": 404,
    "conflict": 409,
    "unavailable": 503,
}


class Failure(TypedDict):
    """A failed call, as callers receive it."""

    error: Kind
    message: str
    details: dict[str, object]


class FleetError(AppError):
    """An expected failure of a fleet call: what happened and what to do next."""

    commands: ClassVar[Commands] = {
        "list_agents": "fleet list",
        "list_agent_projects": "fleet projects",
        "show_agent": "fleet show {agent_name}",
        "show_agent_task_history": "fleet history {agent_name}",
        "stop_agent_task": "fleet stop {agent_name}",
        "delete_agent": "fleet delete {agent_name}",
        "wait_for_agents": "fleet wait",
    }

    def __init__(self, kind: Kind, message: str, *actions: Action, **details: object) -> None:
        super().__init__(message, actions=actions)
        self.kind = kind
        self.details = {"status": STATUS[kind], **details}

    def payload(self) -> Failure:
        """The contract's `{error, message, details}`; the message ends with what to do."""
        message = " ".join([str(self), *steps(self.actions)])
        return {"error": self.kind, "message": message, "details": self.details}

    @classmethod
    def bad_request(cls, message: str, *actions: Action, **details: object) -> Self:
        """400: the request itself is wrong."""
        return cls("bad_request", message, *actions, **details)

    @classmethod
    def not_found(cls, message: str, *actions: Action, **details: object) -> Self:
        """404: there is nothing of that name."""
        return cls("not_found", message, *actions, **details)

    @classmethod
    def conflict(cls, message: str, *actions: Action, **details: object) -> Self:
        """409: not possible now, perhaps later."""
        return cls("conflict", message, *actions, **details)

    @classmethod
    def unavailable(cls, message: str, *actions: Action, **details: object) -> Self:
        """503: the engine is missing, misconfigured or failing."""
        return cls("unavailable", message, *actions, **details)

    @classmethod
    def no_such_agent(cls, name: str) -> Self:
        """404 for an agent that is not in the fleet."""
        return cls.not_found(
            f"There is no agent called '{name[:80]}'.",
            Action("list_agents", text="Call {} to see the names.", person="{}"),
            agent_name=name[:80],
        )

    @classmethod
    def no_such_project(cls, project: str, known: Sequence[str]) -> Self:
        """404 for a project without a template; `create_agent` makes a 400 of it."""
        offer = f" Known projects: {', '.join(known)}." if known else ""
        return cls.not_found(
            f"There is no project called '{project[:80]}'.{offer}", project=project[:80]
        )

    @classmethod
    def busy(cls, name: str, task: str = "", /, **details: object) -> Self:
        """409 for a task to an agent that has one."""
        return cls.conflict(
            f"Agent '{name}' already has a running task{task and f': {task}'}.",
            Action(
                "stop_agent_task",
                {"agent_name": name},
                "Wait until it ends, or call {}.",
                person="wait until it ends, or run: {}",
            ),
            agent_name=name,
            **details,
        )

    @classmethod
    def invalid_arguments(cls, tool: str, problems: Sequence[Problem]) -> Self:
        """400 for arguments that do not fit the tool's schema."""
        told = "; ".join(str(problem) for problem in problems)
        return cls.bad_request(
            f"Invalid arguments for {called(tool)}: {told}",
            problems=[{"field": p.field, "message": p.message} for p in problems],
        )

    @classmethod
    def confirm_required(cls, tool: str) -> Self:
        """400 for a change without `yes: true`."""
        return cls.bad_request(
            f"{called(tool)} changes a branch of the user's: call it again with yes: true once they"
            " want that. Nothing was changed.",
            field="yes",
        )

    @classmethod
    def not_approved(cls, tool: str, refusal: Refusal) -> Self:
        """400 for a change that a person was to agree to and has not."""
        return cls.bad_request(
            f"{tool} was not carried out: {refusal.told}.", reason=f"approval_{refusal.value}"
        )

    @classmethod
    def unexpected(cls, tool: str) -> Self:
        """503 for an internal failure."""
        return cls.unavailable(
            f"{called(tool)} failed unexpectedly; the server's log has the details."
        )


class UnconfirmedError(FleetError):
    """503: a message was sent, but it is not known whether it arrived."""


class NotAnsweringError(FleetError):
    """503: an agent is there, but its program does not answer; it may only be starting."""
