"""Modules as they will be deployed: upstream files with the overlays on, checked, never copied."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet_agentpack.deploy.gitstore import GitStore, module_directory
from fleet_agentpack.deploy.home import Project
from fleet_agentpack.deploy.lockfile import Lockfile
from fleet_agentpack.deploy.manifest import Manifest, Module
from fleet_agentpack.deploy.model import Blob
from fleet_agentpack.deploy.overlays import Overlays
from fleet_agentpack.deploy.trees import Tree, TreeReader, list_files
from fleet_agentpack.deploy.validate import relevant, validate
from fleet_agentpack.kit.stamps import Remembered


@dataclass
class Memory:
    """What a process remembers between two calls about a repo; all of it can be made again."""

    reader: TreeReader
    made: dict[Any, Blob] = field(default_factory=dict)  # contents that we generate
    trees: dict[str, Tree] = field(default_factory=dict)  # by module id
    valid: dict[str, tuple[str, ...]] = field(default_factory=dict)  # module id → what was checked
    desired: dict[Any, Any] = field(default_factory=dict)
    records: dict[str, Any] = field(default_factory=dict)  # target manifests, by path and stat
    manifest: dict[str, Manifest] = field(default_factory=dict)
    project: Remembered[Project] = field(default_factory=Remembered)

    def forget_old_contents(self) -> None:
        """Let generated contents go once there are far more than the repo has modules."""
        if len(self.made) > 100 + 4 * len(self.trees):
            self.made.clear()


@dataclass(frozen=True)
class Upstream:
    """Where a module's own files are, and where links inside it may lead."""

    path: str
    boundaries: tuple[str, ...]
    commit: str | None = None


class Modules:
    """Gives the final tree of each module."""

    def __init__(
        self,
        repo: Path,
        store: GitStore,
        lockfile: Lockfile | None,
        overlays: Overlays,
        memory: Memory,
    ) -> None:
        self._repo = repo
        self._store = store
        self._lockfile = lockfile
        self._overlays = overlays
        self._memory = memory
        self.warnings: list[str] = []

    def tree(self, module: Module) -> Tree:
        """A module's files. Raises `DeployError` when it cannot be used."""
        source = upstream_of(module, self._repo, self._store, self._lockfile)
        reader = self._memory.reader
        upstream = reader.read(source.path, source.boundaries)
        tree = self._overlays.lay(module.id, upstream, reader, self._memory.made)
        if self._overlays.has_baseline(module.id):
            listed = list_files(source.path, reader.hashes, source.boundaries)
            self.warnings.extend(self._overlays.drift(module.id, listed, reader))
        self._check(module, tree)
        before = self._memory.trees.get(module.id)
        if before is not None and before == tree:
            return before
        self._memory.trees[module.id] = tree
        return tree

    def _check(self, module: Module, tree: Tree) -> None:
        if self._memory.trees.get(module.id) is tree and module.id in self._memory.valid:
            return
        looked_at = relevant(module, tree)
        if self._memory.valid.get(module.id) != looked_at:
            validate(module, tree)
            self._memory.valid[module.id] = looked_at


def upstream_of(module: Module, repo: Path, store: GitStore, lockfile: Lockfile | None) -> Upstream:
    """A module's source on this disk; a git module is cloned when it is not there yet."""
    local = module.source.local_path
    if local is not None:
        path = os.path.normpath(f"{repo}/{local}" if local[:1] != "/" else local)
        return Upstream(path, (path, str(repo)))
    checkout = store.locked(module, lockfile)
    pinned = lockfile.modules.get(module.id) if lockfile else None
    source = pinned.git if pinned and pinned.git else module.source.git
    subdir = source.subdir.strip("/") if source else ""
    path = module_directory(module, checkout, subdir)
    return Upstream(path, (str(checkout.directory),), checkout.commit)
