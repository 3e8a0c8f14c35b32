"""Versions are read strictly and ordered by the precedence of semver 2.0."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.kit.semver import Version, VersionError

numbers = st.integers(0, 30)
identifiers = st.from_regex(
    r"(?:0|[1-9][0-9]{0,3}|[0-9]{0,2}[a-zA-Z-][0-9a-zA-Z-]{0,4})", fullmatch=True
)
versions = st.builds(
    Version,
    numbers,
    numbers,
    numbers,
    st.lists(identifiers, max_size=3).map(tuple),
    st.just("") | st.from_regex(r"[0-9a-zA-Z-]{1,5}(?:\.[0-9a-zA-Z-]{1,3})?", fullmatch=True),
)


@given(versions)
def test_a_printed_version_reads_as_itself(version: Version) -> None:
    again = Version.parse(str(version))
    assert (again.core, again.pre, again.build) == (version.core, version.pre, version.build)


@given(versions, versions, versions)
def test_the_order_is_total(a: Version, b: Version, c: Version) -> None:
    assert (a < b) + (a == b) + (a > b) == 1
    if a <= b <= c:
        assert a <= c
    if a == b:
        assert hash(a) == hash(b)


def test_precedence_is_that_of_the_specification() -> None:
    names = "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11"
    ordered = [*names.split(), "1.0.0-rc.1", "1.0.0", "2.0.0", "2.1.0", "2.1.1", "2.10.0"]
    parsed = [Version.parse(name) for name in ordered]
    assert all(low < high for low, high in itertools.combinations(parsed, 2))
    assert len(set(parsed)) == len(parsed)


def test_build_metadata_does_not_count() -> None:
    assert Version.parse("1.0.0+a") == Version.parse("1.0.0+b") == Version.parse("1.0.0")


@pytest.mark.parametrize(
    "text",
    [
        *["", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3-a..b"],
        *["1.2.3+", "1.2.3\n", " 1.2.3", "1.2.x", "-1.2.3", "\u0661.2.3", "1.2.3-ü"],
        *["1." * 200, "1.2." + "3" * 300],
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(VersionError):
        Version.parse(text)
