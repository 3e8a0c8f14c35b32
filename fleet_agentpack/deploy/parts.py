"""What the chosen modules are in each root; a skill's part is made again only when it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fleet_agentpack.deploy.desired import Part
from fleet_agentpack.deploy.manifest import Module, Scope
from fleet_agentpack.deploy.model import Root
from fleet_agentpack.deploy.repo_cache import KnownPart, KnownParts, Trees
from fleet_agentpack.deploy.targets.target import Area, Chosen, Made


class Parts:
    """Makes parts, with the help of those that were made last."""

    def __init__(self, made: Made, before: KnownParts) -> None:
        self.used: KnownParts = {}
        self._made = made
        self._before = before

    def of(
        self, root: Root, area: Area, chosen: Mapping[Scope, list[Module]], trees: Trees
    ) -> Iterable[Part]:
        """The parts of a root that an area's modules are."""
        taken = [
            (module, trees[module.id, area.scope])
            for module in chosen[area.scope]
            if module.type == area.takes and module.goes_to(root.target, area.scope)
        ]
        if area.takes == "skill":  # a directory of its own, and perhaps thousands of files
            return self._one_by_one(root, area, taken)
        return area.contents(root, taken, self._made)

    def _one_by_one(self, root: Root, area: Area, taken: Chosen) -> Iterator[Part]:
        for module, tree in taken:
            known = self._before.get((root, module.id))
            if known is None or known.module is not module or known.tree is not tree:
                [part] = area.contents(root, [(module, tree)], self._made)
                known = KnownPart(module, tree, part)
            self.used[root, module.id] = known
            yield known.part
