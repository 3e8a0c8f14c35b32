"""The copy of an agent with a repository of its own."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local import directory_state
from fleet_agentpack.fleet.local.branches import Branches
from fleet_agentpack.fleet.local.directory_state import (
    commit_of_files,
    ignored_files,
    nested_repositories,
    new_and_too_large,
    unsaved_files,
)
from fleet_agentpack.fleet.local.git import Git, Identity, Repository
from fleet_agentpack.fleet.local.kept import KeptFiles, named, remove_tree
from fleet_agentpack.fleet.local.plain_copy import same_directory, same_entry
from fleet_agentpack.fleet.local.repository import OwnRepository, UnfetchableError
from fleet_agentpack.fleet.local.submodules import Submodule

REMOVED = "Uncommitted work of a deleted agent"


@dataclass(frozen=True)
class OwnCopy:
    """A directory whose repository is the agent's, seen from outside."""

    repository: OwnRepository
    branches: Branches
    branch: str
    base: str
    kept: KeptFiles
    who: Identity
    submodules: tuple[Submodule, ...] = ()  # whose files the agent was given

    def collect(self, message: str | None) -> str | None:
        """Bring the agent's work into the user's repository; returns what stood in the way.

        With a message, files that the agent has not committed are committed, too.
        """
        try:
            with self.repository.outside() as view:
                tip = self._tip(view)
                made = message and commit_of_files(self._git, view, tip, message, self.who)
                large = new_and_too_large(self._git, view, tip) if message else []
                self._fetch(view, made or tip)
        except (UnfetchableError, FleetError, TimeoutError) as error:
            return f"Its work could not be brought to branch {self.branch}: {error}."
        return f"Not committed, being too large: {named(large)}." if large else None

    def unsaved(self) -> list[str]:
        """The files whose changes no commit has."""
        if not self.repository.root.exists():
            return []
        try:
            with self.repository.outside() as view:
                files = unsaved_files(self._git, view, self._tip(view))
            return [*files, *(each.path for each in self._changed_submodules())]
        except (UnfetchableError, FleetError, TimeoutError):
            return [str(self.repository.root)]

    def remove(self) -> str | None:
        """Remove the directory; returns a note on where its work was kept, if it had any."""
        root = self.repository.root
        try:
            work, files = self._keep() if root.exists() else ([], [])
        except (UnfetchableError, FleetError, TimeoutError) as error:
            work, files = [self.kept.keep_whole(root, f"of this: {error}")[1]], []
        remove_tree(root)
        notes = [*(work or self._drop_branch()), *files]
        for left in (self.repository.views or root).glob(f"{self.repository.key}.*"):
            shutil.rmtree(left, ignore_errors=True)  # of a look that was killed
        for ref in (self.repository.kept_base, self.repository.fetched):
            self._git.run(self.repository.origin, "update-ref", "-d", ref)
        return " ".join(notes) or None

    @property
    def _git(self) -> Git:
        return self.repository.git

    def _keep(self) -> tuple[list[str], list[str]]:
        """Bring all work to the branch, and what git ignores to the kept files.

        Returns notes on the work, and on the files.
        """
        root = self.repository.root
        with self.repository.outside() as view:
            tip = self._tip(view)
            made = commit_of_files(self._git, view, tip, REMOVED, self.who)
            inner = nested_repositories(self._git, view, made or tip)
            if any((root / path / ".git").exists() for path in inner):
                return [self.kept.keep_whole(root, "it contains other repositories")[1]], []
            moved = self._fetch(view, made or tip)
            ignored = [
                path
                for path in (
                    *ignored_files(self._git, view, made or tip),
                    *new_and_too_large(self._git, view, made or tip),
                )
                if not self._is_the_project_s(path)
            ]
        where = self.branch if moved else self._keep_apart(made or tip)
        notes = [f"Its uncommitted changes are on branch {where}."] if made else []
        if not made and not moved:
            notes = [f"Its commits are on branch {where}."]
        modules = [
            self.kept.keep_whole(root / each.path, "its submodule was changed")[1]
            for each in reversed(self._changed_submodules())
        ]
        return notes, [*modules, *self.kept.keep_some(root, ignored)]

    def _changed_submodules(self) -> list[Submodule]:
        own = self.repository
        return [
            each
            for each in self.submodules
            if each.is_changed(self._git, own.root, own.key, own.views)
        ]

    def _is_the_project_s(self, path: str) -> bool:
        """Whether an ignored file or directory is the same in the project: it is no work then."""
        tree = self.repository.origin.tree
        if tree is None or not (tree / path).exists():
            return False
        mine, theirs = self.repository.root / path, tree / path
        if mine.is_dir() and not mine.is_symlink():
            return same_directory(theirs, mine)
        return same_entry(theirs, mine)

    def _tip(self, view: Repository) -> str:
        """Where the agent is: its own commit, or what we made of its files after that.

        A repository that cannot be read counts for nothing: the files are on top of what we have.
        """
        known = self._known()
        with suppress(UnfetchableError):
            tip = self.repository.tip()
            if (
                self._git.commit_of(view, tip)
                and not self._has(view, known, tip)
                and self._is_readable(view, tip)
            ):
                return tip
        return known

    def _is_readable(self, view: Repository, tip: str) -> bool:
        """Whether a commit has all its objects, and no more files than anybody can mean."""
        if self._git.has_more_files(view, tip, directory_state.MAX_FILES):
            return False
        return self._git.succeeds(view, "rev-list", "--objects", "--quiet", tip, "--not", self.base)

    def _known(self) -> str:
        """What was fetched last."""
        fetched = self._git.commit_of(self.repository.origin, self.repository.fetched)
        return fetched or self.base

    def _has(self, view: Repository, commit: str, earlier: str) -> bool:
        return commit == earlier or self._git.succeeds(
            view, "merge-base", "--is-ancestor", earlier, commit
        )

    def _fetch(self, view: Repository, commit: str) -> bool:
        known = self._known()
        if commit != known:
            self.repository.fetch(view, commit)
        return self.branches.move(self.branch, commit, known)

    def _keep_apart(self, commit: str) -> str:
        """A branch for work that cannot go to the agent's own."""
        name = self.branches.unused(f"{self.branch}-kept")
        self.branches.move(name, commit, commit)
        return name

    def _drop_branch(self) -> list[str]:
        """Delete the branch if another one has its commits; returns a note if not."""
        ref = f"refs/heads/{self.branch}"
        refs = self.branches.refs_with(ref)
        if refs == {ref}:
            return [f"Its commits are on branch {self.branch}."]
        if refs:
            self.branches.drop(self.branch)
        return []
