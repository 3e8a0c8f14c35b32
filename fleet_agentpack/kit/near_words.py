"""Finds the known words that an unknown one may have been meant for, by pieces of three letters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

SHORTEST_WORD = 3
MOST_WORDS = 3
LEAST_LIKENESS = 0.33


class NearWords:
    """A vocabulary by the pieces of its words; immutable once made."""

    def __init__(self, vocabulary: Iterable[str]) -> None:
        self._sizes: dict[str, int] = {}
        self._by_piece: defaultdict[str, list[str]] = defaultdict(list)
        for word in vocabulary:
            if _can_be_mistyped(word):
                own = pieces(word)
                self._sizes[word] = len(own)
                for piece in own:
                    self._by_piece[piece].append(word)

    def near(self, word: str) -> list[tuple[str, float]]:
        """The words most like a word, each with its likeness (Dice's, 0 to 1), best first."""
        if not _can_be_mistyped(word):
            return []
        own = pieces(word)
        shared = Counter(known for piece in own for known in self._by_piece.get(piece, ()))
        likeness = ((2 * n / (len(own) + self._sizes[known]), known) for known, n in shared.items())
        best = sorted((-score, known) for score, known in likeness if score >= LEAST_LIKENESS)
        return [(known, -score) for score, known in best[:MOST_WORDS]]


def pieces(word: str) -> set[str]:
    """Runs of three letters, the word's ends marked."""
    fenced = f"^{word}$"
    return {fenced[at : at + 3] for at in range(len(fenced) - 2)}


def _can_be_mistyped(word: str) -> bool:
    """Whether a term is a word long enough to be told from others by its pieces."""
    return len(word) >= SHORTEST_WORD and word.isascii() and word.isalpha()
