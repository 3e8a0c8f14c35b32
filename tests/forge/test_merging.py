"""Forks made and merged: by field, by line, and only where nobody's change is lost."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.forge.definitions.author import Author
from fleet_agentpack.forge.definitions.definition import read_data
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.forks.changes import MISSING, Conflict, Edit, same, three_way
from fleet_agentpack.forge.forks.line_merge import merged_text
from fleet_agentpack.forge.forks.merge import MergePlan, merge
from fleet_agentpack.forge.service import ForgeService
from tests.forge.tree import agent, write

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def fork(forge: ForgeService, source: str, name: str) -> Path:
    workspace = forge.workspace()
    author = Author(workspace.configuration, workspace.resolver)
    return forge.directories.root / author.create_fork(None, source, name, NOW).path


def run_merge(forge: ForgeService, name: str, prefer: Any = None) -> MergePlan:
    workspace = forge.workspace()
    root = forge.directories.project
    return merge(workspace.forks, workspace.resolver, root, name, prefer, NOW)


def test_a_new_fork_records_where_it_came_from(full: ForgeService) -> None:
    path = fork(full, "base-triage@^1.0.0", "new-triage")
    data = read_data(path, "agent")
    assert data["fork_of"] == {
        "name": "base-triage",
        "version": "1.1.0",
        "forked_at": "2026-01-02T03:04:05.000Z",
    }
    assert full.validate("agent", name="new-triage", strict=True).valid
    assert full.fork_diff("new-triage", "json").summary.added == 0
    with pytest.raises(ForgeError) as caught:
        fork(full, "base-triage", "new-triage")
    assert caught.value.code == "CONFLICT_ERROR"
    with pytest.raises(ForgeError, match="No agent 'nowhere'"):
        fork(full, "nowhere", "x")


def test_a_fork_of_what_cannot_be_read_says_why(full: ForgeService, work: Path) -> None:
    (work / ".fractary/tools/torn.yaml").write_text("a: [")
    with pytest.raises(ForgeError, match="tool 'torn' cannot be read"):
        fork(full, "torn", "mine")
    with pytest.raises(ForgeError, match=r"Tool 'log' has no version '9\.x'"):
        fork(full, "log@9.x", "mine")


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
    assert full.fork_check("ours").hasUpdates is False
    assert full.fork_info("ours").lastMerged == "2026-01-02T03:04:05.000Z"


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


def test_without_the_forked_version_every_difference_needs_a_decision(
    full: ForgeService, home: Path
) -> None:
    path = fork(full, "base-triage@1.0.0", "ours")
    text = path.read_text().replace("author: Acme Ops\n", "").replace("tools: []", "license: MIT")
    path.write_text(text)
    (home / ".fractary/registry/agents/base-triage@1.0.0/agent.yaml").unlink()
    with pytest.raises(ForgeError, match=r"base-triage 1\.0\.0 is no longer available") as caught:
        run_merge(full, "ours")
    assert caught.value.code == "CONFLICT_ERROR"
    conflicts = {each["path"]: each for each in caught.value.details["conflicts"]}
    assert set(conflicts) == {"description", "tags", "author", "tools"}
    assert conflicts["author"] == {
        "path": "author",
        "base": None,
        "local": None,
        "upstream": "Acme Ops",
    }
    assert path.read_text() == text
    run_merge(full, "ours", "ours")
    kept = read_data(path, "agent")
    assert (kept["description"], kept.get("author")) == ("Base triage", None)
    assert kept["fork_of"]["version"] == "2.0.0"
    path.write_text(text)
    run_merge(full, "ours", "theirs")
    taken = read_data(path, "agent")
    assert (taken["description"], taken["author"], taken["license"]) == (
        "Better triage",
        "Acme Ops",
        "MIT",
    )


def test_a_fork_record_without_a_version_is_not_taken_for_up_to_date(full: ForgeService) -> None:
    path = fork(full, "base-triage@1.0.0", "ours")
    record = read_data(path, "agent")["fork_of"]
    text = path.read_text().split("fork_of:")[0] + f"fork_of: {record['name']}\n"
    path.write_text(text)
    with pytest.raises(ForgeError, match="needs a decision"):
        run_merge(full, "ours")
    assert path.read_text() == text


LINES = [f"Line {number}.\n" for number in range(1, 7)]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_long_prompt_is_merged_by_line(full: ForgeService, home: Path, newline: str) -> None:
    shared = home / ".fractary/registry/agents"
    header = agent("note", version="{v}").split("system_prompt")[0]
    old, new = "".join(LINES), "".join([*LINES, "From upstream.\n"])
    for version, body in (("1.0.0", old), ("1.1.0", new)):
        text = f"---\n{header.replace('{v}', version)}---\n{body}"
        write(shared, {f"note@{version}/agent.md": text})
    path = fork(full, "note@1.0.0", "my-note")
    changed = path.read_text().replace("Line 1.", "Our first line.").replace("\n", newline)
    path.write_bytes(changed.encode())
    plan = run_merge(full, "my-note")
    assert [edit.path for edit in plan.edits] == [("version",), ("system_prompt",)]
    prompt = read_data(path, "agent")["system_prompt"]
    assert prompt == new.replace("Line 1.", "Our first line.").strip()
    written = path.read_bytes()
    assert written.count(b"\r\n") == (written.count(b"\n") if newline == "\r\n" else 0)


def test_lines_that_both_sides_changed_are_a_conflict() -> None:
    def text(**changes: str) -> dict[str, str]:
        lines = {f"l{number}": line for number, line in enumerate(LINES, 1)}
        return {"prompt": "".join({**lines, **changes}.values())}

    base = text()
    apart = three_way(base, text(l1="ours\n"), text(l4="theirs\n", l6=""))
    assert apart == [Edit(("prompt",), text(l1="ours\n", l4="theirs\n", l6="")["prompt"])]
    alike = three_way(base, text(l1="both\n", l4="ours\n"), text(l1="both\n"))
    assert alike == [Edit(("prompt",), text(l1="both\n", l4="ours\n")["prompt"])]
    for ours, theirs in (
        ({"l2": "ours\n"}, {"l2": "theirs\n"}),
        ({"l2": "ours\n"}, {"l3": "theirs\n"}),
        ({"l2": ""}, {"l2": "theirs\n"}),
    ):
        (result,) = three_way(base, text(**ours), text(**theirs))
        assert isinstance(result, Conflict)


lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), max_size=8)


@given(lines, lines, lines)
def test_merged_lines_come_from_one_side_or_the_base(
    base: list[str], local: list[str], upstream: list[str]
) -> None:
    before, ours, theirs = ("".join(each) for each in (base, local, upstream))
    merged = merged_text(before, ours, theirs)
    assert merged == merged_text(before, theirs, ours)
    assert merged_text(before, ours, before) == merged_text(before, ours, ours) == ours
    if merged is not None:
        assert set(merged.splitlines(True)) <= {*base, *local, *upstream}


@given(lines, lines, lines, lines)
def test_changes_that_lie_apart_are_both_taken(
    first: list[str], second: list[str], other_first: list[str], other_second: list[str]
) -> None:
    wall = [f"wall {number}\n" for number in range(8)]
    base = "".join([*first, *wall, *second])
    ours = "".join([*other_first, *wall, *second])
    theirs = "".join([*first, *wall, *other_second])
    assert merged_text(base, ours, theirs) == "".join([*other_first, *wall, *other_second])


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
