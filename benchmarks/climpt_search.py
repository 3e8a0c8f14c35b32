"""climpt's search against scikit-learn's TF-IDF on the same 10,000 commands, in one run.

    python benchmarks/climpt_search.py

Needs scikit-learn beside the package (`python -m pip install scikit-learn`). Both sides get the
same tokeniser. The ratio is against the fastest way to ask the other side: a product with the
transposed matrix, and only the best three sorted. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from fleet_agentpack.climpt.command_index import RESULTS, CommandIndex
from fleet_agentpack.climpt.registry import Command
from fleet_agentpack.console.table import Table, render
from fleet_agentpack.console.text import Paint
from fleet_agentpack.kit import textsearch

COMMANDS = 10_000
QUERIES = 100
ROUNDS = 5
TARGET_RATIO = 1.0
FASTEST = "scikit-learn, fastest"

Ranking = list[tuple[int, float]]


def main() -> int:
    """Build both, check that they agree, measure them in turns, print the table."""
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.metrics.pairwise import cosine_similarity
    except ImportError:
        print("scikit-learn is missing; install it: python -m pip install scikit-learn")
        return 2
    chance = random.Random(20)
    commands = make_commands(chance, COMMANDS)
    queries = [make_query(chance, commands) for _ in range(QUERIES)]
    texts = [command.text for command in commands]

    index, build_s = timed(lambda: CommandIndex(commands))
    vectoriser = TfidfVectorizer(tokenizer=textsearch.words, token_pattern=None, lowercase=False)
    matrix, other_build_s = timed(lambda: vectoriser.fit_transform(texts))
    position = {command.key: i for i, command in enumerate(commands)}

    def ours(query: str) -> Ranking:
        return [(position[row.c1, row.c2, row.c3], row.score) for row in index.search(query)]

    def theirs(query: str) -> Ranking:
        scores = cosine_similarity(vectoriser.transform([query]), matrix).ravel().round(12)
        best = (-scores).argsort(kind="stable")[:RESULTS]
        return [(int(i), float(scores[i])) for i in best if scores[i] > 0]

    transposed = matrix.T.tocsr()

    def theirs_quickly(query: str) -> list[Any]:
        scores = (vectoriser.transform([query]) @ transposed).toarray().ravel()
        best = scores.argpartition(-RESULTS)[-RESULTS:]
        return sorted(best, key=lambda i: (-scores[i], i))

    same = sum(agree(ours(query), theirs(query)) for query in queries)
    sides: dict[str, Callable[[str], object]] = {
        "climpt": index.search,
        FASTEST: theirs_quickly,
        "scikit-learn, cosine_similarity": theirs,
    }
    times = measure(sides, queries)
    tokenised = texts_tokenised_per_query(commands, queries)
    return report(times, same, tokenised, build_s, other_build_s)


def agree(ours: Ranking, theirs: Ranking) -> bool:
    """The same commands in the same order, with the same scores but for rounding."""
    return [i for i, _ in ours] == [i for i, _ in theirs] and all(
        abs(a - b) < 1e-9 for (_, a), (_, b) in zip(ours, theirs, strict=True)
    )


def make_commands(chance: random.Random, count: int) -> list[Command]:
    """Unique commands whose words are as unevenly common as in real text."""
    syllables = [a + b for a in "bcdfglmnprst" for b in ("a", "e", "i", "o", "u")]
    vocabulary = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(6000)]
    weights = [1 / (rank + 2) for rank in range(len(vocabulary))]

    def pick(how_many: int) -> list[str]:
        return chance.choices(vocabulary, weights, k=how_many)

    found: dict[tuple[str, str, str], Command] = {}
    while len(found) < count:
        c1 = vocabulary[chance.randrange(20)]
        c2, c3 = "-".join(pick(2)), "-".join(pick(2))
        description = " ".join(pick(chance.randint(5, 18))).capitalize()
        command = Command(c1, c2, c3, description)
        found.setdefault(command.key, command)
    return list(found.values())


def make_query(chance: random.Random, commands: list[Command]) -> str:
    """A few words of one command and one or two of another, as a person half remembers them."""
    one, two = chance.sample(commands, 2)
    words = chance.sample(textsearch.words(one.text), chance.randint(2, 5))
    return " ".join([*words, *chance.sample(textsearch.words(two.text), chance.randint(0, 2))])


def measure(
    sides: dict[str, Callable[[str], object]], queries: list[str]
) -> dict[str, list[float]]:
    """Seconds per query; the sides take turns, so that a busy machine slows them alike."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for query in queries:
            for name, ask in sides.items():
                times[name].append(timed(lambda ask=ask, query=query: ask(query))[1])  # type: ignore[misc]
    return times


def texts_tokenised_per_query(commands: list[Command], queries: list[str]) -> float:
    """How often the tokeniser runs for a query: once, for the query itself."""
    calls = 0

    def counting(text: str) -> list[str]:
        nonlocal calls
        calls += 1
        return textsearch.words(text)

    index = textsearch.TextIndex((command.text for command in commands), counting)
    calls = 0
    for query in queries:
        index.best(query)
    return calls / len(queries)


def report(
    times: dict[str, list[float]],
    same: int,
    tokenised: float,
    build_s: float,
    other_build_s: float,
) -> int:
    """Print the figures; 0 when every target holds."""
    base = statistics.median(times[FASTEST])
    rows = [
        [
            name,
            f"{statistics.median(values) * 1e6:,.0f}",
            f"{statistics.quantiles(values, n=100)[98] * 1e6:,.0f}",
            f"{statistics.median(values) / base:.2f}",
        ]
        for name, values in times.items()
    ]
    print(f"{COMMANDS:,} commands, {QUERIES} queries, {ROUNDS} rounds\n")
    print(render(Table(["", "query p50 µs", "p99 µs", "ratio of p50"], rows), Paint(False)))
    ratio = statistics.median(times["climpt"]) / base
    print(f"\nratio of p50 {ratio:.2f} (target ≤ {TARGET_RATIO})")
    print(f"same ranking and scores: {same} of {QUERIES} queries")
    print(f"index built once in {build_s:.2f} s (scikit-learn {other_build_s:.2f} s)")
    print(f"texts tokenised per query: {tokenised:g} (the query itself)")
    return 0 if same == QUERIES and ratio <= TARGET_RATIO and tokenised == 1 else 1


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """A function's value and its seconds."""
    start = time.perf_counter()
    value = work()
    return value, time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
