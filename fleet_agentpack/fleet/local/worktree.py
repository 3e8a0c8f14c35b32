"""An agent's working copy of a project: a git worktree, or a plain copy. Never loses work."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.git import GIT_S, Git
from fleet_agentpack.fleet.local.plain_copy import copy_directory, same_directory
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.process import Completed

MAX_NAMED = 5  # kept files that a message names
GENERATED = {"__pycache__", "node_modules"}
GENERATED_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")  # in caches and virtual environments


@dataclass(frozen=True)
class WorkingCopy:
    """An agent's copy of a project."""

    origin: Path  # the repository, or the directory that was copied
    directory: Path  # where the agent works
    branch: str | None  # None for a plain copy


@dataclass(frozen=True)
class WorkingCopies:
    """Makes and removes agents' copies of projects."""

    root: Path  # agents' directories
    kept: Path  # where work goes that is left when an agent is deleted
    locks: Path
    git: Git

    def make(self, project: Path, key: str, progress: Callable[[str], None]) -> WorkingCopy:
        """A copy of a project for an agent: of its last commit, or of its files without git."""
        target = self.root / key
        self.root.mkdir(parents=True, exist_ok=True)
        repository = self.git.repository_of(project)
        part = self.git.part_of(repository, project) if repository else None
        if repository is not None and part is not None:
            branch = self._add_worktree(repository, target, key)
            return WorkingCopy(repository, target / part, branch)
        try:
            copy_directory(project, target, self.root, progress)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        return WorkingCopy(project, target, None)

    def set_aside(self, key: str) -> None:
        """Keep a directory that is in the way of a new copy: it may hold work."""
        if (self.root / key).exists():
            self._keep_whole(self.root / key, "it belongs to no known agent")

    def unsaved(self, project: Path, key: str, branch: str | None) -> list[str]:
        """The files of a copy whose changes no commit has; all of a plain copy that differs."""
        target = self.root / key
        if not target.exists():
            return []
        if branch is None:
            return [] if same_directory(project, target) else [str(target)]
        status = ("--no-optional-locks", "status", "--porcelain", "--no-renames", "-z")
        listed = self.git.run(target, *status)
        if listed.status != 0:  # its repository is gone
            return [str(target)]
        return [row[3:] for row in listed.text.split("\0") if row]

    def remove(self, project: Path, key: str, branch: str | None) -> str | None:
        """Remove a copy; returns a note on where its work was kept, if it had any."""
        target = self.root / key
        if not target.exists():
            return None
        if branch is None:
            if not same_directory(project, target):
                return self._keep_whole(target, "it differs from the project")
            shutil.rmtree(target)
            return None
        with self._locked(project):
            return self._remove_worktree(project, target, branch)

    def _add_worktree(self, project: Path, target: Path, key: str) -> str:
        with self._locked(project):
            if not self.git.succeeds(project, "rev-parse", "--verify", "HEAD^{commit}"):
                raise FleetError.bad_request(
                    f"{project} has no commit yet, and agents start from one. Commit first.",
                    field="project",
                )
            self.git.run(project, "worktree", "prune")
            branch = self._free_branch(project, f"agent/{key}")
            added = self.git.run(project, "worktree", "add", "--quiet", "-b", branch, str(target))
            if added.status != 0:
                shutil.rmtree(target, ignore_errors=True)
                self.git.run(project, "worktree", "prune")
                self.git.run(project, "branch", "--quiet", "-D", branch)
                raise FleetError.unavailable(f"git could not make a worktree: {added.complaint}")
        return branch

    def _remove_worktree(self, project: Path, target: Path, branch: str) -> str | None:
        if not self.git.succeeds(target, "rev-parse", "--verify", "HEAD^{commit}"):
            return self._keep_whole(target, "its repository is gone")
        tree = self._tree_of(target)
        if any((target / path / ".git").exists() for path in self._gitlinks(target, tree)):
            return self._keep_whole(target, "it contains other repositories")
        notes = [*self._keep_work(project, target, branch, tree), *self._keep_ignored(target)]
        removed = self.git.run(target, "worktree", "remove", "--force", "--force", str(target))
        if removed.status != 0:
            shutil.rmtree(target)
            self.git.run(project, "worktree", "prune")
        if not notes:
            notes = self._drop_branch(project, branch)
        return " ".join(notes) or None

    def _keep_work(self, project: Path, target: Path, branch: str, tree: str) -> list[str]:
        """Put on a branch what no branch has: uncommitted changes, or commits; returns notes."""
        if tree != self.git.text(target, "rev-parse", "HEAD^{tree}"):
            message = "Uncommitted work of a deleted agent"
            commit = self.git.text(target, "commit-tree", tree, "-p", "HEAD", "-m", message)
            kept = self._keep_commit(project, target, branch, commit)
            return [f"Its uncommitted changes are on branch {kept}."]
        head = self.git.text(target, "rev-parse", "HEAD")
        if self._refs_with(project, head):
            return []
        return [f"Its commits are on branch {self._keep_commit(project, target, branch, head)}."]

    def _tree_of(self, target: Path) -> str:
        """The tree of everything in a worktree, whatever the state of its index."""
        with tempfile.TemporaryDirectory() as folder:
            index = Path(folder, "index")
            _check_kept(self.git.run(target, "read-tree", "HEAD", index=index))
            _check_kept(self.git.run(target, "add", "--all", index=index))
            return self.git.run(target, "write-tree", index=index).text.strip()

    def _gitlinks(self, target: Path, tree: str) -> list[str]:
        """Where a tree has other repositories: submodules, or clones inside it."""
        listed = self.git.run(target, "ls-tree", "-r", "-z", tree).text.split("\0")
        return [row.split("\t", 1)[1] for row in listed if row.startswith("160000 ")]

    def _keep_ignored(self, target: Path) -> list[str]:
        """Move files that git ignores out of a worktree, since they may be work; returns notes."""
        listed = self.git.run(
            target,
            *("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"),
        )
        ignored = [path for path in listed.text.split("\0") if path]
        kept = [path for path in ignored if not _is_generated(target, path)]
        if not kept:
            return []
        place = self._new_place(target)
        for path in kept:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(str(target / path), str(place / path))
        some = ", ".join(kept[:MAX_NAMED]) + (", …" if len(kept) > MAX_NAMED else "")
        return [f"Files that git ignores were kept in {place}: {some}."]

    def _keep_commit(self, project: Path, target: Path, branch: str, commit: str) -> str:
        """Put a commit on the agent's branch, or on a new one if the agent left its branch."""
        on_branch = self.git.text(target, "symbolic-ref", "--quiet", "--short", "HEAD") == branch
        name = branch if on_branch else self._free_branch(project, f"{branch}-kept")
        _check_kept(self.git.run(project, "update-ref", f"refs/heads/{name}", commit))
        return name

    def _drop_branch(self, project: Path, branch: str) -> list[str]:
        """Delete a branch if another one has its commits; returns a note if not."""
        refs = self._refs_with(project, branch)
        if refs == {f"refs/heads/{branch}"}:
            return [f"Its commits are on branch {branch}."]
        if refs:
            self.git.run(project, "branch", "--quiet", "-D", branch)
        return []

    def _refs_with(self, project: Path, commit: str) -> set[str]:
        listed = self.git.run(
            project,
            *("for-each-ref", f"--contains={commit}", "--format=%(refname)"),
            *("refs/heads", "refs/remotes", "refs/tags"),
        )
        return set(listed.text.split())

    def _free_branch(self, project: Path, wanted: str) -> str:
        """A branch name that is not taken: an existing branch may be somebody's work."""
        name, number = wanted, 1
        while self.git.succeeds(project, "rev-parse", "--verify", f"refs/heads/{name}"):
            number += 1
            name = f"{wanted}-{number}"
        return name

    def _keep_whole(self, target: Path, why: str) -> str:
        place = self._new_place(target)
        shutil.move(str(target), str(place))
        # A worktree that moved has to tell its repository where it is now.
        self.git.run(place, "worktree", "repair")
        return f"Its directory was kept as {place} because {why}."

    def _new_place(self, target: Path) -> Path:
        """A new path for what is kept of a directory."""
        self.kept.mkdir(parents=True, exist_ok=True)
        return self.kept / f"{target.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"

    def _locked(self, project: Path) -> AbstractContextManager[None]:
        """One change of a repository's worktrees and branches at a time."""
        name = hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return file_lock(self.locks / f"{name}.lock", timeout_s=GIT_S)


def _check_kept(done: Completed) -> None:
    """Check a step that keeps work. Raises 503."""
    if done.status != 0:
        raise FleetError.unavailable(
            f"git could not keep the agent's work: {done.complaint}. Nothing was removed."
        )


def _is_generated(target: Path, path: str) -> bool:
    """Whether an ignored path can be generated again; it is not work, and may be huge."""
    return bool(GENERATED & set(Path(path).parts)) or any(
        (target / path / mark).exists() for mark in GENERATED_MARKS
    )
