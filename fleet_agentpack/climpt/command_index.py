"""A registry, indexed: commands by text and by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fleet_agentpack.climpt.registry import Command, merged
from fleet_agentpack.climpt.results import Match
from fleet_agentpack.kit.textsearch import TextIndex

RESULTS = 3
# What only shares a few letters with the query scores below this.
LEAST_SCORE = 0.025


class CommandIndex:
    """The commands of one registry, indexed once; immutable."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.size = len(commands)
        self._variants: dict[tuple[str, str, str], list[Command]] = {}
        for command in commands:
            self._variants.setdefault(command.key, []).append(command)
        self._first = [variants[0] for variants in self._variants.values()]
        self._texts = TextIndex(command.text for command in self._first)

    def search(self, query: str) -> list[Match]:
        """The commands most like a query, best first, each once."""
        best = [(self._first[i], score) for i, score in self._texts.best(query, RESULTS)]
        return [
            Match(*command.key, command.description, score)
            for command, score in best
            if score >= LEAST_SCORE
        ]

    def best_score(self, query: str) -> float:
        """How well the best command fits, shown or not."""
        return max((score for _, score in self._texts.best(query, 1)), default=0.0)

    def domains(self) -> dict[str, int]:
        """How many commands each domain (c1) has."""
        return Counter(command.c1 for command in self._first)

    def all(self) -> list[Command]:
        """Every command once, with the options of its variants merged, in the registry's order."""
        return [merged(variants) for variants in self._variants.values()]

    def get(self, c1: str, c2: str, c3: str) -> Command | None:
        """The command of that exact name with the options of its variants merged."""
        variants = self._variants.get((c1, c2, c3))
        return merged(variants) if variants else None

    def named(self, c1: str | None, c2: str | None) -> list[Command]:
        """The commands of a domain and an action, each once; all of them for None."""
        return [
            command
            for command in self._first
            if c1 in (None, command.c1) and c2 in (None, command.c2)
        ]

    def similar(self, c1: str, c2: str, c3: str) -> list[str]:
        """Names of commands that the caller may have meant."""
        return [match.name for match in self.search(f"{c1} {c2} {c3}")]
