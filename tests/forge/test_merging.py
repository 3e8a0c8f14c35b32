"""Forks made and merged: by field, by line, and only where nobody's change is lost."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.forge.definition import read_data
from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.forking import MergePlan, create_fork, merge
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.forge.three_way import Conflict, Sides, applied, merge_lines, same, three_way
from tests.forge.tree import TRIAGE, agent, tool, write

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def fork(forge: ForgeService, source: str, name: str, kind: Any = None) -> Path:
    workspace = forge.workspace()
    made = create_fork(workspace.configuration, workspace.resolver, kind, source, name, NOW)
    assert forge.directories.root
    return forge.directories.root / made.path


def run_merge(forge: ForgeService, name: str, prefer: Any = None, **more: Any) -> MergePlan:
    return merge(forge.workspace().forks, forge.directories.project, name, prefer, NOW, **more)


def merged_text(base: str, local: str, upstream: str) -> str | None:
    found = merge_lines(base, local, upstream, "x", Sides("ours", "theirs"))
    return None if found.conflicts else found.text


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
    copied = TRIAGE.replace("name: acme:triage", "name: triage-two")
    header, record = path.read_text().split("fork_of:")
    assert copied.startswith(header)
    assert copied.endswith(record.split("---\n", 1)[1])


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
    shutil.rmtree(full.directories.project / "forks")
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
    assert plan.changes == ("version", "system_prompt")
    prompt = read_data(path, "agent")["system_prompt"]
    assert prompt == new.replace("Line 1.", "Our first line.").strip()
    written = path.read_bytes()
    assert written.count(b"\r\n") == (written.count(b"\n") if newline == "\r\n" else 0)


def text(**changes: str) -> str:
    lines = {f"l{number}": line for number, line in enumerate(LINES, 1)}
    return "".join({**lines, **changes}.values())


def test_lines_that_both_sides_changed_are_a_conflict() -> None:
    base = text()
    apart = merged_text(base, text(l1="ours\n"), text(l4="theirs\n", l6=""))
    assert apart == text(l1="ours\n", l4="theirs\n", l6="")
    alike = merged_text(base, text(l1="both\n", l4="ours\n"), text(l1="both\n"))
    assert alike == text(l1="both\n", l4="ours\n")
    for ours, theirs in (
        ({"l2": "ours\n"}, {"l2": "theirs\n"}),
        ({"l2": "ours\n"}, {"l3": "theirs\n"}),
        ({"l2": ""}, {"l2": "theirs\n"}),
    ):
        assert merged_text(base, text(**ours), text(**theirs)) is None


def test_only_the_hunk_in_dispute_is_marked() -> None:
    ours = text(l1="ours\n", l6="mine\n")
    theirs = text(l3="theirs\n", l6="yours\n")
    found = merge_lines(text(), ours, theirs, "prompt", Sides("my-note", "note 1.1.0"))
    assert found.text == text(
        l1="ours\n",
        l3="theirs\n",
        l6="<<<<<<< my-note\nmine\n=======\nyours\n>>>>>>> note 1.1.0\n",
    )
    assert [each.path for each in found.conflicts] == [("prompt (line 6)",)]
    for side, last in (("ours", "mine\n"), ("theirs", "yours\n")):
        chosen = merge_lines(text(), ours, theirs, "prompt", Sides("a", "b", side))
        assert chosen.text == text(l1="ours\n", l3="theirs\n", l6=last)


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


@given(mappings, mappings)
def test_a_fork_without_changes_becomes_upstream(
    base: dict[str, Any], upstream: dict[str, Any]
) -> None:
    results = three_way(base, base, upstream)
    assert not any(isinstance(each, Conflict) for each in results)
    assert same(applied(base, results, take=False), upstream)


@given(mappings, mappings, mappings)
def test_a_merge_is_the_same_from_both_sides(
    base: dict[str, Any], local: dict[str, Any], upstream: dict[str, Any]
) -> None:
    one = {each.path for each in three_way(base, local, upstream) if isinstance(each, Conflict)}
    two = {each.path for each in three_way(base, upstream, local) if isinstance(each, Conflict)}
    assert one == two
    assert three_way(base, local, base) == []
    assert three_way(base, local, local) == []


# A fork knows its owner, keeps its base, and comes with its directory.


def helper(owner: str, version: str = "1.0.0", **more: str) -> dict[str, Any]:
    """A plugin that ships a tool `cli-helper` in a directory, with a script."""
    body = more.get("body", f"Helps {owner}.\n\nStep one.   \nStep two.\n")
    header = f"---\nname: cli-helper\ntype: tool\ndescription: Of {owner}\nversion: {version}\n"
    place = f"plugins/{owner}"
    return {
        f"{place}/plugin.json": {"name": owner, "version": version},
        f"{place}/tools/cli-helper/tool.md": f"{header}parameters: {{}}\n"
        f"implementation: {{type: bash, bash: {{command: ./scripts/run.sh}}}}\n---\n{body}",
        f"{place}/tools/cli-helper/scripts/run.sh": more.get("script", f"echo {owner}\n"),
    }


def test_a_fork_stays_with_its_owner(forge: ForgeService, work: Path) -> None:
    write(work / ".fractary", {**helper("docs"), **helper("work")})
    path = fork(forge, "work/cli-helper", "my-cli")
    assert read_data(path, "tool")["fork_of"]["name"] == "work/cli-helper"
    assert forge.fork_list().forks[0].upstream.name == "work/cli-helper"
    before = path.read_text()
    assert forge.fork_diff("my-cli").differences == ()
    assert forge.fork_diff("my-cli").unified == ""
    write(work / ".fractary", helper("docs", "9.0.0", body="Of docs.\n"))
    assert forge.fork_check("my-cli").updates == ()
    assert run_merge(forge, "my-cli", "theirs").is_needed is False
    assert path.read_text() == before
    write(work / ".fractary", helper("work", "1.1.0"))
    assert [each.upstreamVersion for each in forge.fork_check("my-cli").updates] == ["1.1.0"]


def test_a_fork_is_verbatim_with_its_directory(forge: ForgeService, work: Path) -> None:
    write(work / ".fractary", helper("work"))
    (work / ".fractary/plugins/work/tools/cli-helper/scripts/run.sh").chmod(0o755)
    path = fork(forge, "work/cli-helper", "my-cli")
    assert path.read_text().endswith("---\nHelps work.\n\nStep one.   \nStep two.\n")
    script = path.parent / "scripts/run.sh"
    assert script.read_text() == "echo work\n"
    assert script.stat().st_mode & 0o100
    prompt = agent("spaces").replace("Be brief.", "Be brief.   \n\n  Two  ")
    write(work / ".fractary", {"agents/spaces.yaml": prompt})
    copied = fork(forge, "spaces", "my-spaces").read_text()
    assert copied.startswith(prompt.replace("name: spaces", "name: my-spaces"))


def test_the_kept_base_merges_after_upstream_has_moved_on(forge: ForgeService, work: Path) -> None:
    write(work / ".fractary", helper("work"))
    path = fork(forge, "work/cli-helper", "my-cli")
    path.write_text(path.read_text().replace("Helps work.", "Helps me."))
    (path.parent / "notes.txt").write_text("mine")
    newer = "Helps work.\n\nStep one.   \nStep two, now better.\n"
    write(work / ".fractary", helper("work", "1.1.0", body=newer, script="echo new\n"))
    shutil.rmtree(work / ".fractary/plugins/work/tools/cli-helper/scripts")
    write(work / ".fractary", helper("work", "1.1.0", body=newer, script="echo new\n"))
    plan = run_merge(forge, "my-cli")
    assert plan.changes == ("version", "extended_description", "scripts/run.sh")
    assert path.read_text().endswith("---\nHelps me.\n\nStep one.   \nStep two, now better.\n")
    assert (path.parent / "scripts/run.sh").read_text() == "echo new\n"
    assert (path.parent / "notes.txt").read_text() == "mine"
    assert run_merge(forge, "my-cli").is_needed is False


def test_a_conflict_goes_to_a_copy_and_is_finished_there(forge: ForgeService, work: Path) -> None:
    write(work / ".fractary", helper("work"))
    path = fork(forge, "work/cli-helper", "my-cli")
    path.write_text(path.read_text().replace("Step two.", "My step."))
    before = path.read_bytes()
    newer = "Helps everyone.\n\nStep one.   \nTheir step.\n"
    write(work / ".fractary", helper("work", "1.1.0", body=newer))
    with pytest.raises(ForgeError) as caught:
        run_merge(forge, "my-cli")
    copy = work / ".fractary/forks/tools/my-cli/conflict/tool.md"
    assert caught.value.details["copies"] == [".fractary/forks/tools/my-cli/conflict/tool.md"]
    assert path.read_bytes() == before
    assert copy.read_text().endswith(
        "---\nHelps everyone.\n\nStep one.   \n"
        "<<<<<<< my-cli\nMy step.\n=======\nTheir step.\n>>>>>>> work/cli-helper 1.1.0\n"
    )
    with pytest.raises(ForgeError, match="still has markers"):
        run_merge(forge, "my-cli", resolved=True)
    settled = copy.read_text().split("<<<<<<<")[0] + "Both steps.\n"
    copy.write_text(settled)
    run_merge(forge, "my-cli", resolved=True)
    assert path.read_text().endswith("---\nHelps everyone.\n\nStep one.   \nBoth steps.\n")
    assert read_data(path, "tool")["fork_of"]["version"] == "1.1.0"
    assert not copy.parent.exists()
    with pytest.raises(ForgeError, match="no merge to finish"):
        run_merge(forge, "my-cli", resolved=True)


def test_other_files_under_the_same_version_are_an_update(forge: ForgeService, work: Path) -> None:
    write(work / ".fractary", helper("work"))
    fork(forge, "work/cli-helper", "my-cli")
    assert forge.fork_info("my-cli").hasUpstreamUpdate is False
    write(work / ".fractary", helper("work", script="echo other\n"))
    assert forge.fork_list().forks[0].hasUpstreamUpdate is True
    assert forge.fork_check().total == 1
    assert run_merge(forge, "my-cli").changes == ("scripts/run.sh",)
    assert forge.fork_check().total == 0


def test_unified_is_a_line_diff_of_the_markdown(forge: ForgeService, work: Path) -> None:
    write(work / ".fractary", helper("work"))
    path = fork(forge, "work/cli-helper", "my-cli")
    path.write_text(path.read_text().replace("Step two.", "My step."))
    (path.parent / "scripts/run.sh").write_text("echo mine\n")
    lines = forge.fork_diff("my-cli").unified.splitlines()
    assert [line for line in lines if line[:1] in "+-"] == [
        "--- cli-helper@1.0.0",
        "+++ my-cli@1.0.0",
        "-Step two.",
        "+My step.",
        "--- cli-helper@1.0.0/scripts/run.sh",
        "+++ my-cli@1.0.0/scripts/run.sh",
        "-echo work",
        "+echo mine",
    ]


def test_what_a_plugins_tool_extends_is_still_meant(forge: ForgeService, work: Path) -> None:
    write(
        work / ".fractary",
        {
            "plugins/work/plugin.json": {"name": "work", "version": "1.0.0"},
            "plugins/work/tools/base.yaml": tool("base", tags="of-work"),
            "plugins/work/tools/child.yaml": tool("child", more="extends: base@^1.0.0\n"),
            "plugins/docs/plugin.json": {"name": "docs", "version": "1.0.0"},
            "plugins/docs/tools/base.yaml": tool("base", tags="of-docs"),
        },
    )
    path = fork(forge, "work/child", "my-child")
    assert read_data(path, "tool")["extends"] == "work/base@^1.0.0"
    assert "of-work" in forge.info("tool", "my-child").tags
