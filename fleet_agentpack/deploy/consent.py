"""What an apply does only with a word: overwriting what is not ours, and deleting a lot."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fleet_agentpack.deploy.actions import command_line
from fleet_agentpack.deploy.apply import Proposal
from fleet_agentpack.deploy.compare import Plan
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request

SAMPLES = 20
MANY = 10  # managed files; below this, deleting most of them is no accident


@dataclass(frozen=True)
class MassDelete:
    """Why a plan deletes so much that it may be a mistake."""

    reason: Literal["target_emptied", "nothing_selected", "most_files"]
    text: str


def refuse(found: Proposal) -> None:
    """Raises `DeployError` unless everything that a plan needs a word for was asked for."""
    request = found.workspace.request
    if not request.adopt:
        refuse_adoption(found.plan, request)
    if not request.allow_mass_delete:
        _refuse_mass_delete(found)


def foretold(found: Proposal) -> Iterator[str]:
    """What an apply of this plan would be refused for, as warnings."""
    plan, request = found.plan, found.workspace.request
    if plan.adopted and not request.adopt:
        yield f"{len(plan.adopted)} existing file(s) are not managed; applying this needs adopt"
    if plan.edited and not request.adopt:
        yield (
            f"{len(plan.edited)} file(s) were edited by hand, the first is {plan.edited[0].path};"
            " applying this overwrites them and needs adopt"
        )
    mass = None if request.allow_mass_delete else mass_delete(found)
    if mass:
        yield f"{mass.text}; applying this needs --allow-mass-delete on the command line"


def mass_delete(found: Proposal) -> MassDelete | None:
    """Whether a plan deletes suspiciously much."""
    deletes, desired = found.plan.deletes, found.survey.desired
    if not deletes:
        return None
    managed = sum(len(record.files) for record in found.survey.recorded.by_root.values())
    total = f"{len(deletes)} of {managed} managed file(s) would be deleted"
    if tags := found.workspace.selection.unmatched_tags:
        return MassDelete("nothing_selected", f"no module has the tag {', '.join(tags)}: {total}")
    if empty := found.workspace.selection.empty:
        return MassDelete("nothing_selected", f"profile {empty} selects no module: {total}")
    emptied = sorted({c.target for c in deletes if not desired.outputs[c.target]})
    if emptied:
        names = ", ".join(emptied)
        return MassDelete("target_emptied", f"nothing would be left of {names}: {total}")
    if managed >= MANY and 2 * len(deletes) > managed:
        return MassDelete("most_files", total)
    return None


def refuse_adoption(plan: Plan, request: Request) -> None:
    """Raises `E_ADOPT_CONFIRM_REQUIRED` when a plan overwrites what is not ours, or was edited."""
    edited = sorted(change.path for change in plan.edited)
    unmanaged = sorted(change.path for change in plan.adopted)
    paths = edited + unmanaged
    if not paths:
        return
    told = []
    if edited:
        told.append(f"{len(edited)} file(s) were edited by hand")
    if unmanaged:
        told.append(f"{len(unmanaged)} existing file(s) are not managed by agentpack")
    ids = sorted({name for change in plan.edited for name in change.module_ids})
    keep, diff = (shlex.join(command_line(request, word)) for word in ("keep", "diff"))
    keep = f"run `{keep}` to take the edits into the pack ({', '.join(ids)})"
    review = f"run `{diff}` to review them, then pass --adopt to overwrite them"
    error = DeployError(
        "E_ADOPT_CONFIRM_REQUIRED",
        f"{' and '.join(told)} and would be overwritten, the first is {paths[0]}; review the diff,"
        f" {'keep the edits, ' if edited else ''}then allow it with adopt",
        reason="edited_by_hand" if edited else "",
        advice=[keep, review] if edited else [review],
        flag="--adopt",
        adopt_updates=len(paths),
        sample_paths=paths[:SAMPLES],
        sample_paths_posix=paths[:SAMPLES],
        **({"edited_paths": edited[:SAMPLES], "module_ids": ids} if edited else {}),
    )
    if edited:
        error.details["reason"] = "edited_by_hand"
    raise error


def _refuse_mass_delete(found: Proposal) -> None:
    mass = mass_delete(found)
    if mass is None:
        return
    paths = [change.path for change in found.plan.deletes]
    request = found.workspace.request
    words = [*command_line(request, "deploy", "--apply", "--allow-mass-delete")]
    line = shlex.join([*words, "--adopt"] if request.adopt else words)
    raise DeployError(
        "E_MASS_DELETE_CONFIRM_REQUIRED",
        f"{mass.text}, the first is {paths[0]}; if that is meant, a person runs `{line}`",
        reason=mass.reason,
        advice=["check the profile, the tags and the modules first", line],
        command_line=line,
        flag="--allow-mass-delete",
        deletes=len(paths),
        sample_paths=paths[:SAMPLES],
        sample_paths_posix=paths[:SAMPLES],
    )
