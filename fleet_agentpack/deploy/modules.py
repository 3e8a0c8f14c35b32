"""Modules as they will be deployed: upstream files with overlays applied, checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fleet_agentpack.deploy.gitstore import GitStore, module_directory
from fleet_agentpack.deploy.lockfile import Lockfile
from fleet_agentpack.deploy.manifest import Module
from fleet_agentpack.deploy.overlays import Overlays
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.trees import Tree, list_files
from fleet_agentpack.deploy.validate import relevant, validate


@dataclass(frozen=True)
class Upstream:
    """Where a module's own files are, and where links in it may point."""

    path: str
    boundaries: tuple[str, ...]
    commit: str | None = None


class ModuleFiles(NamedTuple):
    """A module's files as they will be deployed."""

    tree: Tree
    warnings: tuple[str, ...]  # about overlays whose upstream has changed


class Modules:
    """Reads modules with their overlays applied."""

    def __init__(
        self,
        repo: Path,
        store: GitStore,
        lockfile: Lockfile | None,
        overlays: Overlays,
        cache: RepoCache,
    ) -> None:
        self._repo = repo
        self._store = store
        self._lockfile = lockfile
        self._overlays = overlays
        self._cache = cache

    def read(self, module: Module) -> ModuleFiles:
        """A module's files. Raises `DeployError` when it cannot be used."""
        source = upstream_of(module, self._repo, self._store, self._lockfile)
        reader = self._cache.reader
        upstream = reader.read(source.path, source.boundaries)
        tree = self._overlays.lay(module.id, upstream, reader, self._cache.made)
        warnings: tuple[str, ...] = ()
        if self._overlays.has_baseline(module.id):
            listed = list_files(source.path, reader.hashes, source.boundaries)
            warnings = tuple(self._overlays.drift(module.id, listed, reader))
        self._check(module, tree)
        before = self._cache.trees.get(module.id)
        if before is not None and before == tree:
            return ModuleFiles(before, warnings)
        self._cache.trees[module.id] = tree
        return ModuleFiles(tree, warnings)

    def _check(self, module: Module, tree: Tree) -> None:
        if self._cache.trees.get(module.id) is tree and module.id in self._cache.valid:
            return
        looked_at = relevant(module, tree)
        if self._cache.valid.get(module.id) != looked_at:
            validate(module, tree)
            self._cache.valid[module.id] = looked_at


def upstream_of(module: Module, repo: Path, store: GitStore, lockfile: Lockfile | None) -> Upstream:
    """A module's source on disk; a git module is cloned if needed."""
    local = module.source.local_path
    if local is not None:
        path = os.path.normpath(f"{repo}/{local}" if local[:1] != "/" else local)
        return Upstream(path, (path, str(repo)))
    checkout = store.locked(module, lockfile)
    source = (lockfile.commits.get(module.id) if lockfile else None) or module.source.git
    subdir = source.subdir.strip("/") if source else ""
    path = module_directory(module, checkout, subdir)
    return Upstream(path, (str(checkout.directory),), checkout.commit)
