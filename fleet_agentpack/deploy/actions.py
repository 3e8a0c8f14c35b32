"""Next actions: commands that a caller can copy, in the order in which they make sense."""

from __future__ import annotations

import shlex

from fleet_agentpack.deploy.results import DriftCounts, NextAction
from fleet_agentpack.deploy.workspace import Request

PROGRAM = "fleet-agentpack"
_PRIORITY = {
    "doctor": 10,
    "doctor_fix": 10,
    "diff": 40,
    "plan": 50,
    "deploy_apply": 60,
    "status": 70,
}


def prefix(request: Request) -> str:
    """The program with the global flags that are not the default."""
    words = [PROGRAM]
    for flag, value, default in (
        ("--repo", request.repo, None),
        ("--profile", request.profile, "default"),
        ("--target", request.target, "all"),
        ("--machine", request.machine, None),
    ):
        if value is not None and value != default:
            words += [flag, value]
    return shlex.join(words)


def status_actions(
    request: Request, summary: DriftCounts, *, needs_deploy: bool
) -> list[NextAction]:
    """What to do about drift."""
    found = set()
    if needs_deploy:
        found.add("deploy_apply")
    if summary.modified or summary.missing:
        found |= {"diff", "deploy_apply"}
    elif summary.extra:
        found.add("diff")
    commands = {"diff": "diff --json", "deploy_apply": "deploy --apply --yes --json"}
    start = prefix(request)
    return [
        NextAction(action, f"{start} {commands[action]}")
        for action in sorted(found, key=lambda action: (_PRIORITY[action], action))
    ]
