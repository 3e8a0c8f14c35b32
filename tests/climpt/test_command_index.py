"""Search over commands, with the expectations that the original's own tests state."""

from __future__ import annotations

import math

import pytest

from fleet_agentpack.climpt.command_index import CommandIndex
from fleet_agentpack.climpt.registry import Command, parse
from tests.climpt.project import GROUP_COMMIT, SAMPLE, registry_text


@pytest.fixture
def index() -> CommandIndex:
    return CommandIndex(parse(registry_text(SAMPLE)).commands)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("group changes and commit", "group-commit"),
        ("commit my changes", "group-commit"),
        ("create new branch", "decide-branch"),
        ("generate frontmatter", "build"),
        ("frontmatter", "build"),
        ("GROUP-COMMIT", "group-commit"),
        ("stdin input", "create"),
    ],
)
def test_the_obvious_command_comes_first(index: CommandIndex, query: str, first: str) -> None:
    found = index.search(query)
    assert found[0].c2 == first
    scores = [row.score for row in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


def test_at_most_three_are_found_and_none_without_a_common_word(index: CommandIndex) -> None:
    assert len(index.search("create new file branch commit")) == 3
    assert index.search("zebra") == []
    assert CommandIndex([]).search("commit") == []


def test_of_more_that_match_the_best_three_are_found_in_registry_order() -> None:
    commands = [Command("git", f"commit-{n}", "branch", "commit a branch") for n in "abcde"]
    found = CommandIndex(commands).search("commit branch")
    assert [row.c2 for row in found] == ["commit-a", "commit-b", "commit-c"]


def test_a_command_with_variants_is_found_once() -> None:
    twice = CommandIndex(
        parse(registry_text([*SAMPLE, {**GROUP_COMMIT, "description": "x"}])).commands
    )
    keys = [(row.c1, row.c2, row.c3) for row in twice.search("git group commit changes")]
    assert len(keys) == len(set(keys))
    assert twice.search("group commit")[0].description == GROUP_COMMIT["description"]


def test_more_of_the_words_is_a_better_match(index: CommandIndex) -> None:
    few, many = index.search("commit")[0], index.search("commit changes group")[0]
    assert few.c2 == many.c2 == "group-commit"
    assert many.score > few.score


def test_the_score_is_the_cosine_of_smoothed_weights() -> None:
    index = CommandIndex(
        [Command("甲甲", "乙乙", "丙丙", "丁丁"), Command("甲甲", "戊戊-己己", "庚庚", "")]
    )
    rare = math.log(3 / 2) + 1  # in one of two; 甲甲 is in both and weighs 1
    assert index.search("丁丁")[0].score == pytest.approx(rare / math.sqrt(1 + 3 * rare**2))
    assert [row.c2 for row in index.search("甲甲 己己")] == ["戊戊-己己", "乙乙"]


def test_a_weak_match_is_not_shown(index: CommandIndex) -> None:
    assert index.search("train a puppy") == []
    assert index.search("quantum zebra commit physics lecture")[0].score < 0.25
