"""An agent's own copy of a project: a git worktree, or a plain copy. Never loses work."""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.process import Completed, run

GIT_S = 300.0
NAMED = 5  # kept files that a message names
REMADE = {"__pycache__", "node_modules"}
REMADE_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")  # the marks of caches and virtual environments
_REPOSITORY_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")
_WHO = {
    "GIT_AUTHOR_NAME": "fleet-agentpack",
    "GIT_AUTHOR_EMAIL": "fleet-agentpack@localhost",
    "GIT_COMMITTER_NAME": "fleet-agentpack",
    "GIT_COMMITTER_EMAIL": "fleet-agentpack@localhost",
}


def repository_of(directory: Path, environ: Mapping[str, str]) -> Path | None:
    """The root of the repository that a directory is in."""
    try:
        found = _git(directory, environ, "rev-parse", "--show-toplevel")
    except (FleetError, OSError):
        return None
    return Path(found.text.strip()) if found.status == 0 and found.text.strip() else None


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
    kept: Path  # where copies with work in them go when their agent is deleted
    locks: Path
    environ: Mapping[str, str]

    def make(self, project: Path, key: str, progress: Callable[[str], None]) -> WorkingCopy:
        """A copy of a project for an agent: of its last commit, or of its files without git."""
        target = self.root / key
        self.root.mkdir(parents=True, exist_ok=True)
        repository = repository_of(project, self.environ)
        part = _part_of(repository, project, self.environ) if repository else None
        if repository is not None and part is not None:
            return WorkingCopy(
                repository, target / part, self._add_worktree(repository, target, key)
            )
        try:
            _copy(project, target, self.root, progress)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        return WorkingCopy(project, target, None)

    def set_aside(self, key: str) -> None:
        """Keep what stands where a new copy goes: nobody knows it, but it may hold work."""
        if (self.root / key).exists():
            self._keep_whole(self.root / key, "no agent is known for it")

    def remove(self, project: Path, key: str, branch: str | None) -> str | None:
        """Remove a copy; returns where its work was kept, if it had any."""
        target = self.root / key
        if not target.exists():
            return None
        if branch is None:
            return self._remove_plain(project, target)
        with self._locked(project):
            return self._remove_worktree(project, target, branch)

    def _add_worktree(self, project: Path, target: Path, key: str) -> str:
        with self._locked(project):
            if _git(project, self.environ, "rev-parse", "--verify", "HEAD^{commit}").status != 0:
                raise FleetError.bad_request(
                    f"{project} has no commit yet; agents start from one. Commit first.",
                    field="project",
                )
            _git(project, self.environ, "worktree", "prune")
            branch = self._free_branch(project, f"agent/{key}")
            added = _git(
                project, self.environ, "worktree", "add", "--quiet", "-b", branch, str(target)
            )
            if added.status != 0:
                shutil.rmtree(target, ignore_errors=True)
                _git(project, self.environ, "worktree", "prune")
                _git(project, self.environ, "branch", "--quiet", "-D", branch)
                raise FleetError.unavailable(f"git could not make a worktree: {added.complaint}")
        return branch

    def _remove_worktree(self, project: Path, target: Path, branch: str) -> str | None:
        if _git(target, self.environ, "rev-parse", "--verify", "HEAD^{commit}").status != 0:
            return self._keep_whole(target, "its repository is gone")
        tree, holds_repositories = self._snapshot(target)
        if holds_repositories:
            return self._keep_whole(target, "it holds other repositories")
        notes = []
        if tree != self._out(target, "rev-parse", "HEAD^{tree}"):
            commit = self._out(
                target,
                "commit-tree",
                tree,
                "-p",
                "HEAD",
                "-m",
                "Uncommitted work of a deleted agent",
            )
            kept = self._keep_commit(project, target, branch, commit)
            notes.append(f"Its uncommitted changes are on branch {kept}.")
        else:
            head = self._out(target, "rev-parse", "HEAD")
            if not self._refs_with(project, head):
                kept = self._keep_commit(project, target, branch, head)
                notes.append(f"Its commits are on branch {kept}.")
        notes += self._keep_ignored(target)
        gone = _git(target, self.environ, "worktree", "remove", "--force", "--force", str(target))
        if gone.status != 0:
            shutil.rmtree(target)
            _git(project, self.environ, "worktree", "prune")
        if not notes and not self._drop_branch(project, branch):
            notes.append(f"Its commits are on branch {branch}.")
        return " ".join(notes) or None

    def _snapshot(self, target: Path) -> tuple[str, bool]:
        """The tree of everything in a worktree, whatever state its index is in."""
        with tempfile.TemporaryDirectory() as folder:
            environ = {**self.environ, "GIT_INDEX_FILE": str(Path(folder, "index"))}
            for command in (("read-tree", "HEAD"), ("add", "--all")):
                done = _git(target, environ, *command, keep_index=True)
                if done.status != 0:
                    raise FleetError.unavailable(
                        f"git could not keep the agent's work: {done.complaint}."
                        " Nothing was removed."
                    )
            tree = _git(target, environ, "write-tree", keep_index=True).text.strip()
        return tree, any((target / path / ".git").exists() for path in self._gitlinks(target, tree))

    def _gitlinks(self, target: Path, tree: str) -> list[str]:
        """Where a tree has other repositories: submodules, or what was cloned into it."""
        listed = _git(target, self.environ, "ls-tree", "-r", "-z", tree).text.split("\0")
        return [row.split("\t", 1)[1] for row in listed if row.startswith("160000 ")]

    def _keep_ignored(self, target: Path) -> list[str]:
        """Move what git does not look at out of a worktree: it may be work all the same."""
        listed = _git(
            target,
            self.environ,
            *("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"),
        )
        ignored = [path for path in listed.text.split("\0") if path and not _remade(target, path)]
        if not ignored:
            return []
        place = self._place(target)
        for path in ignored:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(str(target / path), str(place / path))
        some = ", ".join(ignored[:NAMED]) + (", …" if len(ignored) > NAMED else "")
        return [f"Files that git ignores were kept in {place}: {some}."]

    def _keep_commit(self, project: Path, target: Path, branch: str, commit: str) -> str:
        """Put a commit on the agent's branch, or on a new one when the agent left its branch."""
        on_branch = self._out(target, "symbolic-ref", "--quiet", "--short", "HEAD") == branch
        name = branch if on_branch else self._free_branch(project, f"{branch}-kept")
        done = _git(project, self.environ, "update-ref", f"refs/heads/{name}", commit)
        if done.status != 0:
            raise FleetError.unavailable(
                f"git could not keep the agent's work: {done.complaint}. Nothing was removed."
            )
        return name

    def _drop_branch(self, project: Path, branch: str) -> bool:
        """Delete a branch whose commits another branch has as well."""
        refs = self._refs_with(project, branch)
        if refs - {f"refs/heads/{branch}"}:
            _git(project, self.environ, "branch", "--quiet", "-D", branch)
            return True
        return not refs

    def _refs_with(self, project: Path, commit: str) -> set[str]:
        listed = _git(
            project,
            self.environ,
            "for-each-ref",
            f"--contains={commit}",
            "--format=%(refname)",
            "refs/heads",
            "refs/remotes",
            "refs/tags",
        )
        return set(listed.text.split())

    def _free_branch(self, project: Path, wanted: str) -> str:
        """A branch name that is not taken: what stands on it may be somebody's work."""
        name, number = wanted, 1
        while (
            _git(project, self.environ, "rev-parse", "--verify", f"refs/heads/{name}").status == 0
        ):
            number += 1
            name = f"{wanted}-{number}"
        return name

    def _remove_plain(self, project: Path, target: Path) -> str | None:
        if _same(project, target):
            shutil.rmtree(target)
            return None
        return self._keep_whole(target, "it differs from the project")

    def _keep_whole(self, target: Path, why: str) -> str:
        place = self._place(target)
        shutil.move(str(target), str(place))
        # A worktree that moved has to tell its repository where it is now.
        _git(place, self.environ, "worktree", "repair")
        return f"Its directory was kept as {place}, since {why}."

    def _place(self, target: Path) -> Path:
        """A new place for what is kept of a directory."""
        self.kept.mkdir(parents=True, exist_ok=True)
        return self.kept / f"{target.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"

    def _locked(self, project: Path) -> AbstractContextManager[None]:
        """One change of a repository's worktrees and branches at a time."""
        name = hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return file_lock(self.locks / f"{name}.lock", timeout_s=GIT_S)

    def _out(self, directory: Path, *arguments: str) -> str:
        return _git(directory, self.environ, *arguments).text.strip()


def _git(
    directory: Path, environ: Mapping[str, str], *arguments: str, keep_index: bool = False
) -> Completed:
    dropped = [
        name for name in _REPOSITORY_VARIABLES if not (keep_index and name == "GIT_INDEX_FILE")
    ]
    env = {**_WHO, **{name: value for name, value in environ.items() if name not in dropped}}
    try:
        return run(["git", "-C", directory, *arguments], env=env, timeout_s=GIT_S)
    except FileNotFoundError as error:
        raise FleetError.unavailable("git is not installed; local agents need it.") from error


def _remade(target: Path, path: str) -> bool:
    """Whether an ignored path is nobody's work: programs make it again, and it may be huge."""
    return bool(REMADE & set(Path(path).parts)) or any(
        (target / path / mark).exists() for mark in REMADE_MARKS
    )


def _part_of(repository: Path, project: Path, environ: Mapping[str, str]) -> str | None:
    """Where a project is inside its repository; None when the repository does not hold it."""
    part = os.path.relpath(project.resolve(), repository.resolve())
    if part == ".":
        return part
    listed = _git(repository, environ, "ls-tree", "-d", "HEAD", part)
    return part if listed.status == 0 and listed.text.strip() else None


def _copy(project: Path, target: Path, agents: Path, progress: Callable[[str], None]) -> None:
    """A plain copy, links as links; agents' own directories inside the project are left out."""
    copied = 0

    def skip(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(folder, name).resolve() == agents.resolve()]

    def copy(source: str, destination: str) -> str:
        nonlocal copied
        copied += 1
        if copied % 200 == 0:
            progress(f"{copied} files copied")
        return str(shutil.copy2(source, destination))

    shutil.copytree(project, target, symlinks=True, ignore=skip, copy_function=copy)


def _same(left: Path, right: Path) -> bool:
    """Whether two directories hold the same files and links with the same content."""
    if not left.is_dir():
        return False
    names = _names(left)
    return names == _names(right) and all(_same_entry(left / name, right / name) for name in names)


def _names(root: Path) -> set[str]:
    return {
        os.path.relpath(Path(folder, name), root)
        for folder, folders, files in os.walk(root)
        for name in (*folders, *files)
    }


def _same_entry(left: Path, right: Path) -> bool:
    if left.is_symlink() or right.is_symlink():
        return left.is_symlink() and right.is_symlink() and left.readlink() == right.readlink()
    if left.is_dir() or right.is_dir():
        return left.is_dir() and right.is_dir()
    return filecmp.cmp(left, right, shallow=False)
