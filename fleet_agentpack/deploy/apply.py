"""A plan and the batch that carries it out: its changes, the manifests, and the snapshot."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from fleet_agentpack.deploy import lockfile
from fleet_agentpack.deploy.batch import Batch, Step
from fleet_agentpack.deploy.compare import Change, Plan, plan_id
from fleet_agentpack.deploy.disk import find
from fleet_agentpack.deploy.event import Event
from fleet_agentpack.deploy.model import Blob, Root, copy_name
from fleet_agentpack.deploy.ownership import Holder, Record
from fleet_agentpack.deploy.recorded import RootRecord, manifest_bytes
from fleet_agentpack.deploy.results import Envelope, PlanData, Reason
from fleet_agentpack.deploy.runs import Run
from fleet_agentpack.deploy.snapshots import Snapshot, SnapshotStore, now_text
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.deploy.taking import (
    Taking,
    contents_of,
    give_back,
    left_empty,
    manifest_entry,
)
from fleet_agentpack.deploy.workspace import Workspace


@dataclass(frozen=True)
class Proposal:
    """A plan with what it was made from."""

    workspace: Workspace
    survey: Survey
    plan: Plan

    @property
    def is_needless(self) -> bool:
        """Whether nothing changes, and the record and the manifests say what is there."""
        records = self.survey.recorded.by_root
        return (
            not (self.plan.changes or self.plan.released)
            and all(records[root].usable for root in self.survey.desired.holding)
            and not self._is_unsettled
        )

    @property
    def _is_unsettled(self) -> bool:
        """Whether a file was edited into what the pack wants, which the record does not know.

        A link has the text of what it leads to, which may change without it.
        """
        records, links = self.survey.recorded.by_root, self.survey.links
        desired = self.survey.desired
        return any(
            (entry := known.get(path)) is not None
            and entry.sha256 != outputs[path].blob.sha256
            and path not in links
            for target, outputs in desired.outputs.items()
            for root, paths in desired.directories[target].values()
            for known in [records[root].files]
            for path in paths
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


def dry_run(found: Proposal) -> Envelope[PlanData]:
    """The answer to a deploy that only plans."""
    return Envelope.of("deploy", replace(found.data, applied=False), found.plan.warnings)


def untouched(found: Proposal) -> Envelope[PlanData]:
    """The answer to a deploy that had nothing to do, or was not wanted."""
    reason: Reason = "aborted" if found.plan.changes else "no_changes"
    data = replace(found.data, applied=False, reason=reason)
    return Envelope.of("deploy --apply", data, found.plan.warnings)


def batch_of(proposal: Proposal, snapshot_id: str) -> Batch:
    """The transaction that carries a plan out."""
    survey, plan, created_at = proposal.survey, proposal.plan, now_text()
    roots, pack = _roots_to_record(survey, plan), proposal.workspace.pack
    holders = proposal.workspace.holders(roots)
    runs = survey.desired.runs
    by_root: dict[Root, list[Run]] = {root: [] for root in roots}
    for run in runs:
        by_root[run.root].append(run)
    steps = [_step(change, holders[change.root], survey) for change in plan.changes]
    record = proposal.workspace.ownership.record
    manifests = {
        root: Blob.of(manifest_bytes(root, by_root[root], snapshot_id, created_at))
        for root in roots
    }
    known = survey.recorded.by_root
    steps += [_manifest_step(known[root], manifests[root], holders[root], record) for root in roots]
    hashes = {root: blob.sha256 for root, blob in manifests.items()}
    outputs = {
        root: [each for run in found for each in run.outputs] for root, found in by_root.items()
    }
    taking = Taking(survey, plan, outputs, holders, hashes, snapshot_id)
    emptied = left_empty(steps, [path for _, path in plan.released], record.directories)
    packs = {pack.key: pack.path}
    snapshot = Snapshot(
        id=snapshot_id,
        created_at=created_at,
        targets=tuple(sorted({run.root.target for run in runs})),
        managed_files=tuple(chain.from_iterable(run.managed for run in runs)),
        changes=(),
        lockfile_sha256=lockfile_sha256(proposal.workspace),
    )
    event = Event(
        "deploy",
        pack.key,
        proposal.workspace.project_root,
        tuple(holders[root][1:] for root in roots),
        modes={path: mode for run in runs for path, mode in run.modes.items()},
    )
    claims = taking.claims()
    return Batch(
        snapshot,
        steps,
        list(chain.from_iterable(run.kept for run in runs)),
        event,
        lambda found, made: taking.record(record, found, claims, made, emptied, packs),
        claims,
        contents_of(claims, proposal.workspace.ownership),
        emptied,
        [run.in_snapshot for run in runs],
    )


def _step(change: Change, holder: Holder, survey: Survey) -> Step:
    before = change.before.sha256 if change.before else None
    held = survey.recorded.entry(change.root, change.path)
    if change.output is not None:
        blob = change.output.blob
        return Step(holder, change.op, change.path, before, blob, held=held)
    origin = change.given_back
    if origin is None:
        return Step(holder, change.op, change.path, before, None, held=held)
    return give_back(holder, change.op, change.path, before, origin, held)


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


def _roots_to_record(survey: Survey, plan: Plan) -> list[Root]:
    recorded = survey.desired.holding | {change.root for change in plan.changes}
    recorded |= {root for root, _ in plan.released}
    return [
        root for root in survey.roots if root in recorded or os.path.lexists(root.manifest_path)
    ]


def _manifest_step(known: RootRecord, blob: Blob, holder: Holder, record: Record) -> Step:
    root, before = known.root, known.manifest
    if before is None and (found := find(root.manifest_path)) is not None:
        before = found.sha256
    op = "create" if before is None else "update"
    held = manifest_entry(record, holder)
    return Step(holder, op, root.manifest_path, before, blob, held=held, is_manifest=True)
