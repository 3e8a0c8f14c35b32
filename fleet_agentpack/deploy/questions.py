"""What a person is asked before files change: which are deleted, taken over or written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from fleet_agentpack.deploy.compare import Change, Plan
from fleet_agentpack.deploy.consent import refuse_adoption
from fleet_agentpack.deploy.event import undo_target
from fleet_agentpack.deploy.model import MANIFEST_PREFIX
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.restoring import Restoration
from fleet_agentpack.kit.approval import Group, Question, digest_of


def about_apply(request: Request, plan: Plan, note: str = "") -> Question:
    """The question whether to carry a plan out; what would be lost comes first.

    Raises `DeployError` for files that agentpack did not write or a hand edited, without `adopt`.
    """
    if not request.adopt:
        refuse_adoption(plan, request)
    changes = plan.changes
    groups = _groups(
        changes,
        ("Delete", lambda change: change.op == "delete"),
        ("Overwrite, though agentpack did not write it", _adopts),
        ("Overwrite, though it was edited by hand", lambda change: change.edited_by_hand),
        ("Update", lambda change: change.op == "update"),
        ("Create", lambda change: change.op == "create"),
    )
    counts = ", ".join(f"{count} to {op}" for op, count in vars(plan.summary).items() if count)
    where = ", ".join(sorted({change.target for change in changes}))
    return Question(
        f"Deploy profile {request.profile} to {where}. Files: {counts}."
        + (f" Note: {note}." if note else ""),
        groups,
        "Write these files",
        any(map(_is_risky, changes)),
        digest_of([_content(change) for change in changes]),
    )


def only_approved(request: Request, approved: str | None) -> Callable[[Plan], bool] | None:
    """Confirms the approved plan and raises `PlanChangedError` for any other; None: any will do."""
    if approved is None:
        return None

    def confirm(plan: Plan) -> bool:
        about_apply(request, plan).check(approved)
        return True

    return confirm


def _named(back: Restoration) -> str:
    if back.like is None:
        return f"the state before snapshot {undo_target(back.to) or back.to}"
    return f"snapshot {back.like.id} of {back.like.created_at[:19]} UTC"


def about_rollback(rollback: Restoration) -> Question:
    """The question whether to go back to a snapshot; it always undoes something."""
    edited = {step.path for step in rollback.edited}
    files = [step for step in rollback.steps if not _is_manifest(step.path)]
    groups = [
        ("Delete", rollback.deleted),
        ("Restore, though it was edited by hand", sorted(edited)),
        ("Restore", [path for path in rollback.restored if path not in edited]),
    ]
    content = [
        (
            step.target,
            step.op,
            step.path,
            step.before_sha256,
            step.blob.sha256 if step.blob else step.link,
        )
        for step in rollback.steps
    ]
    return Question(
        f"Roll back to {_named(rollback)}: {len(files)} files change.",
        [Group(title, names) for title, names in groups if names],
        "Go back to this snapshot",
        bool(rollback.steps),
        digest_of(rollback.to, content),
    )


def _is_manifest(path: str) -> bool:
    """Whether a file is our own record of a root; nobody needs to see it."""
    return os.path.basename(path).startswith(MANIFEST_PREFIX)


def _is_risky(change: Change) -> bool:
    return change.op == "delete" or _adopts(change) or change.edited_by_hand


def _adopts(change: Change) -> bool:
    return change.update_kind == "adopt_update"


def _content(change: Change) -> tuple[object, ...]:
    executable = change.output is not None and change.output.blob.executable
    return change.row, change.edited_by_hand, executable


def _groups(changes: Sequence[Change], *kinds: tuple[str, Callable[[Change], bool]]) -> list[Group]:
    """Each change in the first group that it fits."""
    left, groups = list(changes), []
    for title, fits in kinds:
        if names := [change.path for change in left if fits(change)]:
            groups.append(Group(title, names))
        left = [change for change in left if not fits(change)]
    return groups
