"""Ranks short texts by TF-IDF and cosine; all work on the texts is done when the index is made."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from fleet_agentpack.kit.near_words import NearWords
from fleet_agentpack.kit.terms import terms

Tokeniser = Callable[[str], Mapping[str, float]]  # a text's terms and how much each counts

# Sums of the same numbers in another order differ in the last digits; rounding keeps ties ties.
SCORE_DIGITS = 12
_SLACK = 1e-9
# Three neighbours of full likeness weigh no more than the word: three times 0.57² is below 1.
NEIGHBOUR_WEIGHT = 0.57
# "run a marathon" shares a verb with many commands and is about none of them.
FOREIGN_WEIGHT = 2.2


class Match(NamedTuple):
    """A text that shares a term with the query, by its position, and its cosine above 0 up to 1."""

    position: int
    score: float


class _Term(NamedTuple):
    idf: float
    peak: float  # the greatest weight below
    weights: dict[int, float]  # position of a text → the term's share of its unit vector


class TextIndex:
    """An inverted index over texts; immutable, so any number of threads may ask it."""

    def __init__(self, texts: Iterable[str], tokenise: Tokeniser = terms) -> None:
        self._tokenise = tokenise
        vectors = [tokenise(text) for text in texts]
        self._terms = _index(vectors)
        self._rarest = _idf(0, len(vectors))

    def best(self, query: str, limit: int = 3) -> list[Match]:
        """The texts most like the query, best first, ties in the order of the texts."""
        weights = self.weighted(query)
        scores = _accumulate([(w, self._terms[name]) for name, w in weights.items()], limit)
        rounded = ((min(1.0, round(score, SCORE_DIGITS)), at) for at, score in scores.items())
        ranked = heapq.nsmallest(limit, ((-score, at) for score, at in rounded if score > 0))
        return [Match(at, -score) for score, at in ranked]

    def weighted(self, query: str) -> dict[str, float]:
        """The known terms of a query, those of its unknown words' neighbours included.

        An unknown word counts in the query's length as the rarest term would, so a text that
        shares one word of five scores low; a foreign one, without any neighbour, counts more.
        Its neighbours together never count more than it does.
        """
        weights: defaultdict[str, float] = defaultdict(float)
        square = 0.0
        for name, count in self._tokenise(query).items():
            if name in self._terms:
                weight = count * self._terms[name].idf
                weights[name] += weight
                square += weight * weight
            else:
                neighbours = list(self._near_words.near(name))
                square += (count * self._rarest * (1 if neighbours else FOREIGN_WEIGHT)) ** 2
                for near, likeness in neighbours:
                    idf = self._terms[near].idf
                    weights[near] += count * NEIGHBOUR_WEIGHT * likeness * idf
        norm = math.sqrt(square)
        return {name: weight / norm for name, weight in weights.items()}

    @cached_property
    def _near_words(self) -> NearWords:
        return NearWords(self._terms)


def _idf(frequency: int, texts: int) -> float:
    return math.log((1 + texts) / (1 + frequency)) + 1


def _index(texts: Sequence[Mapping[str, float]]) -> dict[str, _Term]:
    frequency = Counter(term for counts in texts for term in counts)
    idf = {term: _idf(df, len(texts)) for term, df in frequency.items()}
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
    scores: dict[int, float] = {}
    for (weight, term), left in zip(query, _most_left(query), strict=True):
        bar = _bar(scores, limit) - _SLACK
        if bar > left:
            scores = _refined(scores, weight, term, bar - left)
        else:
            known = scores.get
            for at, share in term.weights.items():
                scores[at] = known(at, 0.0) + weight * share
    return scores


def _most_left(query: list[tuple[float, _Term]]) -> list[float]:
    """The most that each term and those after it can add to any text.

    That is no more than the sum of the terms' greatest parts, and, since a text's vector has
    length 1, no more than the length of what is left of the query's.
    """
    most: list[float] = []
    peaks = squares = 0.0
    for weight, term in reversed(query):
        peaks += weight * term.peak
        squares += weight * weight
        most.append(min(peaks, math.sqrt(squares)))
    return most[::-1]


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
