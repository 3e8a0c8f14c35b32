"""Lists and details over the realistic tree."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.errors import ForgeError
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import jsonable
from tests.forge.tree import agent, tool, write


def listed(result: dict[str, Any], key: str = "agents") -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in jsonable(result)[key]}


def test_list_has_every_readable_agent_once_nearest_first(full: ForgeService) -> None:
    result = full.listing("agent")
    rows = jsonable(result)["agents"]
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names)) == result.total
    assert {"acme:triage", "echo-bot", "writer", "planner", "@acme/scoped", "helper-agent"} <= set(
        names
    )
    sources = [row["source"] for row in rows]
    assert sources == sorted(sources, key=["local", "global", "stockyard"].index)
    assert listed(result)["reviewer"] == {
        "name": "reviewer",
        "version": "1.0.0",
        "description": "Does reviewer",
        "tags": ["code", "review"],
        "source": "local",
        "path": ".fractary/agents/reviewer.yaml",
    }


def test_broken_files_are_warnings_and_never_rows(full: ForgeService) -> None:
    result = full.listing("agent")
    warned = "\n".join(result.warnings)
    for name in ("broken", "twice", "binary", "latin", "list"):
        assert f"{name}.yaml" in warned
        assert name not in listed(result)
    assert "duplicate key 'name' (line 2)" in warned
    assert "binary file" in warned
    assert "notes.txt" not in warned


def test_a_definition_that_fails_the_schema_is_still_listed(full: ForgeService) -> None:
    rows = listed(full.listing("agent"))
    assert rows["no-version"]["version"] == ""
    assert "bad-llm" in rows


def test_a_directory_wins_over_a_flat_file_of_the_same_name(full: ForgeService) -> None:
    assert listed(full.listing("agent"))["both"]["version"] == "2.0.0"
    assert full.info("agent", "both").path == ".fractary/agents/both/agent.yaml"


def test_source_narrows_the_list_and_global_shows_the_newest_version(full: ForgeService) -> None:
    rows = listed(full.listing("agent", source="global"))
    assert set(rows) == {"base-support", "base-triage", "reviewer", "global-only", "preview"}
    assert rows["base-support"]["version"] == "2.0.0"
    assert rows["reviewer"]["version"] == "0.9.0"
    assert Path(rows["global-only"]["path"]).is_absolute()


def test_tags_match_any(full: ForgeService) -> None:
    rows = listed(full.listing("agent", tags=["echo", "plan"]))
    assert set(rows) == {"echo-bot", "planner"}


def test_pages_cover_the_whole_list_without_overlap(full: ForgeService) -> None:
    whole = [row.name for row in full.listing("agent", limit=1000).agents]
    pages = []
    for offset in range(0, len(whole), 4):
        page = full.listing("agent", limit=4, offset=offset)
        assert page.total == len(whole)
        assert (page.limit, page.offset) == (4, offset)
        pages += [row.name for row in page.agents]
    assert pages == whole
    assert jsonable(full.listing("agent", offset=5000).agents) == []


def test_list_and_info_agree_on_every_row(full: ForgeService) -> None:
    for kind in ("agent", "tool"):
        for row in jsonable(full.listing(kind, limit=1000))[f"{kind}s"]:
            info = jsonable(full.info(kind, row["name"]))
            for key, value in row.items():
                if key != "tags" and key != "description":  # a base may add to them
                    assert info[key] == value, (row["name"], key)


def test_agent_info_has_what_it_inherits_and_needs(full: ForgeService) -> None:
    info = jsonable(full.info("agent", "acme:triage"))
    assert info["extends"] == "base-support@^1.4.0"
    assert info["tools"] == ["log", "ticket-read", "ticket-label@~2.1.0"]
    assert info["tags"] == ["support", "base", "triage"]
    assert info["prompt"] == "# Triage\nOrder tickets by customer impact, then by age."
    assert (info["author"], info["license"]) == ("Acme Ops", "MIT")
    assert info["dependencies"] == [
        {"name": "base-support", "version": "1.4.2", "type": "agent"},
        {"name": "log", "version": "1.0.0", "type": "tool"},
        {"name": "ticket-read", "version": "1.2.0", "type": "tool"},
        {"name": "ticket-label", "version": "2.1.4", "type": "tool"},
    ]
    assert "warnings" not in info


def test_a_missing_base_or_tool_is_a_warning_of_info(full: ForgeService) -> None:
    info = full.info("agent", "orphan")
    assert jsonable(info.dependencies) == [
        {"name": "nowhere", "version": "^1.0.0", "type": "agent"},
        {"name": "gone", "version": "latest", "type": "tool"},
    ]
    warned = "\n".join(info.warnings)
    assert "extends nowhere@^1.0.0, which is not found" in warned
    assert "Tool gone is not found" in warned


def test_cycles_are_named(full: ForgeService) -> None:
    assert (
        "circular extends: loop-a -> loop-b -> loop-a" in full.info("agent", "loop-a").warnings[0]
    )
    assert jsonable(full.info("tool", "ring-a").warnings) == [
        "Circular dependency: ring-a -> ring-b -> ring-a"
    ]


@pytest.mark.parametrize(
    ("name", "version", "found"),
    [
        ("base-support", None, "2.0.0"),
        ("base-support", "^1.0.0", "1.4.2"),
        ("base-support@~1.3.0", None, "1.3.0"),
        ("base-support", "1.3.0", "1.3.0"),
        ("base-support@>=1.0.0 <2.0.0 || >=3.0.0", None, "1.4.2"),
        ("preview", None, "1.0.0-beta.1"),
        ("reviewer", "^0.9.0", "0.9.0"),
        ("reviewer", None, "1.0.0"),
    ],
)
def test_versions_and_ranges_choose(
    full: ForgeService, name: str, version: str | None, found: str
) -> None:
    assert full.info("agent", name, version).version == found


def test_a_version_nobody_has_names_those_there_are(full: ForgeService) -> None:
    with pytest.raises(ForgeError) as caught:
        full.info("agent", "base-support", "^9.0.0")
    payload = caught.value.payload()
    assert payload["code"] == "AGENT_NOT_FOUND"
    assert payload["details"]["availableVersions"] == ["1.3.0", "1.4.2", "2.0.0"]


def test_a_misspelt_name_gets_a_suggestion(full: ForgeService) -> None:
    with pytest.raises(ForgeError) as caught:
        full.info("tool", "tiket-read")
    payload = caught.value.payload()
    assert payload["code"] == "TOOL_NOT_FOUND"
    assert payload["details"]["similar"][0] == "ticket-read"
    assert "fractary_forge_tool_list" in payload["suggestions"][-1]


def test_two_different_versions_at_once_are_refused(full: ForgeService) -> None:
    with pytest.raises(ForgeError, match="asks for version"):
        full.info("agent", "base-support@^1.0.0", "2.0.0")


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../../b",
        "/etc/passwd",
        "a*",
        "a?b",
        "[a]",
        "",
        " ",
        "a\x00b",
        "~",
        ".",
        "a b",
        "x" * 500,
        "..",
        "@",
        "@/x",
        "a//b",
        "a\\b",
        "{{x}}",
        "-rf",
    ],
)
def test_hostile_names_are_refused_clearly(full: ForgeService, name: str) -> None:
    for kind in ("agent", "tool"):
        with pytest.raises(ForgeError) as caught:
            full.info(kind, name)
        assert caught.value.code == "VALIDATION_ERROR"
        assert len(str(caught.value)) < 400


def test_plugin_parts_resolve_by_bare_and_by_full_name(full: ForgeService) -> None:
    bare = full.info("agent", "helper-agent")
    assert bare.path == ".fractary/plugins/@acme/helper/agents/helper-agent.yaml"
    assert full.info("agent", "@acme/helper/helper-agent").path == bare.path


def test_tool_info_gives_json_schemas(full: ForgeService) -> None:
    info = jsonable(full.info("tool", "ticket-read"))
    assert info["inputSchema"] == {
        "type": "object",
        "properties": {
            "target": {"type": "string", "description": "What to work on"},
            "depth": {"type": "integer", "description": "How far to go", "default": 3},
            "ticket_id": {"type": "string", "description": "Ticket key"},
            "view": {
                "type": "string",
                "description": "Form",
                "enum": ["short", "full"],
                "default": "short",
            },
            "filter": {
                "type": "object",
                "description": "Narrows down",
                "properties": {"since": {"type": "string", "description": "A date"}},
                "required": ["since"],
            },
        },
        "required": ["target", "ticket_id"],
    }
    assert info["outputSchema"] == {"type": "object", "properties": {"title": {"type": "string"}}}
    assert info["license"] == "Apache-2.0"


def test_tool_info_understands_published_dialects(full: ForgeService) -> None:
    assert jsonable(full.info("tool", "repo-status").inputSchema["required"]) == ["branch"]
    assert jsonable(full.info("tool", "old-style").inputSchema["properties"]) == {
        "dir": {"type": "string"}
    }


def test_a_parameter_called_type_is_not_taken_for_a_schema(forge: ForgeService, work: Path) -> None:
    text = tool("odd").replace("  target:", "  type: {type: string, required: true}\n  target:")
    write(work / ".fractary/tools", {"odd.yaml": text})
    assert "type" in forge.info("tool", "odd").inputSchema["properties"]


def test_a_broken_local_file_gives_way_to_a_global_one_with_a_warning(
    full: ForgeService, work: Path
) -> None:
    (work / ".fractary/agents/global-only.yaml").write_text("a: [")
    info = full.info("agent", "global-only")
    assert info.source == "global"
    assert ".fractary/agents/global-only.yaml" in info.warnings[0]


def test_a_name_that_is_only_in_a_broken_file_says_which(full: ForgeService) -> None:
    with pytest.raises(ForgeError) as caught:
        full.info("agent", "broken")
    assert caught.value.code == "VALIDATION_ERROR"
    assert ".fractary/agents/broken.yaml: not valid YAML" in str(caught.value)


def test_a_changed_a_new_and_a_removed_file_are_seen(full: ForgeService, work: Path) -> None:
    path = work / ".fractary/agents/echo-bot/agent.yaml"
    for turn in range(3):
        path.write_text(agent("echo-bot", version=f"5.0.{turn}"))
        assert listed(full.listing("agent"))["echo-bot"]["version"] == f"5.0.{turn}"
    markdown = path.with_name("agent.md")
    markdown.write_text("---\nversion: 6.0.0\n---\nHi")
    assert listed(full.listing("agent"))["echo-bot"]["version"] == "6.0.0"
    markdown.unlink()
    path.unlink()
    assert "echo-bot" not in listed(full.listing("agent"))


def test_a_change_that_keeps_size_and_time_is_seen(full: ForgeService, work: Path) -> None:
    path = work / ".fractary/agents/reviewer.yaml"
    full.listing("agent")
    before = path.stat()
    path.write_text(path.read_text().replace("1.0.0", "1.0.1"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert listed(full.listing("agent"))["reviewer"]["version"] == "1.0.1"


def test_links_inside_work_and_links_outside_are_refused(
    full: ForgeService, work: Path, tmp_path: Path
) -> None:
    agents = work / ".fractary/agents"
    (tmp_path / "secret.yaml").write_text(agent("secret"))
    (agents / "leak.yaml").symlink_to(tmp_path / "secret.yaml")
    (agents / "self.yaml").symlink_to(agents / "self.yaml")
    (agents / "around").symlink_to(agents)
    (work / "shared.yaml").write_text(agent("shared"))
    (agents / "shared.yaml").symlink_to(work / "shared.yaml")
    result = full.listing("agent")
    assert "shared" in listed(result)
    warned = "\n".join(result.warnings)
    assert "leak.yaml: a symbolic link that points outside" in warned
    assert "self.yaml: a broken symbolic link" in warned
    with pytest.raises(ForgeError, match="points outside"):
        full.info("agent", "leak")
    with pytest.raises(ForgeError, match="points outside"):
        full.validate("agent", name="leak")


def test_a_fractary_directory_that_is_a_link_works(
    forge: ForgeService, work: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "dotfiles"
    write(elsewhere, {"agents/one/agent.yaml": agent("one")})
    (work / ".fractary").symlink_to(elsewhere)
    assert list(listed(forge.listing("agent"))) == ["one"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: " + b"x" * 10_000_000, "10,000,003 bytes"),
        (
            b"a: &a [x,x]\n"
            + b"".join(
                b"b%d: &b%d [*a,*a,*a,*a,*a,*a,*a,*a]\n" % (n, n)
                if n == 0
                else b"b%d: &b%d [*b%d,*b%d,*b%d,*b%d,*b%d,*b%d,*b%d,*b%d]\n" % (n, n, *[n - 1] * 8)
                for n in range(9)
            ),
            "aliases expand too far",
        ),
        (b"[" * 50_000, "nested deeper"),
        (b"a: *a", "undefined alias"),
    ],
    ids=["ten-megabytes", "bomb", "deep", "alias"],
)
def test_hostile_files_are_named_in_bounded_time(
    forge: ForgeService, work: Path, content: bytes, expected: str
) -> None:
    write(work / ".fractary/agents", {"evil.yaml": content, "good.yaml": agent("good")})
    result = forge.listing("agent")
    assert list(listed(result)) == ["good"]
    assert expected in result.warnings[0]


def test_a_pipe_among_the_definitions_does_not_hang(forge: ForgeService, work: Path) -> None:
    write(work / ".fractary/agents", {"good.yaml": agent("good")})
    os.mkfifo(work / ".fractary/agents/pipe.yaml")
    assert "not a regular file" in forge.listing("agent").warnings[0]


def test_configured_paths_and_switches_are_honoured(
    full: ForgeService, work: Path, configure: Callable[..., None]
) -> None:
    write(work, {"defs/agents/moved.yaml": agent("moved")})
    configure(registry={"local": {"agents_path": "defs/agents"}}, resolution={"global": False})
    rows = listed(full.listing("agent"))
    assert "moved" in rows
    assert "reviewer" not in rows
    assert "is not searched. Switch it on" in full.listing("agent", source="global").warnings[0]
    with pytest.raises(ForgeError, match=r"in local$"):
        full.info("agent", "global-only")


def test_many_warnings_are_cut_short(forge: ForgeService, work: Path) -> None:
    write(work / ".fractary/agents", {f"bad{n:03}.yaml": "a: [" for n in range(80)})
    warnings = forge.listing("agent").warnings
    assert len(warnings) == 51
    assert warnings[-1] == "… and 30 more warnings"


def test_a_tool_that_an_agent_brings_along_is_not_missed(forge: ForgeService, work: Path) -> None:
    more = "custom_tools:\n- {name: own, type: tool}\n"
    text = agent("maker", tools="own, gone") + more
    write(work, {".fractary/agents/maker.yaml": text})
    info = forge.info("agent", "maker")
    assert [each.name for each in info.dependencies] == ["gone"]
    assert jsonable(info.warnings) == ["Tool gone is not found in any source"]
    errors = forge.validate("agent", name="maker", strict=True).errors
    assert [e.field for e in errors if "Tool not found" in e.message] == ["tools.1"]
