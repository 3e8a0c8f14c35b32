"""Agents' branches in the user's repository: found free, moved forward, and dropped when empty."""

from __future__ import annotations

from dataclasses import dataclass

from fleet_agentpack.fleet.local.git import Git, Repository


@dataclass(frozen=True)
class Branches:
    """The branches of one repository."""

    git: Git
    origin: Repository

    def ref_of(self, name: str | None) -> str | None:
        """The branch of a name, of the user's or of a remote; None if there is none."""
        refs = (f"refs/heads/{name}", f"refs/remotes/{name}") if name else ()
        options = ("show-ref", "--verify", "--quiet", "--")
        return next((ref for ref in refs if self.git.succeeds(self.origin, *options, ref)), None)

    def at_its_home(self, name: str) -> str:
        """What the remote of a branch calls it."""
        is_theirs = (self.ref_of(name) or "").startswith("refs/remotes/")
        return name.partition("/")[2] if is_theirs else name

    def free(self, key: str) -> str:
        """A new branch name for an agent: an existing branch may be somebody's work.

        A branch called `agent` leaves no room for `agent/…`.
        """
        taken = set(self.git.text(self.origin, "for-each-ref", "--format=%(refname)").split())
        wanted = f"agent-{key}" if "refs/heads/agent" in taken else f"agent/{key}"
        return self.unused(wanted, taken)

    def unused(self, wanted: str, taken: set[str] | None = None) -> str:
        """A branch name that no branch has, and that is no folder of branches."""
        if taken is None:
            taken = set(self.git.text(self.origin, "for-each-ref", "--format=%(refname)").split())
        folders = {ref.rsplit("/", count)[0] for ref in taken for count in range(1, ref.count("/"))}
        name, number = wanted, 1
        while f"refs/heads/{name}" in taken | folders:
            number += 1
            name = f"{wanted}-{number}"
        return name

    def move(self, branch: str, commit: str, known: str) -> bool:
        """Move an agent's branch, unless somebody else moved it or has it checked out.

        `known` is where the branch was when we moved it last.
        """
        ref = f"refs/heads/{branch}"
        at = self.git.commit_of(self.origin, ref)
        if at == commit:
            return True
        if self._checked_out(ref):
            return False
        if at is not None and at != known and not self.contains(commit, at):
            return False
        wanted = ("update-ref", "-m", "fleet-agentpack: the agent's work", ref, commit)
        return self.git.succeeds(self.origin, *wanted, *([at] if at else []))

    def drop(self, branch: str) -> None:
        """Delete a branch."""
        self.git.run(self.origin, "update-ref", "-d", f"refs/heads/{branch}")
        self.git.run(self.origin, "config", "--remove-section", f"branch.{branch}")

    def contains(self, commit: str, earlier: str) -> bool:
        """Whether a commit has another in its history."""
        return self.git.succeeds(self.origin, "merge-base", "--is-ancestor", earlier, commit)

    def refs_with(self, commit: str) -> set[str]:
        """The branches and tags that have a commit."""
        listed = self.git.run(
            self.origin,
            *("for-each-ref", f"--contains={commit}", "--format=%(refname)"),
            *("refs/heads", "refs/remotes", "refs/tags"),
        )
        return set(listed.text.split())

    def _checked_out(self, ref: str) -> bool:
        listed = self.git.text(self.origin, "worktree", "list", "--porcelain").splitlines()
        return f"branch {ref}" in listed
