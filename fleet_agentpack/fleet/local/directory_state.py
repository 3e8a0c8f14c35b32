"""The files of an agent's directory as git sees them, through a repository that is not the agent's.

Nothing here changes the directory, its index or its repository.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local.git import Git, Identity, Repository
from fleet_agentpack.kit.process import Completed

MAX_FILE_BYTES = 1_000_000_000  # a larger file is not committed
MAX_FILES = 1_000_000  # a commit with more cannot be meant


def too_large(root: Path) -> list[str]:
    """The files in a directory that are too large for a commit."""
    found = []
    for folder, folders, names in os.walk(root):
        if Path(folder) == root and ".git" in folders:
            folders.remove(".git")
        for name in names:
            path = Path(folder, name)
            with suppress(OSError):
                facts = path.lstat()
                if stat.S_ISREG(facts.st_mode) and facts.st_size > MAX_FILE_BYTES:
                    found.append(os.path.relpath(path, root))
    return sorted(found)


def new_and_too_large(git: Git, view: Repository, head: str) -> list[str]:
    """Of these files the ones that neither a commit has nor git ignores."""
    large = too_large(view.tree) if view.tree else []
    if not large:
        return []
    with tempfile.TemporaryDirectory(prefix="fleet-agentpack-") as folder:
        index = Path(folder, "index")
        check_kept(git.run(view, "read-tree", head, index=index))
        listed = git.run(
            view, "ls-files", "--others", "--exclude-standard", "-z", index=index
        ).text.split("\0")
    return [path for path in large if path in set(listed)]


def tree_of(git: Git, view: Repository, head: str, without: Sequence[str] = ()) -> str:
    """The tree of everything in a directory, whatever the state of its index. Raises 503."""
    large = too_large(view.tree) if view.tree else []
    left_out = [f":(top,exclude,literal){path}" for path in (*without, *large)]
    with tempfile.TemporaryDirectory(prefix="fleet-agentpack-") as folder:
        index = Path(folder, "index")
        check_kept(git.run(view, "read-tree", head, index=index))
        check_kept(git.run(view, "add", "--all", "--", ".", *left_out, index=index))
        return git.run(view, "write-tree", index=index).text.strip()


def commit_of_files(
    git: Git,
    view: Repository,
    head: str,
    message: str,
    who: Identity,
    without: Sequence[str] = (),
) -> str | None:
    """A commit on top of `head` with a directory's files; None if they are those of `head`."""
    tree = tree_of(git, view, head, without)
    if tree == git.text(view, "rev-parse", f"{head}^{{tree}}"):
        return None
    made = git.run(view, "commit-tree", tree, "-p", head, "-m", message, who=who)
    check_kept(made)
    return made.text.strip()


def unsaved_files(git: Git, view: Repository, head: str) -> list[str]:
    """The files that differ from a commit."""
    tree = tree_of(git, view, head)
    listed = git.run(view, "diff-tree", "-r", "--name-only", "--no-renames", "-z", head, tree)
    return [path for path in listed.text.split("\0") if path]


def nested_repositories(git: Git, view: Repository, commit: str) -> dict[str, str]:
    """Where a commit has other repositories, submodules or clones inside it, and at what commit."""
    listed = git.run(view, "ls-tree", "-r", "-z", "--full-tree", commit).text.split("\0")
    rows = [row.split("\t", 1) for row in listed if row.startswith("160000 ")]
    return {path: facts.split()[2] for facts, path in rows}


def ignored_files(git: Git, view: Repository, head: str) -> list[str]:
    """The files and whole directories that git ignores."""
    with tempfile.TemporaryDirectory(prefix="fleet-agentpack-") as folder:
        index = Path(folder, "index")
        check_kept(git.run(view, "read-tree", head, index=index))
        options = ("--others", "--ignored", "--exclude-standard", "--directory", "-z")
        listed = git.run(view, "ls-files", *options, index=index)
    found: list[str] = []
    for path in sorted(filter(None, listed.text.split("\0"))):
        # Of a directory that ignores itself, as caches do, git also lists the files.
        if not (found and found[-1].endswith("/") and path.startswith(found[-1])):
            found.append(path)
    return found


def check_kept(done: Completed) -> None:
    """Check a step that keeps work. Raises 503."""
    if done.status != 0:
        raise FleetError.unavailable(
            f"git could not keep the agent's work: {done.complaint}. Nothing was removed."
        )
