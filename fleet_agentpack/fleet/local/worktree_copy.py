"""The copy of an agent of version 0.1: a worktree of the user's repository.

Its git directory is the one that the user's repository has for it, whatever the `.git` in the
agent's directory says.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.branches import Branches
from fleet_agentpack.fleet.local.directory_state import (
    check_kept,
    commit_of_files,
    ignored_files,
    nested_repositories,
    unsaved_files,
)
from fleet_agentpack.fleet.local.git import Git, Identity, Repository
from fleet_agentpack.fleet.local.kept import KeptFiles, remove_tree

REMOVED = "Uncommitted work of a deleted agent"


@dataclass(frozen=True)
class WorktreeCopy:
    """A directory that is a worktree of the user's repository."""

    git: Git
    origin: Repository
    root: Path
    branch: str
    kept: KeptFiles
    who: Identity

    def collect(self, message: str | None) -> str | None:
        """Commit what the agent has not; returns what stood in the way."""
        view = self._view()
        if message is None or view is None:
            return None
        try:
            head = self._head(view)
            made = head and commit_of_files(self.git, view, head, message, self.who)
            if made:
                check_kept(self.git.run(view, "reset", "--quiet", "--soft", made))
                self.git.run(view, "read-tree", made)
        except FleetError as error:
            return f"Its work could not be committed on branch {self.branch}: {error}"
        return None

    def unsaved(self) -> list[str]:
        """The files whose changes no commit has."""
        if not self.root.exists():
            return []
        view = self._view()
        head = self._head(view) if view else None
        return unsaved_files(self.git, view, head) if view and head else [str(self.root)]

    def remove(self) -> str | None:
        """Remove the directory; returns a note on where its work was kept, if it had any."""
        if not self.root.exists():
            return None
        view = self._view()
        head = self._head(view) if view else None
        if view is None or head is None:
            return self._keep_whole("its repository is gone")
        made = commit_of_files(self.git, view, head, REMOVED, self.who)
        inner = nested_repositories(self.git, view, made or head)
        if any((self.root / path / ".git").exists() for path in inner):
            return self._keep_whole("it contains other repositories")
        ignored = ignored_files(self.git, view, head)
        work = self._keep_work(view, head, made)
        files = self.kept.keep_some(self.root, ignored)
        remove_tree(self.root)
        shutil.rmtree(view.git_dir)
        return " ".join([*(work or self._drop_branch()), *files]) or None

    def _view(self) -> Repository | None:
        """The worktree's files with the git directory that the user's repository has for it."""
        for folder in sorted((self.git.common_dir(self.origin) / "worktrees").glob("*")):
            try:
                named = Path((folder / "gitdir").read_text("utf-8", "surrogateescape").strip())
            except OSError:
                continue
            if named.parent == self.root or named.parent.resolve() == self.root.resolve():
                return Repository(folder, self.root)
        return None

    def _head(self, view: Repository) -> str | None:
        return self.git.commit_of(view, "HEAD")

    def _keep_work(self, view: Repository, head: str, made: str | None) -> list[str]:
        """Put on a branch what no branch has: uncommitted changes, or commits; returns notes."""
        if made is None and self._branches.refs_with(head):
            return []
        what = "uncommitted changes are" if made else "commits are"
        on_branch = self.git.text(view, "symbolic-ref", "--quiet", "--short", "HEAD") == self.branch
        name = self.branch if on_branch else self._branches.unused(f"{self.branch}-kept")
        ref = f"refs/heads/{name}"
        check_kept(self.git.run(self.origin, "update-ref", ref, made or head))
        return [f"Its {what} on branch {name}."]

    def _drop_branch(self) -> list[str]:
        ref = f"refs/heads/{self.branch}"
        refs = self._branches.refs_with(ref)
        if refs == {ref}:
            return [f"Its commits are on branch {self.branch}."]
        if refs:
            self._branches.drop(self.branch)
        return []

    def _keep_whole(self, why: str) -> str:
        place, note = self.kept.keep_whole(self.root, why)
        # A worktree that moved has to tell its repository where it is now.
        self.git.run(self.origin, "worktree", "repair", str(place))
        return note

    @property
    def _branches(self) -> Branches:
        return Branches(self.git, self.origin)
