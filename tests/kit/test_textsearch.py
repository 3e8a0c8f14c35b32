"""Ranking by TF-IDF and cosine, against a plain implementation of the same formula."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.kit.terms import terms
from fleet_agentpack.kit.textsearch import FOREIGN_WEIGHT, Match, TextIndex


def plain_cosines(texts: list[str], query: str) -> list[float]:
    """The cosine of every text with the query, computed the long way."""
    vectors = [terms(text) for text in texts]
    frequency = Counter(term for each in vectors for term in each)

    def unit(vector: dict[str, float]) -> dict[str, float]:
        idf = {t: math.log((1 + len(texts)) / (1 + frequency[t])) + 1 for t in vector}
        foreign = {t: 1 if frequency[t] else FOREIGN_WEIGHT for t in vector}
        weighted = {term: n * idf[term] * foreign[term] for term, n in vector.items()}
        norm = math.sqrt(sum(x * x for x in weighted.values()))
        return {term: x / norm for term, x in weighted.items()}

    asked = unit(terms(query))
    return [sum(x * asked.get(t, 0) for t, x in unit(vector).items()) for vector in vectors]


few_words = st.lists(
    st.sampled_from(["git", "commit", "branch", "merges", "the", "zzzz", "マージ", "release"]),
    max_size=8,
)
texts_of_few_words = st.lists(few_words.map(" ".join), max_size=40)


@given(texts_of_few_words, few_words.map(" ".join), st.integers(1, 5))
def test_the_best_are_those_of_the_formula(texts: list[str], query: str, limit: int) -> None:
    found = TextIndex(texts).best(query, limit)
    cosines = plain_cosines(texts, query)
    best = sorted((score for score in cosines if score > 0), reverse=True)[:limit]
    assert [match.score for match in found] == pytest.approx(best)
    assert [cosines[match.position] for match in found] == pytest.approx(best)
    assert len({match.position for match in found}) == len(found)


@given(st.lists(st.text(max_size=20), max_size=10), st.text(max_size=20))
def test_any_text_may_be_indexed_and_asked_for(texts: list[str], query: str) -> None:
    found = TextIndex(texts).best(query)
    assert all(0 < match.score <= 1 for match in found)
    assert sorted(found, key=lambda match: (-match.score, match.position)) == found


def test_a_text_is_most_like_itself() -> None:
    texts = ["merge the branch", "group changes and commit", "list the branches"]
    assert TextIndex(texts).best("group changes and commit", 1) == [Match(1, 1.0)]


def test_words_about_something_else_make_a_match_weak() -> None:
    index = TextIndex(["run tests", "run the formatter", "show the log"])
    (match, *_) = index.best("run a marathon")
    assert 0 < match.score < 0.25 < index.best("run")[0].score


def test_ties_keep_the_order_of_the_texts() -> None:
    index = TextIndex(["x y", "z", "y x", "x y"])
    assert [match.position for match in index.best("x y")] == [0, 2, 3]
    assert [match.position for match in index.best("y x", 2)] == [0, 2]


def test_texts_without_a_common_word_are_not_found() -> None:
    index = TextIndex(["merge the branch"])
    assert index.best("commit") == index.best("") == index.best("   ") == []
    assert TextIndex([]).best("commit") == []


def test_a_common_word_does_not_hide_a_better_text_found_late() -> None:
    texts = ["common"] * 500 + ["rare common", "rare"]
    assert [match.position for match in TextIndex(texts).best("rare common", 2)] == [500, 501]


def test_a_query_tokenises_nothing_but_itself() -> None:
    seen: list[str] = []

    def spy(text: str) -> dict[str, float]:
        seen.append(text)
        return terms(text)

    index = TextIndex(["one text", "another text"], spy)
    seen.clear()
    index.best("text")
    assert seen == ["text"]


@pytest.mark.parametrize("typo", ["comit", "commmit", "cmmit", "commti", "comimt", "commitz"])
def test_a_mistyped_word_finds_its_text_with_a_lower_score(typo: str) -> None:
    index = TextIndex(["merge a branch", "commit the changes", "list the tags"])
    (found, *_) = index.best(typo)
    assert found.position == 1
    assert found.score < index.best("commit")[0].score


def test_a_word_that_no_text_has_lowers_the_score() -> None:
    index = TextIndex(["merge the branch", "list the branches"])
    assert index.best("merge zebra quantum", 1)[0].score < index.best("merge", 1)[0].score / 1.5
