"""What a text is searched by: stems, the concepts they stand for, pairs of CJK characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache

from fleet_agentpack.kit.concepts import concepts
from fleet_agentpack.kit.stemmer import stem

CONCEPT_WEIGHT = 0.6  # how much what a word means counts beside the word

_CJK = r"\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uff66-\uff9f々ー"
_RUN = re.compile(rf"[{_CJK}]+|(?:(?![{_CJK}])[^\W_])+")
_IS_CJK = re.compile(rf"[{_CJK}]")
_HIRAGANA = re.compile(r"[\u3041-\u309f]+")  # particles and endings
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_STOP_WORDS = """
a about all also an and any are as at be because been but by can could did do does for from get
had has have he her here him his how i if in into is it its just let like me my need no not of
on or our out please she should so some than that the their them then there these they this
those to too up us want was we were what when where which while who will with would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

Terms = dict[str, float]


def terms(text: str) -> Terms:
    """The terms of a text, each with its weight."""
    found: Terms = {}
    for word in tokens(text):
        for term, weight in _terms_of(word):
            found[term] = found.get(term, 0.0) + weight
    return found


def tokens(text: str) -> Iterator[str]:
    """Runs of letters and digits, lower-case; other scripts than CJK split at capitals too."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    for run in _RUN.findall(_CAMEL.sub(" ", text)):
        yield run.casefold()


@lru_cache(maxsize=20_000)
def _terms_of(word: str) -> tuple[tuple[str, float], ...]:
    if _IS_CJK.match(word):
        return tuple(_cjk_terms(word))
    word = _plain(word)
    return () if word in STOP_WORDS else tuple(_word_terms(word))


def _plain(word: str) -> str:
    """A word without accents."""
    if word.isascii():
        return word
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


def _word_terms(word: str) -> Iterator[tuple[str, float]]:
    root = stem(word)
    yield root, 1.0
    for concept in _by_stem().get(root, ()):
        yield concept, CONCEPT_WEIGHT


def _cjk_terms(run: str) -> Iterator[tuple[str, float]]:
    for part in _HIRAGANA.sub(" ", run).split():
        if len(part) == 1:
            yield part, 1.0
        for at in range(len(part) - 1):
            yield part[at : at + 2], 1.0
    for word, names in _cjk_concepts().items():
        if word in run:
            yield from ((name, 1.0) for name in names)


@lru_cache(maxsize=1)
def _by_stem() -> Mapping[str, tuple[str, ...]]:
    return {stem(word): names for word, names in concepts().items() if word.isascii()}


@lru_cache(maxsize=1)
def _cjk_concepts() -> Mapping[str, tuple[str, ...]]:
    return {word: names for word, names in concepts().items() if not word.isascii()}
