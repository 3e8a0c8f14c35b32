"""Files of a project that git does not manage and that its agents need all the same."""

from __future__ import annotations

import re
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePath

from fleet_agentpack.fleet.local.git import Git, Repository

LIST = ".worktreeinclude"
_SPECIAL = re.compile(r"([\\*?\[\]#! ])")


def included_files(git: Git, repository: Repository, named: Sequence[str]) -> tuple[str, ...]:
    """The files to copy: those that are named, and ignored ones that `.worktreeinclude` names.

    An environment file holds secrets: a pattern for anything else does not include it.
    """
    if repository.tree is None:
        return ()
    listed = _lines(repository.tree / LIST)
    found = _matching(git, repository, named)
    ignored = _matching(git, repository, listed) if listed else set()
    if ignored:
        ignored &= _untracked(git, repository, "--exclude-standard")
    return tuple(sorted(path for path in found | ignored if "\n" not in path))


def copy_included(source: Path, target: Path, paths: Sequence[str]) -> None:
    """Copy files, links as links, to where the same directory is inside the target."""
    for path in paths:
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        is_inside = place.parent.resolve().is_relative_to(target.resolve())
        if is_inside and not place.exists() and not place.is_symlink() and _is_plain(source / path):
            shutil.copy2(source / path, place, follow_symlinks=False)


def exclusions(paths: Sequence[str]) -> str:
    """Lines of an exclude file that name exactly these files."""
    return "".join(f"/{_SPECIAL.sub(_ESCAPED, path)}\n" for path in paths)


_ESCAPED = r"\\\1"


def _matching(git: Git, repository: Repository, patterns: Sequence[str]) -> set[str]:
    env = [each for each in patterns if ".env" in each]
    found = {path for path in _by(git, repository, patterns) if not _is_env(path)}
    return found | {path for path in _by(git, repository, env) if _is_env(path)}


def _by(git: Git, repository: Repository, patterns: Sequence[str]) -> set[str]:
    if not patterns:
        return set()
    with tempfile.TemporaryDirectory(prefix="fleet-agentpack-") as folder:
        rules = Path(folder, "rules")
        rules.write_text("".join(f"{each}\n" for each in patterns), "utf-8")
        return _untracked(git, repository, f"--exclude-from={rules}")


def _untracked(git: Git, repository: Repository, rule: str) -> set[str]:
    listed = git.run(repository, "ls-files", "--others", "--ignored", rule, "-z").text
    return {path for path in listed.split("\0") if path and not path.endswith("/")}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
    except OSError:
        return []


def _is_env(path: str) -> bool:
    name = PurePath(path).name
    return name == ".env" or name.startswith(".env.")


def _is_plain(path: Path) -> bool:
    kind = path.lstat().st_mode
    return stat.S_ISREG(kind) or stat.S_ISLNK(kind)
