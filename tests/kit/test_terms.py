"""What texts are searched by: stems, concepts, pairs of CJK characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.kit.stemmer import stem
from fleet_agentpack.kit.terms import terms, tokens


@pytest.mark.parametrize(
    "forms",
    [
        "commit commits committed committing",
        "merge merges merged merging",
        "create creates created creating creation",
        "generate generated generating generation",
        "document documents documented documentation",
        "branch branches branching",
        "summary summaries summarize summarise summarizing summarization",
        "analyze analyse analysis analyzing",
        "deploy deployment deploying deployments",
        "require required requirement requirements",
        "verify verifies verified verification",
        "validate validating validation",
        "repeat repeats repeating",
        "plan plans planned planning",
        "class classes",
        "status",
    ],
)
def test_forms_of_a_word_share_a_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


def test_different_words_keep_different_stems() -> None:
    others = ["commit", "comment", "merge", "emerge", "test", "text", "form", "format"]
    assert len({stem(word) for word in others}) == len(others)


@given(st.text(max_size=30))
def test_any_word_has_a_stem(word: str) -> None:
    assert stem(word) or not word
    assert len(stem(word)) <= len(word)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git group-commit unstaged_changes", ["git", "group", "commit", "unstaged", "changes"]),
        ("PRs, then: auto-select (v0.5)!", ["prs", "then", "auto", "select", "v0", "5"]),
        ("fooBar HTTPServer", ["foo", "bar", "httpserver"]),
        ("ブランチ を-作る Ünï", ["ブランチ", "を", "作る", "ünï"]),
        ("commitする \uff21\uff22", ["commit", "する", "ab"]),
        ("-- _ ,", []),
    ],
)
def test_words_split_at_everything_but_letters_and_digits(text: str, expected: list[str]) -> None:
    assert list(tokens(text)) == expected


def test_a_word_has_its_stem_and_its_concept() -> None:
    assert terms("merging") == {"merg": 1.0, "=merge": 0.6}
    assert terms("zebra zebras") == {"zebra": 2.0}


def test_stop_words_and_particles_are_left_out() -> None:
    assert terms("what should I do with the") == {}
    assert terms("をする") == {}


def test_chinese_japanese_and_korean_are_read_in_pairs() -> None:
    assert terms("設計書").keys() == {"設計", "計書", "=plan"}
    assert "테스" in terms("테스트")
    assert "=commit" in terms("変更をコミットする")
    assert terms("Café") == terms("cafe")
