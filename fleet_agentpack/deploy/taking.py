"""How the record changes when a plan is carried out: what is taken, and what is let go."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet_agentpack.deploy.batch import Claim, Files, Step
from fleet_agentpack.deploy.compare import Plan
from fleet_agentpack.deploy.model import Blob, Output, Root
from fleet_agentpack.deploy.ownership import Draft, Entry, Holder, Origin, Record
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.deploy.takeover import Ownership
from fleet_agentpack.kit.disk import State


@dataclass(frozen=True)
class Taking:
    """A plan as the record sees it."""

    survey: Survey
    plan: Plan
    outputs: Mapping[Root, Sequence[Output]]
    holders: Mapping[Root, Holder]
    manifests: Mapping[Root, str]  # their hashes
    snapshot_id: str

    def claims(self) -> list[Claim]:
        """Files that are taken as they are, and files that are let go."""
        found = [
            Claim(self.holders[root], path, None, entry)
            for root, path in self.plan.released
            if (entry := self.survey.recorded.entry(root, path)) is not None
        ]
        changed = {change.path for change in self.plan.changes}
        for root, outputs in self.outputs.items():
            known = self.survey.recorded.by_root[root].files
            found += [
                Claim(self.holders[root], output.path, state, None)
                for output in [output for output in outputs if output.path not in known]
                if self.survey.recorded.entry(root, output.path) is None
                and output.path not in changed
                and (state := self._shared(output.path)) is not None
            ]
        return found

    def _shared(self, path: str) -> State | None:
        """A file that was there with the very content that was wanted."""
        link, seen = self.survey.links.get(path), self.survey.actual[path]
        sha256 = seen.sha256 if seen else ""
        if link is not None:
            return State("link", sha256, 0o777, link)
        return State("file", sha256, stat.S_IMODE(os.lstat(path).st_mode)) if seen else None

    def record(
        self,
        before: Record,
        found: Files,
        claims: Sequence[Claim],
        made: Iterable[str],
        emptied: Iterable[str],
        packs: Mapping[str, str],
    ) -> Record:
        """The record after the plan."""
        draft = Draft(before)
        for root, holder in self.holders.items():
            self._move(draft, before, root, holder)
            origin = Origin.of(found[root.manifest_path])
            known = manifest_entry(before, holder) or Entry("", self.snapshot_id, origin)
            draft.put_manifest(holder, known._replace(sha256=self.manifests[root]))
            self._settle(draft, root, holder)
            self._gather(draft, root, holder)
        for claim in claims:
            origin = Origin.of(claim.state)
            entry = Entry(origin.sha256, self.snapshot_id, origin) if origin else None
            draft.put(claim.holder, claim.path, entry)
        for change in self.plan.changes:
            holder = self.holders[change.root]
            if change.output is None:
                draft.put(holder, change.path, None)
                continue
            taken = self.survey.recorded.entry(change.root, change.path)
            if taken is None or taken.is_shared:  # it is written for the first time
                taken = Entry("", self.snapshot_id, Origin.of(found[change.path]))
            draft.put(holder, change.path, taken._replace(sha256=change.output.blob.sha256))
        return draft.done(self.snapshot_id, made=made, emptied=emptied, packs=packs)

    def _settle(self, draft: Draft, root: Root, holder: Holder) -> None:
        """An edit that made a file what the pack wants makes it the pack's again.

        A file that was never written here stays the user's, as it is now.
        """
        known = self.survey.recorded.by_root[root].files
        changed = {change.path for change in self.plan.changes}
        differing = [
            (path, entry, blob.sha256)
            for _, path, blob, _ in self.outputs[root]  # there may be ten thousand
            if (entry := known.get(path)) is not None and entry[0] != blob[0]
        ]
        for path, entry, sha256 in differing:
            shared = entry.is_shared and path not in changed
            origin = Origin.of(self._shared(path)) if shared else entry.origin
            draft.put(holder, path, entry._replace(sha256=sha256, origin=origin))

    def _gather(self, draft: Draft, root: Root, holder: Holder) -> None:
        """Files of a pack whose repo is gone, and that this one wants: it is that pack, moved."""
        stray = self.survey.recorded.by_root[root].stray
        for output in self.outputs[root] if stray else ():
            held = stray.get(output.path)
            if held is not None:
                draft.put(held.holder, output.path, None)
                draft.put(holder, output.path, held.entry._replace(sha256=output.blob.sha256))

    def _move(self, draft: Draft, before: Record, root: Root, holder: Holder) -> None:
        """Files that are the pack's under another name go by the present one from now on."""
        files = self.survey.recorded.by_root[root].files
        for other in before.of_root(root.target, root.dir):
            if other.holder != holder and other.by_path.keys() <= files.keys():
                draft.put_manifest(other.holder, None)
                for path, entry in other.by_path.items():
                    draft.put(other.holder, path, None)
                    draft.put(holder, path, entry)


def manifest_entry(record: Record, holder: Holder) -> Entry | None:
    """The entry of a root's manifest, whichever pack took it first."""
    known = [each.manifest for each in record.of_root(holder.target, holder.root) if each.manifest]
    return min(known, key=lambda entry: int(entry.since or 0), default=None)


def give_back(
    holder: Holder, op: str, path: str, before: str | None, origin: Origin, held: Entry | None
) -> Step:
    """The step that brings back what stood at a path."""
    if origin.link is not None:
        return Step(holder, op, path, before, None, link=origin.link, held=held)
    blob = Blob(origin.sha256, False, "")
    return Step(holder, op, path, before, blob, origin.mode, held=held)


def contents_of(claims: Iterable[Claim], ownership: Ownership) -> list[Blob]:
    """The contents that the record refers to and that may not be stored yet."""
    found = [
        Blob(claim.state.sha256, False, claim.path)
        for claim in claims
        if claim.state is not None and claim.state.kind == "file"
    ]
    return found + [Blob(sha256, False, path) for sha256, path in ownership.sources.items()]


def left_empty(steps: Sequence[Step], let_go: Iterable[str], own: Iterable[str]) -> list[str]:
    """The directories of ours that steps leave empty, innermost first.

    Files that were let go may have been deleted by hand already.
    """
    gone = {step.path for step in steps if step.removes}
    written = {step.path for step in steps if not step.removes}
    gone |= {path for path in let_go if path not in written and not os.path.lexists(path)}
    ours, found = set(own), []
    pending = sorted({os.path.dirname(path) for path in gone}, key=len, reverse=True)
    while pending:
        directory = pending.pop(0)
        if directory not in ours or directory in gone or not _holds_only(directory, gone):
            continue
        if any(path.startswith(f"{directory}/") for path in written):
            continue
        found.append(directory)  # even if somebody has removed it: it is ours no longer
        gone.add(directory)
        pending = sorted({*pending, os.path.dirname(directory)}, key=len, reverse=True)
    return found


def _holds_only(directory: str, gone: set[str]) -> bool:
    try:
        return all(f"{directory}/{name}" in gone for name in os.listdir(directory))
    except FileNotFoundError:
        return True
    except OSError:
        return False
