"""Next actions: tool calls for an agent, commands for a person or a program, in a useful order."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import DoctorData, DriftRow, NextAction, StatusData
from fleet_agentpack.kit.actions import PROGRAM, Action
from fleet_agentpack.kit.results import Maybe, Unknown


@dataclass(frozen=True)
class DeployAction(Action):
    """A step that a program takes on the command line, too, with `--json`, and `--yes` to write."""

    program: str = ""


def call(request: Request, tool: str, *words: str, **arguments: Any) -> DeployAction:
    """A tool call, or the command of these words, with what the request asked for."""
    line = shlex.join(command_line(request, *words))
    yes = " --yes" if arguments.get("yes") else ""
    given = {**_arguments(request), **arguments}
    return DeployAction(tool, given, person=line, program=f"{line}{yes} --json")


def command(request: Request, *words: str) -> DeployAction:
    """A command that writes and for which there is no tool."""
    line = shlex.join(command_line(request, *words))
    return DeployAction(text=line, person=line, program=f"{line} --yes --json")


def command_line(request: Request, *words: str) -> list[str]:
    """A command with the flags of the request that led to it."""
    flags = [
        word
        for name, value in _arguments(request).items()
        for word in (f"--{name.replace('_', '-')}", value)
    ]
    return [PROGRAM, *flags, *words]


def status_actions(
    request: Request, rows: Sequence[DriftRow], *, needs_deploy: bool
) -> list[NextAction]:
    """What to do about drift; what somebody edited is kept before anything else."""
    edited = [row for row in rows if row.kind == "modified" and row.cause in ("edited", "both")]
    found = [NextAction("keep_edits", _keep(request))] if edited else []
    # An extra that nobody moved, or that was edited, is the user's own: no deploy changes it.
    others = [
        row
        for row in rows
        if (row.kind != "extra" or row.cause == "pack_moved") and row not in edited
    ]
    if edited or others:
        found.append(NextAction("diff", call(request, "diff", "diff")))
    if others or needs_deploy:
        apply = call(request, "deploy_apply", "deploy", "--apply", yes=True)
        found.append(NextAction("deploy_apply", apply))
    return [each for each in found if each.command.is_possible]


def status_as_commands(data: StatusData) -> StatusData:
    """The same with commands instead of tool calls, for a program on the command line."""
    detailed = data.next_actions_detailed
    if not isinstance(detailed, Unknown):
        detailed = [replace(each, command=_program(each.command)) for each in detailed]
    actions = as_commands(data.next_actions)
    return replace(data, next_actions=actions, next_actions_detailed=detailed)


def doctor_as_commands(data: DoctorData) -> DoctorData:
    """The same with commands instead of tool calls, for a program on the command line."""
    return replace(data, next_actions=as_commands(data.next_actions))


def as_commands(actions: Maybe[Sequence[Action]]) -> Maybe[Sequence[Action]]:
    """Commands instead of tool calls, for a program on the command line."""
    return actions if isinstance(actions, Unknown) else [_program(each) for each in actions]


def _program(action: Action) -> Action:
    return Action.instruction(action.program) if isinstance(action, DeployAction) else action


def _keep(request: Request) -> Action:
    """Take the edits into the pack; the tool knows no profile, target or machine."""
    line = shlex.join(command_line(request, "keep"))
    given = {} if request.repo is None else {"repo": request.repo}
    return DeployAction(
        "keep_edits", {**given, "yes": True}, person=line, program=f"{line} --yes --json"
    )


def _arguments(request: Request) -> dict[str, str]:
    """The arguments that are not the default."""
    given = {
        "repo": (request.repo, None),
        "profile": (request.profile, "default"),
        "target": (request.target, "all"),
        "machine": (request.machine, None),
    }
    return {
        name: value
        for name, (value, default) in given.items()
        if value is not None and value != default
    }
