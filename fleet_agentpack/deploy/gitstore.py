"""Checkouts of git modules under the agentpack home, one directory per URL and commit."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.errors import DeployError, io_errors
from fleet_agentpack.deploy.home import Home, git
from fleet_agentpack.deploy.lockfile import COMMIT
from fleet_agentpack.deploy.manifest import GitSource, Module
from fleet_agentpack.deploy.model import module_fs_key, names_in, safe_name
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.paths import EscapeError, check_relative, is_inside
from fleet_agentpack.kit.process import Completed

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

    def newest(self, module: Module, source: GitSource) -> Upstream:
        """What the ref points to now; this asks the network."""
        commit = self.resolve(module, source)
        found = self._present(module, self._place(source) / commit)
        get = self.checkout_again if found and self._is_changed(found) else self.checkout
        return get(module, source, commit)

    def at_hand(self, module: Module, source: GitSource) -> Upstream:
        """What an earlier command fetched for the ref; the network is not asked."""
        _check(module, source)
        commit = source.ref if COMMIT.match(source.ref) else self._last_commit(module, source)
        if commit is None or self._present(module, self._place(source) / commit) is None:
            raise DeployError.because(
                "module_not_fetched",
                f"module {module.id} is neither pinned nor fetched: {source.ref} of {source.url}",
                module_id=module.id,
                hint="run `fleet-agentpack update`, which fetches and pins it",
            )
        return self.checkout(module, source, commit)

    def checkout(self, module: Module, source: GitSource, commit: str) -> Upstream:
        """A module's files at a commit, which is cloned if needed."""
        _check(module, source)
        found = self._present(module, self._place(source) / commit)
        if found is None:
            with self._locked(source):
                found = self._present(module, self._place(source) / commit)
                found = found or self._clone(source, commit)
        return self._inside(module, source, found, commit)

    def checkout_again(self, module: Module, source: GitSource, commit: str) -> Upstream:
        """The same, cloned anew: for a checkout whose files were changed."""
        _check(module, source)
        with self._locked(source):
            return self._inside(module, source, self._clone(source, commit), commit)

    def _inside(self, module: Module, source: GitSource, found: Path, commit: str) -> Upstream:
        reads.at(found / source.subdir.strip("/"))
        path = os.path.realpath(found / source.subdir.strip("/"))
        if not is_inside(path, found):
            raise DeployError.config_invalid(
                f"module {module.id}: subdir {source.subdir!r} points outside its repository",
                module_id=module.id,
            )
        return Upstream(path, (str(found),), commit)

    def resolve(self, module: Module, source: GitSource) -> str:
        """The commit that a ref points to now; this asks the network."""
        _check(module, source)
        if COMMIT.match(source.ref):
            return source.ref
        reads.beyond_files()
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

    def _last_commit(self, module: Module, source: GitSource) -> str | None:
        """The newest checkout that was made for a ref: its clone has the ref at that commit."""
        reads.beyond_files()  # at what git keeps about its refs, however it does
        tops = (self._place(source), *self._older_places(module))
        found = [top / name for top in tops for name in names_in(top) if COMMIT.match(name)]
        refs = (f"refs/remotes/origin/{source.ref}", f"refs/tags/{source.ref}")
        for place in sorted(found, key=lambda place: place.stat().st_mtime, reverse=True):
            asked = ("for-each-ref", "--points-at", place.name, "--format=%(refname)", *refs)
            if git(self._home, place, *asked).text:
                return place.name
        return None

    def _is_changed(self, checkout: Path) -> bool:
        """Whether a checkout no longer holds what its commit does."""
        listed = ("status", "--porcelain", "--untracked-files=all", "--ignored")
        done = git(self._home, checkout, "-c", "core.fsmonitor=false", *listed)
        return done.status != 0 or bool(done.text)

    def _place(self, source: GitSource) -> Path:
        return self._home.git_store / hashlib.sha256(source.url.encode()).hexdigest()

    def _older_places(self, module: Module) -> list[Path]:
        """Where older versions kept the checkouts of a module."""
        bounded, unbounded = (module_fs_key(module.id, bounded=each) for each in (True, False))
        names = filter(None, (bounded, unbounded, safe_name(module.id)))
        return [self._home.git_store / name for name in names]

    @contextmanager
    def _locked(self, source: GitSource) -> Iterator[None]:
        place = self._place(source)
        with (
            io_errors(place, "keep a checkout in"),
            file_lock(place / ".lock", timeout_s=_CLONE_TIMEOUT_S),
        ):
            yield

    def _present(self, module: Module, canonical: Path) -> Path | None:
        """The checkout if it exists, also where older versions kept it."""
        older = (place / canonical.name for place in self._older_places(module))
        for place in (canonical, *older):
            reads.at(place)
            if place.is_dir():
                return place
        return None

    def _clone(self, source: GitSource, commit: str) -> Path:
        destination = self._place(source) / commit
        temporary = destination.with_name(f"{commit}.tmp")
        newest = ("--depth", "1", "--branch", source.ref)
        shallow = source.shallow and not COMMIT.match(source.ref)
        try:
            if not (shallow and self._fetched(source, commit, temporary, *newest, check=False)):
                self._fetched(source, commit, temporary, "--no-checkout")
            _remove(destination)
            temporary.rename(destination)
        finally:
            _remove(temporary)
        return destination

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
