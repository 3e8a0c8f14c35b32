"""Checkouts of git modules under the agentpack home, one directory per URL and commit."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.home import Home, git
from fleet_agentpack.deploy.lockfile import Lockfile
from fleet_agentpack.deploy.manifest import GitSource, Module
from fleet_agentpack.deploy.model import module_fs_key, safe_name
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.paths import EscapeError, check_relative, is_inside

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_CLONE_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Checkout:
    """A commit of a git module on this disk."""

    directory: Path
    commit: str


class GitStore:
    """Finds checkouts, and clones what is missing."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def locked(self, module: Module, lockfile: Lockfile | None) -> Checkout:
        """The checkout that the lockfile pins, or else what the ref points to now."""
        source = _source_of(module)
        pinned = lockfile.commits.get(module.id) if lockfile else None
        if pinned and _COMMIT.match(pinned.commit):
            source = GitSource(pinned.url, pinned.commit, pinned.subdir, shallow=False)
            return self.checkout(module, source, pinned.commit)
        return self.checkout(module, source, self.resolve(module, source))

    def resolve(self, module: Module, source: GitSource) -> str:
        """The commit that a ref points to now."""
        _check(module, source)
        if _COMMIT.match(source.ref):
            return source.ref
        wanted = [f"refs/heads/{source.ref}", f"refs/tags/{source.ref}"]
        listed = self._git(
            self._home.cwd, "ls-remote", "--", source.url, *wanted, f"{wanted[1]}^{{}}"
        )
        rows = [line.split("\t", 1) for line in listed.splitlines() if "\t" in line]
        peeled = [commit for commit, name in rows if name.endswith("^{}")]
        if not rows:
            raise DeployError(
                "E_UNEXPECTED",
                f"ref not found: {source.ref} in {source.url} (module {module.id})",
                reason="git_ref_not_found",
                next_actions=("fix_config", "retry_command"),
                module_id=module.id,
            )
        return (peeled or [rows[0][0]])[0]

    def checkout(self, module: Module, source: GitSource, commit: str) -> Checkout:
        """The directory that holds a commit, cloned if needed."""
        _check(module, source)
        store = self._home.git_store / hashlib.sha256(source.url.encode()).hexdigest()
        found = self._present(module, store / commit)
        if found is None:
            try:
                with file_lock(store / ".lock", timeout_s=_CLONE_TIMEOUT_S):
                    found = self._present(module, store / commit)
                    if found is None:
                        self._clone(source, commit, store / commit)
                        found = store / commit
            except OSError as error:
                raise DeployError.io(store, error, "keep a checkout in") from error
        return Checkout(found, commit)

    def _present(self, module: Module, canonical: Path) -> Path | None:
        """The checkout if it exists, also where older versions kept it."""
        if canonical.is_dir():
            return canonical
        older = (
            module_fs_key(module.id),
            module_fs_key(module.id, bounded=False),
            safe_name(module.id),
        )
        for name in older:
            legacy = self._home.git_store / name / canonical.name
            if name and legacy.is_dir():
                return legacy
        return None

    def _clone(self, source: GitSource, commit: str, destination: Path) -> None:
        temporary = destination.with_name(f"{commit}.tmp")
        _remove(temporary)
        shallow = source.shallow and not _COMMIT.match(source.ref)
        try:
            if not (shallow and self._try_shallow(source, commit, temporary)):
                _remove(temporary)
                self._git(
                    self._home.cwd,
                    "clone",
                    "--quiet",
                    "--no-checkout",
                    "--",
                    source.url,
                    str(temporary),
                )
                self._git(temporary, "checkout", "--quiet", "--detach", commit)
            temporary.rename(destination)
        finally:
            _remove(temporary)

    def _try_shallow(self, source: GitSource, commit: str, temporary: Path) -> bool:
        options = ("--quiet", "--depth", "1", "--branch", source.ref)
        cloned = git(
            self._home,
            self._home.cwd,
            "clone",
            *options,
            "--",
            source.url,
            str(temporary),
            timeout_s=_CLONE_TIMEOUT_S,
        )
        if cloned.status != 0:
            return False
        out = git(self._home, temporary, "checkout", "--quiet", "--detach", commit)
        return out.status == 0

    def _git(self, cwd: Path, *arguments: str) -> str:
        done = git(self._home, cwd, *arguments, timeout_s=_CLONE_TIMEOUT_S)
        if done.status != 0:
            raise DeployError(
                "E_UNEXPECTED",
                f"git {arguments[0]} failed: {done.complaint or f'status {done.status}'}",
                reason="git_failed",
                next_actions=("check_git_source", "retry_command"),
            )
        return done.text


def module_directory(module: Module, checkout: Checkout, subdir: str) -> str:
    """The module's own directory or file inside its checkout."""
    found = os.path.realpath(checkout.directory / subdir)
    if not is_inside(found, checkout.directory):
        raise DeployError.config_invalid(
            f"module {module.id}: subdir {subdir!r} points outside its repository",
            module_id=module.id,
        )
    return found


def _source_of(module: Module) -> GitSource:
    if module.source.git is None:
        raise DeployError.config_invalid(
            f"module {module.id} has no git source", module_id=module.id
        )
    return module.source.git


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
