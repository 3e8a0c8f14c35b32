"""Parts of a plan: what follows from edits that were kept, or all that overwrites nobody's work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fleet_agentpack.deploy.apply import Proposal
from fleet_agentpack.deploy.compare import Change
from fleet_agentpack.deploy.model import Blob, Output

Stored = Callable[[str], str | None]  # where the content of a hash is kept, if it is


@dataclass(frozen=True)
class Following:
    """The files that were kept, and the modules that they were made from."""

    paths: frozenset[str]
    module_ids: frozenset[str]

    def covers(self, change: Change) -> bool:
        """Whether a change follows; what somebody else edited or owns never does."""
        if change.output is None:
            return False
        if change.path in self.paths:
            return True
        is_free = not (change.edited_by_hand or change.adopts)
        return is_free and self.module_ids.issuperset(change.module_ids)


def only_moved(change: Change) -> bool:
    """Whether nobody but the pack has changed a file, or has deleted it."""
    return not change.adopts and change.cause not in ("edited", "both")


def only(found: Proposal, wanted: Callable[[Change], bool], stored: Stored) -> Proposal:
    """A part of a proposal; all other files stay as the record has them."""
    survey, plan = found.survey, found.plan
    waiting = [change for change in plan.changes if not wanted(change)]
    desired = survey.desired.without({change.path for change in waiting})
    outputs = {target: dict(of_target) for target, of_target in desired.outputs.items()}
    for change in waiting:
        if (output := _as_recorded(found, change, stored)) is not None:
            outputs[change.target][change.path] = output
    survey = replace(survey, desired=replace(desired, outputs=outputs, parts={}))
    changes = [change for change in plan.changes if wanted(change)]
    return replace(found, survey=survey, plan=replace(plan, changes=changes, released=()))


def _as_recorded(found: Proposal, change: Change, stored: Stored) -> Output | None:
    """What the record has at the path of a change; None if that is nothing that is known."""
    entry = found.survey.recorded.entry(change.root, change.path)
    if entry is None:
        return None
    before = change.before
    if before is not None and before.sha256 == entry.sha256:
        blob = Blob(entry.sha256, before.executable, change.path, private=before.private)
    elif (place := stored(entry.sha256)) is not None:
        blob = Blob(entry.sha256, False, place)
    else:
        return None
    return Output(change.root, change.path, blob, change.module_ids)
