"""What climpt's search finds, and how fast, against scikit-learn's TF-IDF, in one run.

    python benchmarks/climpt_search.py

What it finds: the queries of `climpt_queries.toml`, by kind. How fast: 10,000 commands; needs
scikit-learn beside the package (`python -m pip install scikit-learn`). Both sides get the same
terms. The ratio is against the fastest way to ask the other side: a product with the transposed
matrix, and only the best three sorted. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet_agentpack.climpt.command_index import LEAST_SCORE, RESULTS, CommandIndex
from fleet_agentpack.climpt.registry import Command
from fleet_agentpack.console.table import Table, render
from fleet_agentpack.console.text import Paint
from fleet_agentpack.kit import textsearch
from fleet_agentpack.kit.terms import terms, tokens

COMMANDS = 10_000
QUERIES = 100
ROUNDS = 5
TARGET_RATIO = 1.0
TARGET_FOUND = 0.85
HIGHEST_UNRELATED = 0.25
SHARE_MISTYPED = 0.2
KINDS = ("plain", "inflected", "synonym", "typo", "other-language")
FASTEST = "scikit-learn, fastest"

Ranking = list[tuple[int, float]]


def main() -> int:
    """Print what is found, then how fast it is; 0 when every target holds."""
    found = report_found()
    return compare() or found


def report_found() -> int:
    """How often the right command is among the first three, by kind of query."""
    asked = tomllib.loads(Path(__file__).with_name("climpt_queries.toml").read_text("utf-8"))
    commands = [
        Command(*names, title=asked["titles"].get(" ".join(names[1:3]), ""))
        for names in asked["commands"]
    ]
    index = CommandIndex(commands)

    def finds(query: str, wanted: str) -> bool:
        return wanted in [f"{row.c2} {row.c3}" for row in index.search(query)]

    hits = {kind: [finds(*pair) for pair in asked[kind].items()] for kind in KINDS}
    rows = [[kind, f"{sum(each)} of {len(each)}"] for kind, each in hits.items()]
    every = [hit for each in hits.values() for hit in each]
    share = sum(every) / len(every)
    rows.append(["all", f"{sum(every)} of {len(every)}"])
    print(render(Table(["queries", "right among the first three"], rows), Paint(False)))
    highest = max(index.best_score(query) for query in asked["unrelated"])
    print(f"\n{share:.0%} found (target ≥ {TARGET_FOUND:.0%}); an unrelated query scores at most")
    print(f"{highest:.3f} (target < {HIGHEST_UNRELATED})\n")
    return 0 if share >= TARGET_FOUND and highest < HIGHEST_UNRELATED else 1


def compare() -> int:
    """Build both, check that they agree, measure them in turns, print the table."""
    try:
        from sklearn.feature_extraction import DictVectorizer
        from sklearn.feature_extraction.text import TfidfTransformer
    except ImportError:
        print("scikit-learn is missing; install it: python -m pip install scikit-learn")
        return 2
    chance = random.Random(20)
    commands = make_commands(chance, COMMANDS)
    queries = [make_query(chance, commands) for _ in range(QUERIES)]
    texts = [command.text for command in commands]

    index, build_s = timed(lambda: CommandIndex(commands))
    counts, weights = DictVectorizer(), TfidfTransformer()
    matrix, other_build_s = timed(
        lambda: weights.fit_transform(counts.fit_transform([terms(text) for text in texts]))
    )
    position = {command.key: i for i, command in enumerate(commands)}

    def ours(query: str) -> Ranking:
        return [(position[row.c1, row.c2, row.c3], row.score) for row in index.search(query)]

    asked = textsearch.TextIndex(texts)  # gives the other side its terms, typos and all

    def vector(query: str) -> Any:
        return counts.transform([asked.weighted(query)])

    def theirs(query: str) -> Ranking:
        scores = (vector(query) @ matrix.T).toarray().ravel().round(12)
        best = (-scores).argsort(kind="stable")[:RESULTS]
        return [(int(i), float(scores[i])) for i in best if scores[i] >= LEAST_SCORE]

    transposed = matrix.T.tocsr()

    def theirs_quickly(query: str) -> list[Any]:
        scores = (vector(query) @ transposed).toarray().ravel()
        best = scores.argpartition(-RESULTS)[-RESULTS:]
        return sorted(best, key=lambda i: (-scores[i], i))

    same = sum(agree(ours(query), theirs(query)) for query in queries)
    sides: dict[str, Callable[[str], object]] = {
        "climpt": index.search,
        FASTEST: theirs_quickly,
        "scikit-learn, all scores sorted": theirs,
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
    """A few words of one command and one or two of another, one of them mistyped now and then."""
    one, two = chance.sample(commands, 2)
    some = chance.sample(list(tokens(one.text)), chance.randint(2, 5))
    some += chance.sample(list(tokens(two.text)), chance.randint(0, 2))
    if chance.random() < SHARE_MISTYPED:
        some[0] = some[0][:1] + some[0][2:3] + some[0][1:2] + some[0][3:]
    return " ".join(some)


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

    def counting(text: str) -> dict[str, float]:
        nonlocal calls
        calls += 1
        return terms(text)

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
