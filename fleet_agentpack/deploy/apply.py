"""A plan and the batch that carries it out: its changes, the manifests, and the snapshot."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fleet_agentpack.deploy import lockfile
from fleet_agentpack.deploy.batch import Batch, Step
from fleet_agentpack.deploy.compare import Change, Plan, plan_id
from fleet_agentpack.deploy.disk import find
from fleet_agentpack.deploy.model import Blob, Root, copy_name, owner
from fleet_agentpack.deploy.recorded import manifest_bytes
from fleet_agentpack.deploy.results import PlanData
from fleet_agentpack.deploy.snapshots import ManagedFile, Snapshot, SnapshotStore, now_text
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.deploy.workspace import Workspace


@dataclass(frozen=True)
class Proposal:
    """A plan with what it was made from."""

    workspace: Workspace
    survey: Survey
    plan: Plan

    @property
    def is_needless(self) -> bool:
        """Whether no file changes and every root that holds files has its manifest."""
        records = self.survey.recorded.by_root
        return not self.plan.changes and all(
            records[root].usable for root in self.survey.desired.holding
        )

    @cached_property
    def data(self) -> PlanData:
        """The answer to plan and diff."""
        rows = [change.row for change in self.plan.changes]
        return PlanData(
            changes=rows,
            plan_id=plan_id(rows),
            profile=self.workspace.request.profile,
            profiles=self.workspace.profiles_used,
            summary=self.plan.summary,
            target_errors=self.survey.target_errors,
            targets=self.targets,
        )

    @property
    def targets(self) -> list[str]:
        """The targets that were planned."""
        failed = self.survey.desired.failed
        return [target for target in self.workspace.targets if target not in failed]


def batch_of(proposal: Proposal, snapshot_id: str) -> Batch:
    """The transaction that carries a plan out."""
    survey, plan, created_at = proposal.survey, proposal.plan, now_text()
    steps = [
        Step(
            change.target,
            change.op,
            change.path,
            change.before.sha256 if change.before else None,
            change.output.blob if change.output else None,
        )
        for change in plan.changes
    ]
    outputs = sorted(survey.desired.all, key=lambda output: (output.root.target, output.path))
    manifests = {
        root: Blob.of(manifest_bytes(root, survey.desired.of(root), snapshot_id, created_at))
        for root in _roots_to_record(survey, plan.changes)
    }
    steps += [_manifest_step(root, blob) for root, blob in manifests.items()]
    snapshot = Snapshot(
        id=snapshot_id,
        created_at=created_at,
        targets=tuple(sorted({output.root.target for output in outputs})),
        managed_files=tuple(
            ManagedFile(output.root.target, output.path, output.blob.sha256) for output in outputs
        ),
        changes=(),
        lockfile_sha256=lockfile_sha256(proposal.workspace),
    )
    origin = {
        "project_root": proposal.workspace.project_root,
        "roots": [[root.target, root.dir] for root in manifests],
    }
    return Batch(snapshot, steps, outputs, origin)


def edit_warnings(
    snapshots: SnapshotStore, snapshot_id: str, edited: Iterable[Change | Step]
) -> list[str]:
    """Where edits by hand were saved that an apply or a rollback has overwritten."""
    backup = snapshots.directory(snapshot_id) / "backup"
    return [
        f"{change.path} had been edited by hand; the edited version was saved as"
        f" {backup / copy_name(change.target, change.path)}"
        for change in edited
    ]


def lockfile_sha256(workspace: Workspace) -> str | None:
    """The hash of the repo's lockfile, None when there is none."""
    try:
        data = (workspace.repo / lockfile.FILE_NAME).read_bytes()
    except OSError:
        return None
    return hashlib.sha256(data).hexdigest()


def _roots_to_record(survey: Survey, changes: Sequence[Change]) -> list[Root]:
    touched = {owner(survey.roots, change.target, change.path) for change in changes}
    recorded = survey.desired.holding | touched
    return [
        root for root in survey.roots if root in recorded or os.path.lexists(root.manifest_path)
    ]


def _manifest_step(root: Root, blob: Blob) -> Step:
    found = find(root.manifest_path)
    before = found.sha256 if found else None
    op = "create" if before is None else "update"
    return Step(root.target, op, root.manifest_path, before, blob)
