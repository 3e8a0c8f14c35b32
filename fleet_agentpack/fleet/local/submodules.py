"""The files of submodules in an agent's directory, from the clones that the user has of them.

They are files only: an agent's commits have the submodule at the commit that the project names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.fleet.local.directory_state import (
    check_kept,
    nested_repositories,
    unsaved_files,
)
from fleet_agentpack.fleet.local.git import Git, Repository
from fleet_agentpack.fleet.local.repository import OwnRepository

MAX_DEPTH = 10


@dataclass(frozen=True)
class Submodule:
    """A submodule of the user's; without a repository if they have not cloned it."""

    path: str  # in the outermost repository
    commit: str
    clone: Repository | None

    def is_changed(self, git: Git, root: Path, key: str, views: Path | None) -> bool:
        """Whether an agent has changed its files."""
        place = root / self.path
        if self.clone is None or place.is_symlink() or not place.is_dir():
            return False
        with OwnRepository(git, self.clone, place, key, views).outside() as view:
            return bool(unsaved_files(git, view, self.commit))


def submodules_of(
    git: Git, repository: Repository, commit: str, within: str = "", depth: int = 0
) -> Iterator[Submodule]:
    """The submodules of a commit, and theirs, the outer ones first."""
    for path, recorded in nested_repositories(git, repository, commit).items():
        clone = _clone(git, repository, path, recorded)
        yield Submodule(f"{within}{path}", recorded, clone)
        if clone and depth < MAX_DEPTH:
            yield from submodules_of(git, clone, recorded, f"{within}{path}/", depth + 1)


def copy_submodules(git: Git, repository: Repository, commit: str, root: Path) -> list[str]:
    """Put the files of submodules into an agent's directory; returns those that are missing."""
    missing = []
    for each in submodules_of(git, repository, commit):
        if each.clone is None:
            missing.append(each.path)
            continue
        place = root / each.path
        place.mkdir(parents=True, exist_ok=True)
        files = Repository(each.clone.git_dir, place)
        with tempfile.TemporaryDirectory(prefix="fleet-agentpack-") as folder:
            index = Path(folder, "index")
            check_kept(git.run(files, "read-tree", each.commit, index=index))
            check_kept(git.run(files, "checkout-index", "--all", "--force", index=index))
    return missing


def _clone(git: Git, repository: Repository, path: str, commit: str) -> Repository | None:
    """The user's clone of a submodule, if it is there and has the commit."""
    place = (repository.tree or repository.git_dir) / path
    found = git.discover(place) if place.is_dir() else None
    if found is None or found.tree is None or found.tree.resolve() != place.resolve():
        return None
    return found if git.commit_of(found, commit) else None
