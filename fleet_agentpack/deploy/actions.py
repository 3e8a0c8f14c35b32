"""Next actions: commands that a caller can copy, in the order in which they make sense."""

from __future__ import annotations

import shlex

from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import DriftCounts, NextAction
from fleet_agentpack.kit.actions import PROGRAM, Action


def command(request: Request, *words: str, writes: bool = False, tool: str = "") -> Action:
    """A command with the flags of the request that led to it, and the tool that does the same.

    A program passes `--json`, and `--yes` to what writes; a person is asked instead.
    """
    line = shlex.join([PROGRAM, *_flags(request), *words])
    text = f"{line} --yes --json" if writes else f"{line} --json"
    return Action(tool, text=text, person=line)


def status_actions(
    request: Request, summary: DriftCounts, *, needs_deploy: bool
) -> list[NextAction]:
    """What to do about drift."""
    differs = bool(summary.modified or summary.missing)
    found = []
    if differs or summary.extra:
        found.append(NextAction("diff", command(request, "diff", tool="diff")))
    if differs or needs_deploy:
        apply = command(request, "deploy", "--apply", writes=True, tool="deploy_apply")
        found.append(NextAction("deploy_apply", apply))
    return [each for each in found if each.command.is_possible]


def _flags(request: Request) -> list[str]:
    """The global flags that are not the default."""
    given = (
        ("--repo", request.repo, None),
        ("--profile", request.profile, "default"),
        ("--target", request.target, "all"),
        ("--machine", request.machine, None),
    )
    return [
        word
        for flag, value, default in given
        if value is not None and value != default
        for word in (flag, value)
    ]
