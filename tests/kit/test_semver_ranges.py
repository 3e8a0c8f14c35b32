"""Ranges mean what npm's `semver` 7 says they mean; `npm_ranges.json` is its own answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.kit.semver import Range, RangeError, Version, best_version, is_newer

# range → the versions that it allows; null for text that npm refuses
TABLE = json.loads(Path(__file__).with_name("npm_ranges.json").read_text())
VERSIONS: list[str] = TABLE["versions"]
NPM: dict[str, list[str] | None] = TABLE["ranges"]


@pytest.mark.parametrize("text", NPM)
def test_a_range_allows_what_npm_allows(text: str) -> None:
    expected = NPM[text]
    if expected is None:
        with pytest.raises(RangeError):
            Range.parse(text)
        return
    wanted = Range.parse(text)
    assert [v for v in VERSIONS if wanted.allows(Version.parse(v))] == expected


@pytest.mark.parametrize(
    ("available", "wanted", "best"),
    [
        ("1.0.0 1.1.0 2.0.0", "latest", "2.0.0"),
        ("1.0.0 1.1.0 2.0.0", "1.1.0", "1.1.0"),
        ("0.9.0 1.0.0 1.5.0 1.9.9 2.0.0", "^1.0.0", "1.9.9"),
        ("0.9.0 1.0.0 1.5.0 1.9.9 2.0.0", "1.x", "1.9.9"),
        ("1.2.0 1.2.3 1.2.5 1.3.0 2.0.0", "~1.2.3", "1.2.5"),
        ("1.0.0 1.5.0 3.0.0", ">=1.5.0", "3.0.0"),
        ("0.9.0 1.5.0 2.5.0 3.0.0 3.5.0", ">=1.0.0 <2.0.0 || >=3.0.0", "3.5.0"),
        ("1.0.0 1.9.0", "^2.0.0", None),
        ("1.0.0 1.1.0-beta.1", "^1.0.0", "1.0.0"),
        ("1.0.0-beta.1", "latest", None),
        ("1.0.0+build.5 0.9.0", "^1.0.0", "1.0.0+build.5"),
        ("1.0.0+a 1.0.0+b", "*", "1.0.0+a"),
        ("nightly 1.0.0", "nightly", "nightly"),
        ("nightly 1.0.0", "*", "1.0.0"),
        ("1.0.0", "not a range", None),
    ],
)
def test_the_best_version_is_the_highest_allowed(
    available: str, wanted: str, best: str | None
) -> None:
    assert best_version(available.split(), wanted) == best


def test_an_endless_range_is_refused() -> None:
    with pytest.raises(RangeError):
        Range.parse("1 || " * 1000)


def test_newer_compares_precedence_and_never_raises() -> None:
    assert is_newer("1.10.0", "1.9.0")
    assert is_newer("1.0.0", "1.0.0-rc.1")
    assert not is_newer("1.0.0+b", "1.0.0+a")
    assert not is_newer("new", "1.0.0")
    assert not is_newer("2.0.0", "old")


@given(st.text(max_size=40))
def test_any_text_is_a_range_or_a_range_error(text: str) -> None:
    try:
        Range.parse(text)
    except RangeError:
        return


versions = st.builds(Version, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


@given(versions, versions)
def test_a_caret_holds_the_first_number_that_is_not_zero(base: Version, other: Version) -> None:
    if Range.parse(f"^{base}").allows(other):
        assert other >= base
        fixed = next((i for i, part in enumerate(base.core) if part), 2)
        assert (
            other.core[: fixed + 1] == base.core[: fixed + 1]
            or other.core[fixed] == base.core[fixed]
        )
