"""What a scan finds: things that can become modules, things that cannot, and secrets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet_agentpack.deploy.importing.places import Place
from fleet_agentpack.deploy.importing.results import SecretRow, SkippedRow
from fleet_agentpack.deploy.manifest import Scope
from fleet_agentpack.deploy.trees import Tree
from fleet_agentpack.deploy.validate import INSTRUCTIONS


@dataclass(frozen=True)
class Item:
    """A file, or the directory of a skill, that can become a module."""

    place: Place
    path: str
    name: str  # below the place's directory
    tree: Tree = field(repr=False)  # as the module will have it

    @property
    def kind(self) -> str:
        """The type of the module."""
        return self.place.area.takes

    @property
    def target(self) -> str:
        """The tool that it was found in."""
        return self.place.target

    @property
    def scope(self) -> Scope:
        """Whose file it is."""
        return self.place.scope

    @property
    def digest(self) -> str:
        """One hash for all that it consists of."""
        lines = sorted(f"{name}\0{b.sha256}\0{b.executable}" for name, b in self.tree.items())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def text(self) -> str:
        """Its main text, for comparing it with others."""
        main = self.tree.get(INSTRUCTIONS) or self.tree.get("SKILL.md")
        return (main or next(iter(self.tree.values()))).read().decode("utf-8", "replace")


@dataclass(frozen=True)
class Found:
    """Everything that a scan has seen."""

    items: tuple[Item, ...] = ()
    skipped: tuple[SkippedRow, ...] = ()
    secrets: tuple[SecretRow, ...] = ()


def outputs_of(items: Iterable[Item]) -> Mapping[tuple[str, str], Item]:
    """The items by target and by each file that deploying them would write."""
    found: dict[tuple[str, str], Item] = {}
    for item in items:
        if item.place.reading.shape == "directories":
            found |= {(item.target, f"{item.path}/{name}"): item for name in item.tree}
        else:
            found[item.target, item.path] = item
    return found
