"""A light English stemmer: forms of one word share a stem, which need not be a word itself."""

from __future__ import annotations

import re

SHORTEST_STEM = 3

_VOWEL = re.compile(r"[aeiouy]")
_DOUBLED = re.compile(r"([bdfgmnprt])\1\Z")
_PLURALS = (
    ("sses", "ss"),
    ("ies", "y"),
    ("xes", "x"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("zes", "z"),
)
_KEEPS_ITS_S = ("ss", "us", "is")
# Suffix, and how long the stem before it must be.
_DERIVED = (
    *(("ization", 3), ("isation", 3), ("ication", 4), ("ation", 5), ("ition", 4)),
    *(
        ("ement", 4),
        ("ment", 4),
        ("izer", 3),
        ("ize", 3),
        ("ise", 4),
        ("ate", 5),
        ("at", 5),
        ("iz", 3),
        ("able", 4),
        ("ible", 4),
        ("ness", 4),
    ),
    *(("ful", 4), ("ive", 4), ("ion", 4), ("ly", 4), ("al", 5), ("is", 4)),
)


def stem(word: str) -> str:
    """The stem of a lower-case word; a word with other than a to z is its own."""
    if len(word) <= SHORTEST_STEM or not (word.isascii() and word.isalpha()):
        return word
    bare = _without_ending(_singular(word))
    for _ in range(2):  # documentation → document → docu, as document does
        shorter = _without_derivation(bare)
        if shorter == bare:
            break
        bare = shorter
    return _smooth(bare)


def _singular(word: str) -> str:
    for plural, singular in _PLURALS:
        if word.endswith(plural) and len(word) > len(plural) + 1:
            return word.removesuffix(plural) + singular
    if word.endswith("s") and not word.endswith(_KEEPS_ITS_S):
        return word[:-1]
    return word


def _without_ending(word: str) -> str:
    for ending in ("ing", "ed"):
        cut = word.removesuffix(ending)
        if cut != word and len(cut) >= SHORTEST_STEM and _VOWEL.search(cut):
            return _DOUBLED.sub(r"\1", cut)
    return word


def _without_derivation(word: str) -> str:
    for suffix, shortest in _DERIVED:
        if word.endswith(suffix) and len(word) - len(suffix) >= shortest:
            return word[: -len(suffix)]
    return word


def _smooth(word: str) -> str:
    """Drop the last vowel that some forms have and others lack; British and American alike."""
    if len(word) > SHORTEST_STEM and word[-1] in "eyi":
        word = word[:-1]
    return f"{word[:-1]}s" if word.endswith("z") and len(word) > SHORTEST_STEM else word
