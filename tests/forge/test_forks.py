"""Forks: found in every spelling, compared leaf by leaf, merged three ways."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.forge.authoring import create_fork
from fleet_agentpack.forge.changes import (
    MISSING,
    Conflict,
    Edit,
    differences,
    same,
    three_way,
)
from fleet_agentpack.forge.definitions import read_data
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.merging import merge, plan_merge
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.support.results import jsonable
from tests.forge.tree import agent, write

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_all_three_records_are_found(full: ForgeService) -> None:
    rows = {row["name"]: row for row in full.fork_list()["forks"]}
    assert rows["my-triage"] == {
        "name": "my-triage",
        "type": "agent",
        "upstream": {"name": "base-triage", "version": "1.0.0"},
        "localVersion": "2.0.1",
        "path": ".fractary/agents/my-triage/agent.yaml",
        "hasUpstreamUpdate": True,
    }
    assert rows["my-lint"]["upstream"] == {"name": "lint-base", "version": "1.1.0"}
    assert rows["forked-dir"]["upstream"] == {"name": "lint-base", "version": "2.0.0"}
    assert full.fork_list()["total"] == 3
    assert [row["name"] for row in full.fork_list("agent")["forks"]] == ["my-triage"]
    assert {row["name"] for row in full.fork_list("tool")["forks"]} == {"my-lint", "forked-dir"}


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
    assert info["upstream"]["currentVersion"] == "2.2.0"
    assert info["createdAt"] == "2025-01-01T00:00:00Z"


def test_check_names_updates_and_whether_they_break(full: ForgeService) -> None:
    result = full.fork_check()
    assert {
        row["name"]: (row["upstreamVersion"], row["breakingChanges"]) for row in result["updates"]
    } == {
        "my-triage": ("2.0.0", True),
        "my-lint": ("2.2.0", True),
        "forked-dir": ("2.2.0", False),
    }
    assert (result["total"], result["hasUpdates"]) == (3, True)
    assert full.fork_check("forked-dir")["total"] == 1


def test_a_fork_whose_upstream_is_gone_is_still_told(forge: ForgeService, work: Path) -> None:
    text = agent("mine", more="fork_of: {name: gone, version: 1.0.0}\n")
    write(work, {".fractary/agents/mine.yaml": text})
    assert forge.fork_list()["forks"][0]["hasUpstreamUpdate"] is False
    info = forge.fork_info("mine")
    assert info["upstream"]["currentVersion"] == "1.0.0"
    assert "gone is not found" in info["warnings"][0]
    assert forge.fork_check() == {"updates": [], "total": 0, "hasUpdates": False}
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
    assert "-description: Better triage\n+description: Our own triage\n" in result["unified"]
    assert "unified" not in jsonable(full.fork_diff("my-triage", "json"))


def test_a_fork_that_shadows_its_upstream_is_compared_with_the_original(
    full: ForgeService, work: Path
) -> None:
    text = agent(
        "base-triage", version="1.0.0", description="Mine", more="fork_of: base-triage@1.0.0\n"
    )
    write(work, {".fractary/agents/base-triage.yaml": text})
    result = full.fork_diff("base-triage")
    assert result["upstreamVersion"] == "2.0.0"
    assert full.fork_check("base-triage")["updates"][0]["upstreamVersion"] == "2.0.0"


def test_added_removed_and_modified_are_told_apart() -> None:
    rows = differences(
        {"a": 1, "gone": {"x": 1, "y": []}, "same": [1, {"k": None}], "t": [1, 2]},
        {"a": True, "same": [1, {"k": None}], "t": [1], "new": {}},
    )
    assert [(row["field"], row["changeType"]) for row in rows] == [
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


def fork(forge: ForgeService, source: str, name: str) -> Path:
    return create_fork(forge.desk(), None, source, name, NOW)


def run_merge(forge: ForgeService, name: str, prefer: Any = None) -> Any:
    desk = forge.desk()
    plan = plan_merge(desk.forks, desk.resolver, name, desk.warnings)
    merge(plan, prefer, NOW)
    return plan


def test_a_new_fork_records_where_it_came_from(full: ForgeService) -> None:
    path = fork(full, "base-triage@^1.0.0", "new-triage")
    data = read_data(path, "agent")
    assert data["fork_of"] == {
        "name": "base-triage",
        "version": "1.1.0",
        "forked_at": "2026-01-02T03:04:05.000Z",
    }
    assert full.validate("agent", name="new-triage", strict=True)["valid"]
    assert full.fork_diff("new-triage", "json")["summary"]["added"] == 0
    with pytest.raises(ForgeError) as caught:
        fork(full, "base-triage", "new-triage")
    assert caught.value.code == "CONFLICT_ERROR"
    with pytest.raises(ForgeError, match="No agent 'nowhere'"):
        fork(full, "nowhere", "x")


def test_a_fork_of_markdown_stays_markdown(full: ForgeService) -> None:
    path = fork(full, "acme:triage", "triage-two")
    assert path.name == "agent.md"
    data = read_data(path, "agent")
    assert data["system_prompt"].startswith("# Triage")
    assert "extends" not in data
    assert data["tools"] == ["log", "ticket-read", "ticket-label@~2.1.0"]


def test_merge_takes_what_only_upstream_changed_and_keeps_comments(full: ForgeService) -> None:
    path = fork(full, "base-triage@1.0.0", "ours")
    path.write_text("# our own notes\n" + path.read_text().replace("Be brief.", "Be kind."))
    plan = run_merge(full, "ours")
    data = read_data(path, "agent")
    assert data["description"] == "Better triage"
    assert data["tags"] == ["support", "sla"]
    assert data["version"] == "2.0.0"
    assert "Be kind." in data["system_prompt"]
    assert data["fork_of"]["version"] == "2.0.0"
    assert data["fork_of"]["merged_at"] == "2026-01-02T03:04:05.000Z"
    assert path.read_text().startswith("# our own notes\n")
    assert plan.conflicts == ()
    assert full.fork_check("ours")["hasUpdates"] is False
    assert full.fork_info("ours")["lastMerged"] == "2026-01-02T03:04:05.000Z"


def test_a_conflict_writes_nothing_until_a_side_is_chosen(full: ForgeService) -> None:
    path = fork(full, "base-triage@1.0.0", "ours")
    path.write_text(path.read_text().replace("Base triage", "My words"))
    before = path.read_bytes()
    with pytest.raises(ForgeError) as caught:
        run_merge(full, "ours")
    assert caught.value.code == "CONFLICT_ERROR"
    assert caught.value.details["conflicts"] == [
        {
            "path": "description",
            "base": "Base triage",
            "local": "My words",
            "upstream": "Better triage",
        }
    ]
    assert path.read_bytes() == before
    run_merge(full, "ours", "ours")
    assert read_data(path, "agent")["description"] == "My words"
    path.write_bytes(before)
    run_merge(full, "ours", "theirs")
    assert read_data(path, "agent")["description"] == "Better triage"


def test_a_fork_that_counts_its_own_versions_keeps_its_number(full: ForgeService) -> None:
    path = fork(full, "base-triage@1.0.0", "ours")
    path.write_text(path.read_text().replace("\nversion: 1.0.0", "\nversion: 7.0.0"))
    run_merge(full, "ours")
    assert read_data(path, "agent")["version"] == "7.0.0"


def test_merge_without_the_forked_version_is_refused(full: ForgeService, home: Path) -> None:
    path = fork(full, "base-triage@1.0.0", "ours")
    (home / ".fractary/registry/agents/base-triage@1.0.0/agent.yaml").unlink()
    before = path.read_bytes()
    with pytest.raises(ForgeError) as caught:
        run_merge(full, "ours")
    assert caught.value.details["availableVersions"] == ["1.1.0", "2.0.0"]
    assert path.read_bytes() == before


def test_merging_markdown_replaces_the_body(full: ForgeService, home: Path) -> None:
    shared = home / ".fractary/registry/agents"
    header = agent("note", version="{v}").split("system_prompt")[0]
    for version, body in (("1.0.0", "Old body."), ("1.1.0", "New body.\n\n---\nwith a rule")):
        text = f"---\n{header.replace('{v}', version)}---\n{body}\n"
        write(shared, {f"note@{version}/agent.md": text})
    path = fork(full, "note@1.0.0", "my-note")
    run_merge(full, "my-note")
    assert read_data(path, "agent")["system_prompt"] == "New body.\n\n---\nwith a rule"


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.dictionaries(st.sampled_from("xyz"), inner, max_size=3) | st.lists(inner, max_size=2)
    ),
    max_leaves=6,
)
mappings = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def apply(data: dict[str, Any], edits: list[Edit]) -> dict[str, Any]:
    data = copy.deepcopy(data)
    for edit in edits:
        target: Any = data
        for part in edit.path[:-1]:
            target = target.setdefault(part, {})
        if edit.value is MISSING:
            target.pop(edit.path[-1], None)
        else:
            target[edit.path[-1]] = edit.value
    return data


@given(mappings, mappings)
def test_a_fork_without_changes_becomes_upstream(
    base: dict[str, Any], upstream: dict[str, Any]
) -> None:
    results = three_way(base, base, upstream)
    assert not any(isinstance(each, Conflict) for each in results)
    assert same(apply(base, [each for each in results if isinstance(each, Edit)]), upstream)


@given(mappings, mappings, mappings)
def test_a_merge_is_the_same_from_both_sides(
    base: dict[str, Any], local: dict[str, Any], upstream: dict[str, Any]
) -> None:
    one = {each.path for each in three_way(base, local, upstream) if isinstance(each, Conflict)}
    two = {each.path for each in three_way(base, upstream, local) if isinstance(each, Conflict)}
    assert one == two
    assert three_way(base, local, base) == []
    assert three_way(base, local, local) == []


@given(mappings, mappings)
def test_no_differences_means_the_same_leaves(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert differences(one, one) == []
    kinds = {"added": "removed", "removed": "added", "modified": "modified"}
    there = {(row["field"], row["changeType"]) for row in differences(one, other)}
    back = {(row["field"], kinds[row["changeType"]]) for row in differences(other, one)}
    assert there == back


@pytest.mark.parametrize(
    "record", ["'@acme/base@1.0.0'", "{name: '@acme/base@^1.0.0', version: 1.0.0}"]
)
def test_a_scoped_upstream_is_read_without_its_range(
    forge: ForgeService, work: Path, record: str
) -> None:
    text = agent("mine") + f"fork_of: {record}\n"
    write(work, {".fractary/agents/mine.yaml": text})
    (row,) = forge.fork_list()["forks"]
    assert row["upstream"] == {"name": "@acme/base", "version": "1.0.0"}
