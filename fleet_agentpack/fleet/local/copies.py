"""Agents' copies of projects: repositories of their own, or plain copies. Never loses work."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.agents import LocalAgent
from fleet_agentpack.fleet.local.branches import Branches
from fleet_agentpack.fleet.local.directory_state import commit_of_files, nested_repositories
from fleet_agentpack.fleet.local.environments import Environment
from fleet_agentpack.fleet.local.git import GIT_S, Git, Identity, Repository
from fleet_agentpack.fleet.local.included import copy_included, included_files
from fleet_agentpack.fleet.local.kept import KeptFiles, named, remove_tree
from fleet_agentpack.fleet.local.own_copy import OwnCopy
from fleet_agentpack.fleet.local.plain_copy import copy_directory, same_directory
from fleet_agentpack.fleet.local.repository import OwnRepository
from fleet_agentpack.fleet.local.submodules import copy_submodules, submodules_of
from fleet_agentpack.fleet.local.worktree_copy import WorktreeCopy
from fleet_agentpack.kit.locks import file_lock


@dataclass(frozen=True)
class WorkingCopy:
    """A new copy of a project, as it is recorded."""

    origin: Path  # the repository, or the directory that was copied
    directory: Path  # where the agent works
    branch: str | None = None  # None for a plain copy
    base: str | None = None
    base_branch: str | None = None
    warnings: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    submodules: bool = False


class Copy(Protocol):
    """An agent's copy of a project."""

    def collect(self, message: str | None) -> str | None:
        """Bring the agent's work to its branch; returns what stood in the way."""

    def unsaved(self) -> list[str]:
        """The files whose changes no commit has."""

    def remove(self) -> str | None:
        """Remove it; returns a note on where its work was kept, if it had any."""


@dataclass(frozen=True)
class PlainCopy:
    """A directory that git does not manage."""

    project: Path
    root: Path
    kept: KeptFiles

    def collect(self, message: str | None) -> str | None:  # noqa: ARG002
        """Nothing: there is no branch."""
        return None

    def unsaved(self) -> list[str]:
        """All of it, if it differs from the project."""
        if not self.root.exists() or same_directory(self.project, self.root):
            return []
        return [str(self.root)]

    def remove(self) -> str | None:
        """Remove the copy, or keep it if it differs from the project."""
        if not self.root.exists():
            return None
        if not same_directory(self.project, self.root):
            return self.kept.keep_whole(self.root, "it differs from the project")[1]
        remove_tree(self.root)
        return None


@dataclass(frozen=True)
class WorkingCopies:
    """Makes agents' copies of projects, and finds them again."""

    root: Path  # agents' directories
    kept: KeptFiles
    locks: Path
    git: Git
    author: str | None = None  # of commits that we make

    @property
    def views(self) -> Path:
        """Where we look at agents' repositories."""
        return self.root.parent / "views"

    def make(self, wanted: Environment, key: str, progress: Callable[[str], None]) -> WorkingCopy:
        """A copy of a project for an agent: of a commit, or of its files without git."""
        self.root.mkdir(parents=True, exist_ok=True)
        project, start = wanted.path, wanted.base
        repository = self.git.discover(project)
        base = repository and self._base(repository, start)
        part = base and repository and self.git.part_of(repository, project, base)
        if repository and base and part:
            return self._make_own(wanted, repository, key, base, part)
        if start:
            raise FleetError.bad_request(f"{project} is no git repository with a branch '{start}'.")
        target = self.root / key
        try:
            special = copy_directory(project, target, self.root, progress)
        except BaseException as error:
            shutil.rmtree(target, ignore_errors=True)
            if isinstance(error, OSError):
                raise FleetError.unavailable(f"{project} could not be copied: {error}") from error
            raise
        told = f"Sockets, pipes and devices were not copied: {named(special)}."
        return WorkingCopy(project, target, warnings=(told,) if special else ())

    def set_aside(self, key: str) -> None:
        """Keep a directory that is in the way of a new copy: it may hold work."""
        if (self.root / key).exists():
            self.kept.keep_whole(self.root / key, "it belongs to no known agent")

    def of(self, agent: LocalAgent) -> Copy:
        """An agent's copy."""
        root, project = self.root / agent.key, Path(agent.origin)
        origin = self.git.discover(project) if agent.branch else None
        if agent.branch is None or origin is None:  # the repository may be gone
            return PlainCopy(project, root, self.kept)
        who = self.git.identity(origin, self.author)
        if agent.base is None:
            return WorktreeCopy(self.git, origin, root, agent.branch, self.kept, who)
        own = OwnRepository(self.git, origin, root, agent.key, self.views, agent.copied)
        branches = Branches(self.git, origin)
        modules = submodules_of(self.git, origin, agent.base) if agent.submodules else ()
        return OwnCopy(own, branches, agent.branch, agent.base, self.kept, who, tuple(modules))

    def discard(self, agent: LocalAgent) -> None:
        """Remove the copy of an agent that has done nothing yet."""
        remove_tree(self.root / agent.key)
        origin = self.git.discover(Path(agent.origin)) if agent.branch else None
        if origin and agent.branch:
            Branches(self.git, origin).drop(agent.branch)
            own = OwnRepository(self.git, origin, self.root / agent.key, agent.key)
            self.git.run(origin, "update-ref", "-d", own.kept_base)

    def origin_of(self, agent: LocalAgent) -> Repository:
        """The user's repository that an agent's work goes to. Raises 503 when it is gone."""
        found = self.git.discover(Path(agent.origin))
        if found is None:
            raise FleetError.unavailable(
                f"{agent.origin}, the repository of agent '{agent.name}', is gone."
            )
        return found

    def locked(self, project: Path) -> AbstractContextManager[None]:
        """One change of a repository's branches at a time."""
        name = hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return file_lock(self.locks / f"{name}.lock", timeout_s=GIT_S)

    def _base(self, repository: Repository, start: str | None) -> str:
        base = self.git.commit_of(repository, start or "HEAD")
        if base is None:
            what = f"no branch or commit '{start}'" if start else "no commit yet"
            raise FleetError.bad_request(
                f"{repository.tree} has {what}, and agents start from one. Commit first.",
                field="project",
            )
        return base

    def _make_own(
        self, wanted: Environment, repository: Repository, key: str, base: str, part: str
    ) -> WorkingCopy:
        target, origin = self.root / key, repository.tree or repository.git_dir
        branches = Branches(self.git, repository)
        copied = included_files(self.git, repository, wanted.copy)
        own = OwnRepository(self.git, repository, target, key, self.views, copied)
        head = self.git.text(repository, "symbolic-ref", "--quiet", "--short", "HEAD")
        named_base = wanted.base or head
        # Not so a tag, a commit, or a detached HEAD.
        base_branch = named_base if branches.ref_of(named_base) else None
        upstream = (branches.at_its_home(base_branch), base) if base_branch else None
        who = self.git.identity(repository, self.author)
        start = self._with_changes(repository, base, own, who) if wanted.with_changes else base
        with self.locked(origin):
            branch = branches.free(key)
            try:
                branches.move(branch, start, start)
                own.make(branch, start, upstream, who)
                copy_included(origin, target, copied)
                missing = self._copy_submodules(wanted, repository, start, target)
            except BaseException:
                shutil.rmtree(target, ignore_errors=True)
                branches.drop(branch)
                self.git.run(repository, "update-ref", "-d", own.kept_base)
                raise
        warnings = (
            *self._uncommitted(repository, copied, taken=start != base),
            *_about_submodules(missing, wanted.submodules),
        )
        return WorkingCopy(
            origin,
            target / part,
            branch,
            start,
            base_branch,
            warnings,
            copied,
            wanted.submodules,
        )

    def _with_changes(
        self, repository: Repository, base: str, own: OwnRepository, who: Identity
    ) -> str:
        """A commit of the project's files as they are, on top of the base. Raises 400."""
        tree = repository.tree
        if tree is None:  # a bare repository has no changes
            return base
        if self.git.commit_of(repository, "HEAD") != base:
            head = self.git.text(repository, "rev-parse", "--abbrev-ref", "HEAD")
            raise FleetError.bad_request(
                f"The uncommitted changes of {tree} belong to {head}, which is checked out there:"
                " start from that, or without them."
            )
        message = f"Uncommitted changes of {tree.name}"
        return commit_of_files(self.git, repository, base, message, who, own.copied) or base

    def _copy_submodules(
        self, wanted: Environment, repository: Repository, commit: str, target: Path
    ) -> list[str]:
        """Copy the files of submodules if they are wanted; returns those that are not there."""
        if wanted.submodules:
            return copy_submodules(self.git, repository, commit, target)
        return list(nested_repositories(self.git, repository, commit))

    def _uncommitted(
        self, repository: Repository, copied: Sequence[str], *, taken: bool
    ) -> list[str]:
        """A warning about changes that a new agent does not have, or has as a commit."""
        options = ("--porcelain", "--no-renames", "--untracked-files=all", "-z")
        status = self.git.run(repository, "status", *options)
        rows = [row[3:] for row in status.text.split("\0") if row]
        paths = [path for path in rows if path not in copied]
        if not paths:
            return []
        count = f"{len(paths)} uncommitted change{'s' if len(paths) > 1 else ''} of the project"
        if taken:
            return [f"{count} became the agent's first commit: {named(paths)}."]
        return [
            f"{count} {'are' if len(paths) > 1 else 'is'} not in the agent's copy:"
            f" {named(paths)}. To take them along, commit first, or create the agent with 'fleet"
            " create --with-changes', or set with_changes = true in the project's table of"
            " config.toml."
        ]


def _about_submodules(missing: Sequence[str], wanted: bool) -> list[str]:
    """A warning about submodules whose files a new agent does not have."""
    if not missing:
        return []
    if wanted:
        return [
            f"Submodules are empty in the agent's copy, since the project's own are:"
            f" {named(missing)}. Run 'git submodule update --init --recursive' in the project."
        ]
    return [
        f"Submodules are empty in the agent's copy: {named(missing)}. If it needs them, set"
        " submodules = true in the project's table of config.toml."
    ]
