"""Forge in repositories that were not made for it: every program's files are found and shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.names import Directories, Kind
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import UNKNOWN, jsonable
from tests.forge import programs
from tests.forge.tree import agent, plugin_manifest, tool, write


@pytest.fixture
def mixed(work: Path, home: Path, forge: ForgeService) -> ForgeService:
    """A service over a project and a home with the files of every program."""
    programs.fill(work, home)
    return forge


def rows(forge: ForgeService, kind: Kind) -> dict[str, tuple[str, str, str]]:
    """Version, source and format of each listed name."""
    listed = jsonable(forge.listing(kind))[f"{kind}s"]
    return {each["name"]: (each["version"], each["source"], each["format"]) for each in listed}


def test_agents_of_every_program_are_listed(mixed: ForgeService) -> None:
    assert rows(mixed, "agent") == {
        "code-reviewer": ("0.0.0", "local", "claude-agent"),
        "code-explorer": ("0.0.0", "local", "codex-agent"),
        "dba": ("0.0.0", "local", "copilot-agent"),
        "planner": ("0.0.0", "local", "claude-agent"),
        "unit-tester": ("1.2.3", "local", "claude-agent"),
        "helper": ("0.0.0", "global", "claude-agent"),
        "far": ("2.0.0", "global", "claude-agent"),
    }


def test_skills_and_commands_are_tools(mixed: ForgeService) -> None:
    assert rows(mixed, "tool") == {
        "pdf": ("0.0.0", "local", "agent-skill"),
        "git:commit": ("0.0.0", "local", "claude-command"),
        "csv": ("0.0.0", "local", "agent-skill"),
        "tester/pdf": ("1.2.3", "local", "agent-skill"),
        "run": ("1.2.3", "local", "claude-command"),
        "docx": ("0.0.0", "local", "agent-skill"),
        "notes": ("0.0.0", "global", "agent-skill"),
    }


def test_plugins_of_the_project_and_of_claude_code_are_listed(mixed: ForgeService) -> None:
    listed = jsonable(mixed.plugin_list())["plugins"]
    assert {(each["name"], each["version"], each["scope"], each["format"]) for each in listed} == {
        ("tester", "1.2.3", "local", "claude-plugin"),
        ("flat", "0.0.0", "local", "claude-plugin"),
        ("documents", "0.0.0", "local", "claude-plugin"),
        ("installed", "2.0.0", "global", "claude-plugin"),
    }


@pytest.mark.parametrize("kind", ["agent", "tool"])
def test_every_listed_name_has_an_info_and_a_verdict(mixed: ForgeService, kind: Kind) -> None:
    for row in jsonable(mixed.listing(kind))[f"{kind}s"]:
        info = jsonable(mixed.info(kind, row["name"]))
        assert (info["path"], info["format"]) == (row["path"], row["format"])
        verdict = mixed.validate(kind, name=row["name"])
        assert verdict.valid, (row["name"], verdict.errors)


def test_the_info_of_a_subagent_has_its_prompt_and_the_comma_list(mixed: ForgeService) -> None:
    info = jsonable(mixed.info("agent", "code-reviewer"))
    assert info["tools"] == ["Bash", "Read", "mcp__github__search"]
    assert info["prompt"] == "You are code-reviewer."
    assert "dependencies" not in info  # the program brings its tools
    assert "warnings" not in info
    assert jsonable(mixed.info("agent", "code-explorer"))["prompt"] == "You read code."


def test_a_commands_hint_is_its_input(mixed: ForgeService) -> None:
    schema = jsonable(mixed.info("tool", "git:commit"))["inputSchema"]
    assert schema["properties"]["arguments"]["description"] == "[message]"


def test_a_plugin_shows_hooks_servers_and_parts(mixed: ForgeService) -> None:
    parts = jsonable(mixed.plugin_info("tester"))["components"]
    assert parts == {
        "agents": ["unit"],
        "tools": ["pdf"],
        "workflows": [],
        "hooks": ["Stop"],
        "commands": ["run"],
        "mcpServers": ["db"],
    }
    assert jsonable(mixed.plugin_info("flat"))["components"]["agents"] == ["planner"]
    assert jsonable(mixed.plugin_info("documents"))["components"]["tools"] == ["docx"]


def test_one_owner_may_have_a_name_in_two_formats(forge: ForgeService, work: Path) -> None:
    write(
        work / "plugins/work",
        {
            "plugin.json": plugin_manifest("@acme/work", "3.0.0"),
            "tools/sync/tool.yaml": tool("sync"),
            "skills/sync/SKILL.md": programs.skill("sync"),
            "agents/manager/agent.yaml": agent("manager"),
            "agents/manager.md": programs.subagent("manager"),
        },
    )
    listed = [each.name for each in forge.listing("tool").tools]  # type: ignore[union-attr]
    assert listed == ["sync", "agent-skill/sync"]
    assert forge.info("tool", "agent-skill/sync").path.endswith("SKILL.md")
    assert forge.info("tool", "@acme/work/agent-skill/sync").path.endswith("SKILL.md")
    assert forge.info("tool", "sync").path.endswith("tool.yaml")
    listed = [each.name for each in forge.listing("agent").agents]  # type: ignore[union-attr]
    assert listed == ["manager", "claude-agent/manager"]
    assert forge.info("agent", "claude-agent/manager").path.endswith("manager.md")
    for name in listed:
        assert forge.validate("agent", name=name).path == forge.info("agent", name).path


def test_a_header_that_only_claude_code_understands_is_still_listed(
    forge: ForgeService, work: Path
) -> None:
    text = programs.subagent("loose", "Use this agent: when you are asked to")
    write(work / ".claude/agents", {"loose.md": text})
    listed = jsonable(forge.listing("agent"))
    assert listed["agents"][0]["description"] == "Use this agent: when you are asked to"
    assert "warnings" not in listed


def test_a_loose_directory_counts_only_files_that_say_what_they_are(
    forge: ForgeService, work: Path
) -> None:
    write(
        work,
        {
            "agents/good.md": programs.subagent("good"),
            "agents/notes.md": "---\ntitle: Notes\n---\n# Notes\n",
            "agents/plan.yaml": "steps: [one]\n",
            "src/agents/template.md": programs.subagent("'{{name}}'"),
            "packages/api/.claude/agents/good.md": programs.subagent("good", "Of the package"),
        },
    )
    names = {each.name for each in forge.listing("agent").agents}  # type: ignore[union-attr]
    assert names == {"good", "api/good"}
    assert forge.info("agent", "api/good").description == "Of the package"


@pytest.mark.parametrize("kind", ["agent", "tool"])
def test_an_empty_answer_says_where_it_looked(forge: ForgeService, kind: Kind) -> None:
    warnings = jsonable(forge.listing(kind))["warnings"]
    assert len(warnings) == 1
    assert f"No {kind}s found" in warnings[0]
    assert f".fractary/{kind}s" in warnings[0]
    assert ".claude/" in warnings[0]
    assert ".claude-plugin/plugin.json" in jsonable(forge.plugin_list())["warnings"][0]


def test_without_a_project_the_hint_stands_alone(home: Path) -> None:
    forge = ForgeService(Directories(None, home, dict(os.environ), "Start it in a project"))
    assert jsonable(forge.listing("agent"))["warnings"] == ["Start it in a project"]
    assert jsonable(forge.plugin_list())["warnings"] == ["Start it in a project"]


def test_changes_show_at_once(mixed: ForgeService, work: Path) -> None:
    before = mixed.listing("tool").total
    write(work, {"plugins/tester/skills/new/SKILL.md": programs.skill("new")})
    write(work, {"packages/web/.claude/skills/late/SKILL.md": programs.skill("late")})
    assert mixed.listing("tool").total == before + 2
    (work / "plugins/tester/skills/new/SKILL.md").unlink()
    assert mixed.listing("tool").total == before + 1


def test_links_lead_nowhere_outside(forge: ForgeService, work: Path, home: Path) -> None:
    write(home, {"private/SKILL.md": programs.skill("private"), "secret.md": "---\nname: x\n---\n"})
    write(work, {".agents/skills/csv/SKILL.md": programs.skill("csv")})
    skills = work / ".claude/skills"
    skills.mkdir(parents=True)
    (skills / "private").symlink_to(home / "private")
    (skills / "linked").symlink_to(work / ".agents/skills/csv")
    (skills / "loop").symlink_to(work)
    (work / ".claude/agents").mkdir()
    (work / ".claude/agents/secret.md").symlink_to(home / "secret.md")
    names = {each.name for each in forge.listing("tool").tools}  # type: ignore[union-attr]
    assert names == {"csv", "linked"}
    warnings = jsonable(forge.listing("agent"))["warnings"]
    assert "secret.md: a symbolic link that points outside" in warnings[0]


def test_a_programs_directory_that_is_a_link_stays_inside(
    forge: ForgeService, work: Path, home: Path
) -> None:
    write(home, {"private/notes/secret.md": "Mine\n", "private/skills/x/SKILL.md": "---\n---\n"})
    put(work / ".claude/skills/pdf/SKILL.md", programs.skill("pdf"))
    (work / ".claude/commands").symlink_to(home / "private/notes")
    (work / ".kiro").symlink_to(home / "private")
    (work / ".agents").symlink_to(work / ".claude")
    assert set(rows(forge, "tool")) == {"pdf"}
    assert jsonable(forge.listing("tool"))["warnings"] == [
        f"{each}: a symbolic link that points outside; left out"
        for each in (".claude/commands", ".kiro/skills")
    ]


def test_a_linked_plugin_is_read_and_one_from_outside_is_named(
    forge: ForgeService, work: Path, home: Path
) -> None:
    for base in (work / "dev", home / "elsewhere"):
        write(base / "plug", {"plugin.json": plugin_manifest("plug"), "tools/t.yaml": tool("t")})
    plugins = work / ".fractary/plugins"
    plugins.mkdir(parents=True)
    (plugins / "plug").symlink_to(work / "dev/plug")
    (plugins / "stray").symlink_to(home / "elsewhere/plug")
    assert forge.info("tool", "plug/t").name == "t"
    for answer in (forge.listing("tool"), forge.plugin_list()):
        said = "stray: a symbolic link that points outside"
        assert any(said in each for each in jsonable(answer)["warnings"])


def test_names_that_can_be_none_are_not_listed(forge: ForgeService, work: Path) -> None:
    write(
        work,
        {
            ".claude/agents/two words.md": programs.subagent("fine"),
            ".claude/agents/odd.md": programs.subagent("not a name!"),
            ".claude/skills/b c/SKILL.md": programs.skill("bc"),
            ".fractary/agents/my agent.yaml": agent("my-agent"),
        },
    )
    answer = jsonable(forge.listing("agent"))
    for row in answer["agents"]:
        assert forge.info("agent", row["name"]).path == row["path"]
    assert {row["name"] for row in answer["agents"]} == {"fine", "odd"}
    assert "my agent.yaml" in answer["warnings"][0]


def test_a_directory_where_a_file_is_expected_is_said(
    forge: ForgeService, work: Path, descriptors: Any
) -> None:
    for name in (
        ".fractary/config.json",
        ".fractary/agents/a/agent.md",
        "p/plugin.json",
        "AGENTS.md",
    ):
        (work / name).mkdir(parents=True)
    before = descriptors()
    for _ in range(3):
        answers = [forge.listing("agent"), forge.listing("tool"), forge.plugin_list()]
        said = [each for answer in answers for each in jsonable(answer)["warnings"]]
        assert (
            ".fractary/config.json: a directory, where a file is expected (the file is ignored)"
            in said
        )
        with pytest.raises(Exception, match="a directory, where a file is expected"):
            forge.config_show()
    assert descriptors() == before


@pytest.fixture
def descriptors() -> Any:
    """Counts the open descriptors of this process."""
    place = Path("/proc/self/fd")
    if not place.is_dir():
        pytest.skip("descriptors cannot be counted here")
    return lambda: len(list(place.iterdir()))


def test_an_unclosed_header_is_said_to_be_one(forge: ForgeService, work: Path) -> None:
    write(work / ".fractary/agents", {"open.md": "---\nname: open\ntype: agent\nBe brief.\n"})
    result = forge.validate("agent", path=".fractary/agents/open.md")
    assert [each.message for each in result.errors] == [
        "the header is not closed: end it with a line of three hyphens"
    ]


def put(path: Path, content: object) -> None:
    write(path.parent, {path.name: content})


def test_skills_on_the_shelves_of_a_catalogue_are_listed(work: Path, forge: ForgeService) -> None:
    for shelf in (".curated", ".system", ".archive"):
        put(work / f"skills/{shelf}/of{shelf[1:]}/SKILL.md", programs.skill(f"of{shelf[1:]}"))
    assert set(rows(forge, "tool")) == {"ofcurated", "ofsystem"}


def test_two_plugins_of_one_name_are_told_apart_by_their_directories(
    work: Path, forge: ForgeService
) -> None:
    for folder in ("backups/review", "plugins/review"):
        put(work / folder / ".claude-plugin/plugin.json", programs.claude_plugin("review"))
        put(work / folder / "agents/reviewer.md", programs.subagent("reviewer", f"In {folder}"))
    assert set(rows(forge, "agent")) == {"review/reviewer", "backups/reviewer"}
    assert forge.listing("agent").warnings is UNKNOWN
    for name in ("reviewer", "review/reviewer"):
        assert forge.info("agent", name).description == "In plugins/review"
    assert forge.info("agent", "backups/reviewer").description == "In backups/review"


def test_one_name_in_several_categories_is_listed_from_each(
    work: Path, forge: ForgeService
) -> None:
    for place in ("agents/data", "agents/web"):
        put(work / place / "tuner.md", programs.subagent("tuner", f"In {place}"))
    for category in ("media", "office"):
        put(work / f"skills/{category}/pdf/SKILL.md", programs.skill("pdf", f"Of {category}"))
    assert set(rows(forge, "agent")) == {"tuner", "web/tuner"}
    assert forge.info("agent", "tuner").description == "In agents/data"
    assert forge.info("agent", "web/tuner").description == "In agents/web"
    assert set(rows(forge, "tool")) == {"pdf", "office/pdf"}
    assert forge.info("tool", "office/pdf").description == "Of office"


def test_skills_of_any_program_are_listed(work: Path, home: Path, forge: ForgeService) -> None:
    for program in (".kiro", ".opencode", ".cursor", ".newcomer"):
        put(work / program / f"skills/of-{program[1:]}/SKILL.md", programs.skill("x"))
    put(work / ".git/skills/hooks/SKILL.md", programs.skill("hooks"))
    put(home / ".gemini/skills/mine/SKILL.md", programs.skill("mine"))
    listed = {"of-kiro", "of-opencode", "of-cursor", "of-newcomer"}
    assert set(rows(forge, "tool")) == {*listed, "mine"}
    put(home / ".kiro/skills/later/SKILL.md", programs.skill("later"))
    assert set(rows(forge, "tool")) == {*listed, "mine", "later"}


def test_what_is_archived_inside_a_plugin_is_listed_after_the_rest(
    work: Path, forge: ForgeService
) -> None:
    plugin = work / "plugins/work"
    put(plugin / ".claude-plugin/plugin.json", programs.claude_plugin("work"))
    for place in ("archived/", ""):
        put(plugin / f"{place}skills/issues/SKILL.md", programs.skill("issues", place or "live"))
    put(plugin / "packs/video/agents/cutter.md", programs.subagent("cutter"))
    assert set(rows(forge, "tool")) == {"work/issues", "archived/issues"}
    assert forge.info("tool", "issues").description == "live"
    assert set(rows(forge, "agent")) == {"cutter"}


def test_a_collection_by_category_is_one_of_subagents(work: Path, forge: ForgeService) -> None:
    loose = programs.subagent("tester")
    put(work / "engineering/tester.md", loose)
    put(work / "engineering/renamed.md", loose)  # not called what it says
    put(work / "docs/guide.md", "---\nname: guide\ndescription: How to\n---\nRead.\n")
    put(work / "a/b/c/tester.md", programs.subagent("tester", "Too deep"))
    put(work / "README.md", loose)
    assert set(rows(forge, "agent")) == {"tester"}
    assert forge.listing("agent").warnings is UNKNOWN


def test_a_category_that_is_a_plugin_lists_its_subagents_once(
    work: Path, forge: ForgeService
) -> None:
    category = work / "categories/quality"
    put(category / "tester.md", programs.subagent("tester"))
    put(category / "writer.md", programs.subagent("writer"))
    manifest = {"name": "qa", "version": "1.1.0", "agents": ["./tester.md"]}
    put(category / ".claude-plugin/plugin.json", json.dumps(manifest))
    listed = forge.listing("agent").agents
    assert [(row.name, row.version) for row in listed] == [("tester", "1.1.0"), ("writer", "0.0.0")]


def test_a_skill_may_be_called_as_a_directory_of_resources_is(
    work: Path, forge: ForgeService
) -> None:
    put(work / ".claude/skills/templates/SKILL.md", programs.skill("templates"))
    put(work / ".claude/skills/templates/references/x/SKILL.md", programs.skill("x"))
    put(work / ".claude/commands/scripts/run.md", "Run it.\n")
    assert set(rows(forge, "tool")) == {"templates", "scripts:run"}


def test_a_fork_remembers_the_directory_of_its_upstream(
    work: Path, forge: ForgeService, run: Any
) -> None:
    for category in ("media", "office"):
        put(work / f"skills/{category}/pdf/SKILL.md", programs.skill("pdf", f"Of {category}"))
    run("fork", "create", "office/pdf", "my-pdf")
    assert "Of office" in (work / ".claude/skills/my-pdf/SKILL.md").read_text()
    assert forge.fork_info("my-pdf").upstream.name == "office/pdf"
    put(work / "skills/office/pdf/SKILL.md", programs.skill("pdf", "Of office, newer"))
    run("merge", "my-pdf")
    assert "Of office, newer" in (work / ".claude/skills/my-pdf/SKILL.md").read_text()


def test_a_link_to_a_listed_skill_is_no_copy(work: Path, forge: ForgeService) -> None:
    put(work / ".agents/skills/pdf/SKILL.md", programs.skill("pdf"))
    (work / ".claude/skills").mkdir(parents=True)
    (work / ".claude/skills/pdf").symlink_to("../../.agents/skills/pdf")
    listed = forge.listing("tool")
    assert (listed.total, listed.warnings) == (1, UNKNOWN)


def test_a_program_folder_that_appears_later_is_found(work: Path, forge: ForgeService) -> None:
    put(work / "package/readme.md", "text")
    assert forge.listing("agent").total == 0
    put(work / "package/.claude/agents/late.md", programs.subagent("late"))
    assert set(rows(forge, "agent")) == {"late"}
