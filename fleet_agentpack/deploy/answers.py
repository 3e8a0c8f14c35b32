"""The parts of the answers that several commands share."""

from __future__ import annotations

from typing import Any

from fleet_agentpack.deploy.compare import Plan
from fleet_agentpack.deploy.envelope import envelope
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.deploy.workspace import Workspace


def plan_data(workspace: Workspace, found: Plan) -> dict[str, Any]:
    """What plan, diff and deploy tell about the changes."""
    return {
        "changes": [change.payload() for change in found.changes],
        "profile": workspace.request.profile,
        "summary": found.summary,
        "targets": workspace.targets,
    }


def dry_run(command: str, workspace: Workspace, found: Plan) -> dict[str, Any]:
    """The answer to a deploy that shall not write."""
    if found.adopted and not workspace.request.adopt:
        workspace.warnings.append(
            f"{len(found.adopted)} existing file(s) are not managed; applying this needs adopt"
        )
    data = {"applied": False, **plan_data(workspace, found)}
    return envelope(command, data=data, warnings=workspace.warnings)


def needs_deploy(workspace: Workspace, survey: Survey) -> bool:
    """Whether a root that holds outputs has no manifest; says so in the warnings."""
    records = survey.recorded.by_root
    without = [root for root in survey.roots if not records[root].usable]
    holding = {output.root for output in survey.desired.all}
    if not survey.recorded.any_usable:
        workspace.warnings.append(
            "no usable target manifest was found; every desired file was compared, extras were not"
            " looked for"
        )
        return bool(without)
    missing = [root for root in without if root in holding]
    workspace.warnings.extend(
        f"no usable target manifest in {root.dir} ({root.target}); its desired files were compared"
        for root in missing
    )
    return bool(missing)


def untouched(workspace: Workspace, found: Plan) -> dict[str, Any]:
    """The answer to an apply that had nothing to do, or that was called off."""
    reason = "aborted" if found.changes else "no_changes"
    data = {"applied": False, "reason": reason, **plan_data(workspace, found)}
    return envelope("deploy --apply", data=data, warnings=workspace.warnings)
