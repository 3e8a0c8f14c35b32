"""Merges an agent's work into a branch of the user's; either all of it, or nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.branches import Branches
from fleet_agentpack.fleet.local.git import Git, Identity, Repository
from fleet_agentpack.fleet.local.kept import named
from fleet_agentpack.fleet.models import Merged

HOW_GIT_SAYS_CONFLICT = 1


@dataclass(frozen=True)
class MergePlan:
    """What a merge would do."""

    branch: str  # the agent's
    into: str
    commits: int
    files: tuple[str, ...]
    work: str  # the commit that is merged
    target: str  # the commit that it is merged with


@dataclass(frozen=True)
class Merger:
    """Merges into one repository."""

    git: Git
    origin: Repository

    def plan(self, branch: str, into: str | None) -> MergePlan:
        """What merging a branch would do. Raises 400 for a branch that is not there."""
        current = self.git.text(self.origin, "symbolic-ref", "--quiet", "--short", "HEAD")
        name = into or current
        work = self.git.commit_of(self.origin, f"refs/heads/{branch}")
        ref = f"refs/heads/{name}"
        is_branch = name and Branches(self.git, self.origin).ref_of(name) == ref
        target = self.git.commit_of(self.origin, ref) if is_branch else None
        if work is None or target is None:
            missing = branch if work is None else name or "that is checked out"
            raise FleetError.bad_request(f"There is no branch {missing}.", field="into")
        if name == branch:
            raise FleetError.bad_request(f"{branch} is the agent's own branch.", field="into")
        span = f"{target}..{work}"
        commits = int(self.git.text(self.origin, "rev-list", "--count", span) or 0)
        listed = self.git.run(
            self.origin, "diff", "--name-only", "--no-renames", "-z", f"{target}...{work}"
        )
        files = tuple(path for path in listed.text.split("\0") if path)
        return MergePlan(branch, name, commits, files, work, target)

    def merge(self, plan: MergePlan, *, squash: bool, message: str, who: Identity) -> Merged:
        """Carry a plan out. Raises 409 for conflicts and for a target with uncommitted changes."""
        if not plan.commits:
            told = f"There is nothing to merge: {plan.into} has all of {plan.branch}."
            return Merged(told, plan.target, ())
        tree = self._checked_out(plan.into)
        if tree is not None:
            self._check_clean(tree, plan.into)
        commit = self._commit(plan, squash, message, who)
        if tree is not None:
            # Git itself refuses to overwrite untracked files, and then changes nothing.
            done = self.git.run(tree, "merge", "--ff-only", "--quiet", commit)
        else:
            ref = f"refs/heads/{plan.into}"
            done = self.git.run(self.origin, "update-ref", ref, commit, plan.target)
        if done.status != 0:
            raise FleetError.conflict(f"{plan.into} was not changed: {done.complaint}")
        what = f"{plan.commits} commit{'s' if plan.commits > 1 else ''} of {plan.branch}"
        how = "squashed and merged" if squash else "merged"
        return Merged(f"{what} {how} into {plan.into}", commit, plan.files)

    def _commit(self, plan: MergePlan, squash: bool, message: str, who: Identity) -> str:
        """The commit that the target becomes."""
        is_behind = ("merge-base", "--is-ancestor", plan.target, plan.work)
        if not squash and self.git.succeeds(self.origin, *is_behind):
            return plan.work
        options = ("--write-tree", "--name-only", "--no-messages", "-z")
        merged = self.git.run(self.origin, "merge-tree", *options, plan.target, plan.work)
        tree, *conflicts = [part for part in merged.text.split("\0") if part] or [""]
        if merged.status == HOW_GIT_SAYS_CONFLICT and conflicts:
            raise FleetError.conflict(
                f"{plan.branch} and {plan.into} conflict in {named(conflicts)}; nothing was"
                " changed. Ask the agent to merge or rebase, or merge by hand.",
                conflicts=conflicts,
                into=plan.into,
            )
        if merged.status != 0:
            raise FleetError.unavailable(
                f"git could not merge (2.38 or newer is needed): {merged.complaint}"
            )
        parents = ["-p", plan.target, *([] if squash else ["-p", plan.work])]
        made = self.git.run(self.origin, "commit-tree", tree, *parents, "-m", message, who=who)
        if made.status != 0:
            raise FleetError.unavailable(f"git could not commit the merge: {made.complaint}")
        return made.text.strip()

    def _checked_out(self, branch: str) -> Repository | None:
        """The files of the worktree that has a branch checked out."""
        listed = self.git.run(self.origin, "worktree", "list", "--porcelain", "-z").text
        for block in listed.split("\0\0"):
            rows = block.split("\0")
            if f"branch refs/heads/{branch}" in rows:
                place = Path(next(row for row in rows if row.startswith("worktree "))[9:])
                return self.git.discover(place)
        return None

    def _check_clean(self, tree: Repository, branch: str) -> None:
        status = ("status", "--porcelain", "--no-renames", "--untracked-files=no", "-z")
        listed = self.git.run(tree, *status).text
        changed = [row[3:] for row in listed.split("\0") if row]
        if changed:
            raise FleetError.conflict(
                f"{branch} is checked out with uncommitted changes: {named(changed)}."
                " Commit or stash them first; nothing was changed.",
                uncommitted=changed,
                into=branch,
            )
