"""Checkouts of git modules under the agentpack home, one directory per URL and commit."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.deploy import looks
from fleet_agentpack.deploy.errors import DeployError, io_errors
from fleet_agentpack.deploy.home import Home, git
from fleet_agentpack.deploy.lockfile import Lockfile
from fleet_agentpack.deploy.manifest import GitSource, Module
from fleet_agentpack.deploy.model import module_fs_key, safe_name
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.paths import EscapeError, check_relative, is_inside
from fleet_agentpack.kit.process import Completed

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_CLONE_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Upstream:
    """Where a module's own files are, and where links in it may point."""

    path: str
    boundaries: tuple[str, ...]
    commit: str | None = None


class GitStore:
    """Finds checkouts, and clones what is missing."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def locked(self, module: Module, source: GitSource, lockfile: Lockfile | None) -> Upstream:
        """The checkout that the lockfile pins, or else what the ref points to now."""
        pinned = lockfile.commits.get(module.id) if lockfile else None
        if pinned and _COMMIT.match(pinned.commit):
            return self.checkout(module, pinned.source, pinned.commit)
        return self.checkout(module, source, self._resolve(module, source))

    def _resolve(self, module: Module, source: GitSource) -> str:
        """The commit that a ref points to now."""
        _check(module, source)
        if _COMMIT.match(source.ref):
            return source.ref
        looks.beyond_files()
        wanted = [f"refs/heads/{source.ref}", f"refs/tags/{source.ref}"]
        listed = self._git(
            self._home.cwd, "ls-remote", "--", source.url, *wanted, f"{wanted[1]}^{{}}"
        )
        rows = [line.split("\t", 1) for line in listed.text.splitlines() if "\t" in line]
        peeled = [commit for commit, name in rows if name.endswith("^{}")]
        if not rows:
            message = f"ref not found: {source.ref} in {source.url} (module {module.id})"
            raise DeployError.because("git_ref_not_found", message, module_id=module.id)
        return (peeled or [rows[0][0]])[0]

    def checkout(self, module: Module, source: GitSource, commit: str) -> Upstream:
        """A module's files at a commit, which is cloned if needed."""
        _check(module, source)
        store = self._home.git_store / hashlib.sha256(source.url.encode()).hexdigest()
        found = self._present(module, store / commit)
        if found is None:
            with (
                io_errors(store, "keep a checkout in"),
                file_lock(store / ".lock", timeout_s=_CLONE_TIMEOUT_S),
            ):
                found = self._present(module, store / commit)
                if found is None:
                    found = store / commit
                    self._clone(source, commit, found)
        looks.at(found / source.subdir.strip("/"))
        path = os.path.realpath(found / source.subdir.strip("/"))
        if not is_inside(path, found):
            raise DeployError.config_invalid(
                f"module {module.id}: subdir {source.subdir!r} points outside its repository",
                module_id=module.id,
            )
        return Upstream(path, (str(found),), commit)

    def _present(self, module: Module, canonical: Path) -> Path | None:
        """The checkout if it exists, also where older versions kept it."""
        looks.at(canonical)
        if canonical.is_dir():
            return canonical
        older = (
            module_fs_key(module.id),
            module_fs_key(module.id, bounded=False),
            safe_name(module.id),
        )
        for name in older:
            legacy = self._home.git_store / name / canonical.name
            looks.at(legacy)
            if name and legacy.is_dir():
                return legacy
        return None

    def _clone(self, source: GitSource, commit: str, destination: Path) -> None:
        temporary = destination.with_name(f"{commit}.tmp")
        newest = ("--depth", "1", "--branch", source.ref)
        shallow = source.shallow and not _COMMIT.match(source.ref)
        try:
            if not (shallow and self._fetched(source, commit, temporary, *newest, check=False)):
                self._fetched(source, commit, temporary, "--no-checkout")
            temporary.rename(destination)
        finally:
            _remove(temporary)

    def _fetched(
        self, source: GitSource, commit: str, place: Path, *options: str, check: bool = True
    ) -> bool:
        """Whether a clone made with these options has the commit, which is then checked out."""
        _remove(place)
        clone = ("clone", "--quiet", *options, "--", source.url, str(place))
        checkout = ("checkout", "--quiet", "--detach", commit)
        steps = ((self._home.cwd, clone), (place, checkout))
        return all(self._git(cwd, *words, check=check).status == 0 for cwd, words in steps)

    def _git(self, cwd: Path, *arguments: str, check: bool = True) -> Completed:
        done = git(self._home, cwd, *arguments, timeout_s=_CLONE_TIMEOUT_S)
        if check and done.status != 0:
            raise DeployError.because(
                "git_failed",
                f"git {arguments[0]} failed: {done.complaint or f'status {done.status}'}",
                next_actions=("check_git_source", "retry_command"),
            )
        return done


def _check(module: Module, source: GitSource) -> None:
    """Refuse what git would read as an option, and paths outside the repository."""
    problem = ""
    if not source.url or source.url.startswith("-") or "::" in source.url.split("/")[0]:
        problem = f"git url {source.url!r} cannot be used"
    elif (
        not source.ref or source.ref.startswith("-") or any(c in source.ref for c in " \t\n:?*[\\")
    ):
        problem = f"git ref {source.ref!r} cannot be used"
    elif source.subdir:
        try:
            check_relative(source.subdir.strip("/"))
        except EscapeError:
            problem = f"git subdir {source.subdir!r} must stay inside the repository"
    if problem:
        raise DeployError.config_invalid(f"module {module.id}: {problem}", module_id=module.id)


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
