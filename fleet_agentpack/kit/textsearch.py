"""Ranks short texts by TF-IDF and cosine; all work on the texts is done when the index is made."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Tokeniser = Callable[[str], list[str]]

# Sums of the same numbers in another order differ in the last digits; rounding keeps ties ties.
SCORE_DIGITS = 12
_SLACK = 1e-9

_WORD = re.compile(r"[^\W_]+")


class Match(NamedTuple):
    """A text that shares a word with the query, by its position, and its cosine above 0 up to 1."""

    position: int
    score: float


class _Term(NamedTuple):
    idf: float
    peak: float  # the greatest weight below
    weights: dict[int, float]  # position of a text → the term's share of its unit vector


def words(text: str) -> list[str]:
    """Lower-case words: runs of letters and digits, so hyphens and underscores split."""
    return _WORD.findall(text.lower())


class TextIndex:
    """An inverted index over texts; immutable, so any number of threads may ask it."""

    def __init__(self, texts: Iterable[str], tokenise: Tokeniser = words) -> None:
        self._tokenise = tokenise
        self._terms = _index([Counter(tokenise(text)) for text in texts])

    def best(self, query: str, limit: int = 3) -> list[Match]:
        """The texts most like the query, best first, ties in the order of the texts."""
        scores = _accumulate(self._weighted(query), limit)
        rounded = ((min(1.0, round(score, SCORE_DIGITS)), at) for at, score in scores.items())
        ranked = heapq.nsmallest(limit, ((-score, at) for score, at in rounded if score > 0))
        return [Match(at, -score) for score, at in ranked]

    def _weighted(self, query: str) -> list[tuple[float, _Term]]:
        counts = Counter(self._tokenise(query))
        known = [
            (n * self._terms[t].idf, self._terms[t]) for t, n in counts.items() if t in self._terms
        ]
        norm = math.sqrt(sum(weight * weight for weight, _ in known))
        return [(weight / norm, term) for weight, term in known]


def _index(texts: Sequence[Counter[str]]) -> dict[str, _Term]:
    frequency = Counter(term for counts in texts for term in counts)
    idf = {t: math.log((1 + len(texts)) / (1 + df)) + 1 for t, df in frequency.items()}
    weights: dict[str, dict[int, float]] = {term: {} for term in frequency}
    for position, counts in enumerate(texts):
        norm = math.sqrt(sum((n * idf[term]) ** 2 for term, n in counts.items()))
        for term, n in counts.items():
            weights[term][position] = n * idf[term] / norm
    return {t: _Term(idf[t], max(weights[t].values()), weights[t]) for t in frequency}


def _accumulate(query: list[tuple[float, _Term]], limit: int) -> dict[int, float]:
    """Scores of every text that may be among the best.

    Terms come in the order of what they can add. Once the best so far cannot be reached by the
    terms that are left, those terms only refine texts that are already known, which spares the
    long lists of common words.
    """
    query = sorted(query, key=lambda pair: -pair[0] * pair[1].peak)
    left = sum(weight * term.peak for weight, term in query)
    scores: dict[int, float] = {}
    for weight, term in query:
        bar = _bar(scores, limit) - _SLACK
        if bar > left:
            scores = _refined(scores, weight, term, bar - left)
        else:
            known = scores.get
            for at, share in term.weights.items():
                scores[at] = known(at, 0.0) + weight * share
        left -= weight * term.peak
    return scores


def _bar(scores: dict[int, float], limit: int) -> float:
    """The score of the last of the best so far; 0 while there are too few."""
    if len(scores) < limit or limit < 1:
        return 0.0
    return heapq.nlargest(limit, scores.values())[-1]


def _refined(
    scores: dict[int, float], weight: float, term: _Term, least: float
) -> dict[int, float]:
    share = term.weights.get
    return {at: score + weight * share(at, 0.0) for at, score in scores.items() if score >= least}
