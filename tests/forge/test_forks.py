"""Forks: found in every spelling, compared leaf by leaf, merged three ways."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.forge.three_way import differences, same
from fleet_agentpack.kit.results import jsonable
from tests.forge.tree import agent, write

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_all_three_records_are_found(full: ForgeService) -> None:
    rows = {row.name: row for row in full.fork_list().forks}
    assert jsonable(rows["my-triage"]) == {
        "name": "my-triage",
        "type": "agent",
        "upstream": {"name": "base-triage", "version": "1.0.0"},
        "localVersion": "2.0.1",
        "path": ".fractary/agents/my-triage/agent.yaml",
        "hasUpstreamUpdate": True,
    }
    assert str(rows["my-lint"].upstream) == "lint-base@1.1.0"
    assert str(rows["forked-dir"].upstream) == "lint-base@2.0.0"
    assert full.fork_list().total == 3
    assert [row.name for row in full.fork_list("agent").forks] == ["my-triage"]
    assert {row.name for row in full.fork_list("tool").forks} == {"my-lint", "forked-dir"}


def test_info_has_dates_and_the_latest_upstream(full: ForgeService) -> None:
    assert jsonable(full.fork_info("my-triage")) == {
        "name": "my-triage",
        "type": "agent",
        "path": ".fractary/agents/my-triage/agent.yaml",
        "upstream": {"name": "base-triage", "version": "1.0.0", "currentVersion": "2.0.0"},
        "localVersion": "2.0.1",
        "createdAt": "2025-11-02T09:00:00.000Z",
        "hasUpstreamUpdate": True,
    }


def test_a_fork_that_cannot_be_read_is_not_called_missing(full: ForgeService) -> None:
    with pytest.raises(ForgeError, match=r"broken\.yaml: not valid YAML") as caught:
        full.fork_info("broken")
    assert caught.value.code == "VALIDATION_ERROR"
    assert "fractary_forge_agent_validate" in caught.value.suggestions[0]


def test_the_package_manifest_tells_of_newer_versions(full: ForgeService) -> None:
    info = full.fork_info("my-lint")
    assert info.upstream.currentVersion == "2.2.0"
    assert info.createdAt == "2025-01-01T00:00:00Z"


def test_check_names_updates_and_whether_they_break(full: ForgeService) -> None:
    result = full.fork_check()
    assert {row.name: (row.upstreamVersion, row.breakingChanges) for row in result.updates} == {
        "my-triage": ("2.0.0", True),
        "my-lint": ("2.2.0", True),
        "forked-dir": ("2.2.0", False),
    }
    assert (result.total, result.hasUpdates) == (3, True)
    assert full.fork_check("forked-dir").total == 1


def test_a_fork_whose_upstream_is_gone_is_still_told(forge: ForgeService, work: Path) -> None:
    text = agent("mine", more="fork_of: {name: gone, version: 1.0.0}\n")
    write(work, {".fractary/agents/mine.yaml": text})
    assert forge.fork_list().forks[0].hasUpstreamUpdate is False
    info = forge.fork_info("mine")
    assert info.upstream.currentVersion == "1.0.0"
    assert "gone is not found" in info.warnings[0]
    assert jsonable(forge.fork_check()) == {"updates": [], "total": 0, "hasUpdates": False}
    with pytest.raises(ForgeError) as caught:
        forge.fork_diff("mine")
    assert caught.value.code == "AGENT_NOT_FOUND"


@pytest.mark.parametrize(
    ("name", "code"),
    [("nobody", "AGENT_NOT_FOUND"), ("echo-bot", "VALIDATION_ERROR"), ("../x", "VALIDATION_ERROR")],
)
def test_what_is_no_fork_is_refused(full: ForgeService, name: str, code: str) -> None:
    for query in (full.fork_info, full.fork_diff, full.fork_check):
        with pytest.raises(ForgeError) as caught:
            query(name)
        assert caught.value.code == code


def test_diff_runs_from_upstream_to_fork_by_leaf(full: ForgeService) -> None:
    result = jsonable(full.fork_diff("my-triage"))
    assert (result["upstreamVersion"], result["localVersion"]) == ("2.0.0", "2.0.1")
    changes = {row["field"]: row for row in result["differences"]}
    assert changes["tags.1"] == {
        "field": "tags.1",
        "local": "ours",
        "upstream": "sla",
        "changeType": "modified",
    }
    assert changes["description"]["upstream"] == "Better triage"
    assert not {"name", "fork_of"} & {row["field"].split(".")[0] for row in result["differences"]}
    assert sum(result["summary"].values()) == len(result["differences"])
    assert "--- base-triage@2.0.0\n+++ my-triage@2.0.1\n" in result["unified"]
    assert "\n+description: Our own triage\n" in result["unified"]
    assert "unified" not in jsonable(full.fork_diff("my-triage", "json"))


def test_a_fork_that_shadows_its_upstream_is_compared_with_the_original(
    full: ForgeService, work: Path
) -> None:
    text = agent(
        "base-triage", version="1.0.0", description="Mine", more="fork_of: base-triage@1.0.0\n"
    )
    write(work, {".fractary/agents/base-triage.yaml": text})
    result = full.fork_diff("base-triage")
    assert result.upstreamVersion == "2.0.0"
    assert full.fork_check("base-triage").updates[0].upstreamVersion == "2.0.0"


def test_added_removed_and_modified_are_told_apart() -> None:
    rows = differences(
        {"a": 1, "gone": {"x": 1, "y": []}, "same": [1, {"k": None}], "t": [1, 2]},
        {"a": True, "same": [1, {"k": None}], "t": [1], "new": {}},
    )
    assert [(row.field, row.changeType) for row in rows] == [
        ("a", "modified"),
        ("gone.x", "removed"),
        ("gone.y", "removed"),
        ("t.1", "removed"),
        ("new", "added"),
    ]


def test_equality_tells_types_apart() -> None:
    assert not same(1, True)
    assert not same(1, 1.0)
    assert not same({"a": None}, {})
    assert same(float("nan"), float("nan"))
    assert same([{"a": [1]}], [{"a": [1]}])


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.dictionaries(st.sampled_from("xyz"), inner, max_size=3) | st.lists(inner, max_size=2)
    ),
    max_leaves=6,
)
mappings = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(mappings, mappings)
def test_no_differences_means_the_same_leaves(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert differences(one, one) == ()
    kinds = {"added": "removed", "removed": "added", "modified": "modified"}
    there = {(row.field, row.changeType) for row in differences(one, other)}
    back = {(row.field, kinds[row.changeType]) for row in differences(other, one)}
    assert there == back


@pytest.mark.parametrize(
    "record", ["'@acme/base@1.0.0'", "{name: '@acme/base@^1.0.0', version: 1.0.0}"]
)
def test_a_scoped_upstream_is_read_without_its_range(
    forge: ForgeService, work: Path, record: str
) -> None:
    text = agent("mine") + f"fork_of: {record}\n"
    write(work, {".fractary/agents/mine.yaml": text})
    (row,) = forge.fork_list().forks
    assert jsonable(row.upstream) == {"name": "@acme/base", "version": "1.0.0"}
