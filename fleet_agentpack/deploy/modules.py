"""Modules as they will be deployed: upstream files with overlays applied, checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.gitstore import GitStore, Upstream
from fleet_agentpack.deploy.lockfile import Lockfile, PinnedCommit, PinnedModule
from fleet_agentpack.deploy.manifest import Module, Scope
from fleet_agentpack.deploy.model import Layer
from fleet_agentpack.deploy.overlays import Overlays
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.trees import METADATA_DIR, Tree, TreeEntry, list_files, tree_hash
from fleet_agentpack.deploy.validate import relevant, validate


class ModuleFiles(NamedTuple):
    """A module's files as they will be deployed."""

    user: Tree
    project: Tree  # the same, unless the project has an overlay of its own
    warnings: tuple[str, ...]  # about overlays whose upstream has changed

    def of(self, scope: Scope) -> Tree:
        """The files for one of the two."""
        return self.user if scope == "user" else self.project


class Stage(NamedTuple):
    """A module's files with the layers up to one."""

    layer: Layer
    tree: Tree
    overlay: str = ""  # its directory, if the layer is one

    def patch_of(self, name: str) -> str:
        """The patch that makes a file of this layer."""
        return f"{self.overlay}/{METADATA_DIR}/patches/{name}.patch"


@dataclass(frozen=True)
class Modules:
    """Reads modules with their overlays applied."""

    repo: Path
    store: GitStore
    lockfile: Lockfile | None
    overlays: Overlays
    cache: RepoCache

    def read(self, module: Module) -> ModuleFiles:
        """A module's files. Raises `DeployError` when they cannot be read."""
        pin = self.lockfile.pin(module) if self.lockfile else None
        source = self._upstream(module, pin[1] if pin else None)
        reader = self.cache.reader
        upstream = reader.read(source.path, source.boundaries)
        if pin:
            self._verify(pin[0], source, upstream)
        of_user, of_project = self.overlays.lay(module.id, upstream, reader, self.cache.made)
        listed = partial(list_files, source.path, reader.hashes, source.boundaries)
        warnings = tuple(self.overlays.drift(module.id, listed, reader))
        known = self._known(module, "user", of_user)
        same = of_project is of_user
        return ModuleFiles(
            known, known if same else self._known(module, "project", of_project), warnings
        )

    def upstream(self, module: Module) -> tuple[Upstream, Tree, list[TreeEntry]]:
        """A module's own files, without overlays: where, what, and as a list."""
        pin = self.lockfile.pin(module) if self.lockfile else None
        source = self._upstream(module, pin[1] if pin else None)
        reader = self.cache.reader
        tree = reader.read(source.path, source.boundaries)
        return source, tree, list_files(source.path, reader.hashes, source.boundaries)

    def stages(self, module: Module, scope: Scope) -> list[Stage]:
        """A module's own files, then with each of the overlays that apply for a scope."""
        _, upstream, _ = self.upstream(module)
        laid = self.overlays.stages(module.id, upstream, self.cache.reader, self.cache.made)
        found = [Stage(overlay.scope, tree, overlay.directory) for overlay, tree in laid]
        kept = [each for each in found if scope == "project" or each.layer != "project"]
        return [Stage("upstream", upstream), *kept]

    def check(self, module: Module, scope: Scope, tree: Tree) -> None:
        """Raises `DeployError` when a module's files are not what its type needs."""
        looked_at, valid = relevant(module, tree), self.cache.valid
        if looked_at not in (valid.get((module.id, "user")), valid.get((module.id, "project"))):
            validate(module, tree)
        valid[module.id, scope] = looked_at

    def _known(self, module: Module, scope: Scope, tree: Tree) -> Tree:
        """The very tree of an earlier call, if it is the same."""
        before = self.cache.trees.get((module.id, scope))
        if before is not None and before == tree:
            return before
        self.cache.trees[module.id, scope] = tree
        return tree

    def _upstream(self, module: Module, pinned: PinnedCommit | None) -> Upstream:
        """A module's source on disk; a pinned one that is not there is cloned."""
        git = module.source.git
        if git is None:
            return local_upstream(module, self.repo)
        if pinned is None:
            return self.store.at_hand(module, git)
        return self.store.checkout(module, pinned.source, pinned.commit)

    def _verify(self, pinned: PinnedModule, source: Upstream, tree: Tree) -> None:
        """Refuse a checkout that is not what was pinned; an unchanged tree is not hashed again."""
        known = self.cache.verified.get(pinned.id)
        if known is not None and known[0] == pinned.sha256 and known[1] is tree:
            return
        if tree_hash(list_files(source.path, self.cache.reader.hashes, source.boundaries)) != (
            pinned.sha256
        ):
            raise changed_checkout(pinned, source)
        self.cache.verified[pinned.id] = (pinned.sha256, tree)


def local_upstream(module: Module, repo: Path) -> Upstream:
    """The source of a module that is not from git."""
    path = os.path.normpath(os.path.join(repo, module.source.local_path or ""))
    return Upstream(path, (path, str(repo)))


def changed_checkout(pinned: PinnedModule, source: Upstream) -> DeployError:
    """The refusal of a checkout whose files are not those that were pinned."""
    return DeployError.because(
        "store_content_mismatch",
        f"module {pinned.id}: the files in {source.path} are not those that the lockfile pins",
        module_id=pinned.id,
        path=source.path,
        hint="`fleet-agentpack update` fetches them again",
    )
