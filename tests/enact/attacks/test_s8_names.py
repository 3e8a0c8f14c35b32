"""S8: a tool that takes another's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_agentpack.enact import names
from fleet_agentpack.enact.names import Entry, build_table, is_name
from tests.enact.attacks.publisher import publish
from tests.enact.kit import refused


@pytest.mark.parametrize(
    "name", ["agentpack__csv/stats", "alice__pdf/extract", "a_/b", "a/_b", "a/b_", "_a/b", "a/b__c"]
)
def test_a_segment_cannot_look_like_two(home: Path, name: str) -> None:
    with refused("INVALID_ARGUMENTS"):
        publish(home, name=name).install(name)


def test_a_single_underscore_inside_is_fine() -> None:
    assert is_name("alice/pdf_to_text")


def test_a_name_with_a_hash_cannot_be_taken_either() -> None:
    """`@org/tool` always has a hash, which anybody can compute and put into a name of their own."""
    (real,) = build_table([Entry("@org/tool")]).entries
    owner, _, tool = real.partition("__")
    twin = Entry(f"{owner}/{tool}")
    assert is_name(twin.name) and twin.plain == real
    table = build_table([Entry("@org/tool"), twin])
    assert table.entries[real] == Entry("@org/tool")
    assert len(table.entries) == 2


def test_two_hashes_that_are_the_same_hide_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    long = [Entry(f"eve/{'x' * 80}{end}") for end in "ab"]
    monkeypatch.setattr(names, "SHORT_HASH", 0)
    assert set(build_table(long).entries.values()) == set(long)
