"""What a process remembers about a config repo between two calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fleet_agentpack.deploy.desired import Desired, Part
from fleet_agentpack.deploy.manifest import Manifest, Module, Scope
from fleet_agentpack.deploy.model import Blob, Root
from fleet_agentpack.deploy.project import Project
from fleet_agentpack.deploy.recorded import KnownManifests
from fleet_agentpack.deploy.trees import Tree, TreeReader
from fleet_agentpack.kit.stamps import Remembered

Trees = dict[tuple[str, Scope], Tree]  # by module id, for the user's and the project's files


class KnownPart(NamedTuple):
    """What one module is in one root, with what it was made from."""

    module: Module
    tree: Tree
    part: Part


KnownParts = dict[tuple[Root, str], KnownPart]  # by the module's id


@dataclass(frozen=True)
class KnownDesired:
    """A desired state with what it was made from."""

    key: object
    trees: Trees
    desired: Desired
    parts: KnownParts

    def is_current(self, key: object, trees: Trees) -> bool:
        """Whether it would be made again from the very same trees."""
        same = self.key == key and self.trees.keys() == trees.keys()
        return same and all(self.trees[name] is tree for name, tree in trees.items())


@dataclass
class RepoCache:
    """Everything here can be computed again, and ends with the process."""

    reader: TreeReader
    made: dict[Any, Blob] = field(default_factory=dict)  # generated, by what it was made from
    trees: Trees = field(default_factory=dict)
    valid: dict[tuple[str, Scope], tuple[str, ...]] = field(default_factory=dict)
    verified: dict[str, tuple[str, Tree]] = field(default_factory=dict)  # against the lockfile
    desired: dict[str, KnownDesired] = field(default_factory=dict)  # by the request's target
    manifests: KnownManifests = field(default_factory=dict)
    manifest: dict[str, Manifest] = field(default_factory=dict)  # by text
    project: Remembered[Project] = field(default_factory=Remembered)

    def forget_old_contents(self) -> None:
        """Drop generated contents once there are far more than the repo has modules."""
        if len(self.made) > 100 + 4 * len(self.trees):
            self.made.clear()
