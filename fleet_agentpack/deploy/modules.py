"""Modules as they will be deployed: upstream files with overlays applied, checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fleet_agentpack.deploy.gitstore import GitStore, Upstream
from fleet_agentpack.deploy.lockfile import Lockfile
from fleet_agentpack.deploy.manifest import Module
from fleet_agentpack.deploy.overlays import Overlays
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.trees import Tree, list_files
from fleet_agentpack.deploy.validate import relevant, validate


class ModuleFiles(NamedTuple):
    """A module's files as they will be deployed."""

    tree: Tree
    warnings: tuple[str, ...]  # about overlays whose upstream has changed


@dataclass(frozen=True)
class Modules:
    """Reads modules with their overlays applied."""

    repo: Path
    store: GitStore
    lockfile: Lockfile | None
    overlays: Overlays
    cache: RepoCache

    def read(self, module: Module) -> ModuleFiles:
        """A module's files. Raises `DeployError` when it cannot be used."""
        source = upstream_of(module, self.repo, self.store, self.lockfile)
        reader = self.cache.reader
        upstream = reader.read(source.path, source.boundaries)
        tree = self.overlays.lay(module.id, upstream, reader, self.cache.made)
        listed = partial(list_files, source.path, reader.hashes, source.boundaries)
        warnings = tuple(self.overlays.drift(module.id, listed, reader))
        self._check(module, tree)
        before = self.cache.trees.get(module.id)
        if before is not None and before == tree:
            return ModuleFiles(before, warnings)
        self.cache.trees[module.id] = tree
        return ModuleFiles(tree, warnings)

    def _check(self, module: Module, tree: Tree) -> None:
        if self.cache.trees.get(module.id) is tree and module.id in self.cache.valid:
            return
        looked_at = relevant(module, tree)
        if self.cache.valid.get(module.id) != looked_at:
            validate(module, tree)
            self.cache.valid[module.id] = looked_at


def upstream_of(module: Module, repo: Path, store: GitStore, lockfile: Lockfile | None) -> Upstream:
    """A module's source on disk; a git module is cloned if needed."""
    if module.source.git is not None:
        return store.locked(module, module.source.git, lockfile)
    path = os.path.normpath(os.path.join(repo, module.source.local_path or ""))
    return Upstream(path, (path, str(repo)))
