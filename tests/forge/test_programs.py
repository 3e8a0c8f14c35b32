"""Verdicts as the programs give them: what they refuse is an error, what they ignore is advice.

The cases were run through `claude plugin validate`, Claude Code's own loader and the reference
validator of Agent Skills.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.names import Kind
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.kit.results import jsonable
from tests.forge.programs import COMMAND, COPILOT, claude_plugin, skill, subagent
from tests.forge.tree import PUBLISHED_TOOL, tool, write

PLUGIN = "plug/.claude-plugin/plugin.json"


def verdict(forge: ForgeService, work: Path, place: str, text: str, **how: Any) -> dict[str, Any]:
    """The verdict on one file."""
    write(work, {place: text})
    kind: Kind = "agent" if "/agents/" in place else "tool"
    return jsonable(forge.validate(kind, path=place, **how))


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("---\ndescription: d\n---\nx\n", "name", "does not load an agent without a name"),
        ("---\nname: a\n---\nx\n", "description", "does not load an agent without a description"),
        ("no header\n", "", "does not load it"),
        ("---\nname: a\ndescription: [b]\n---\nx\n", "description", "received array"),
        ("---\nname: 5\ndescription: d\n---\nx\n", "name", "expected string"),
        ("---\nname: a\ndescription: Use it: now\n---\nx\n", "", "not valid YAML"),
        ("---\nname: a\ndescription: d\nx\n", "", "not closed"),
    ],
)
def test_what_claude_code_does_not_load_as_an_agent(
    forge: ForgeService, work: Path, text: str, field: str, message: str
) -> None:
    result = verdict(forge, work, ".claude/agents/a.md", text)
    assert not result["valid"]
    assert [each["field"] for each in result["errors"]] == [field]
    assert message in result["errors"][0]["message"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tools: 5", "Claude Code ignores it; this is number (line 4)"),
        ("tools: Bash, Foo", "Claude Code has no tool 'Foo' and leaves it out (line 4)"),
        ("color: mauve", "Claude Code shows it without a colour"),
        ("permissionMode: wild", "Claude Code ignores it"),
        ("allowed-tools: Bash", "the field is `tools`"),
        ("descripton: x", "Claude Code ignores this field; did you mean `description`?"),
    ],
)
def test_what_claude_code_ignores_in_an_agent_is_advice_with_its_line(
    forge: ForgeService, work: Path, line: str, message: str
) -> None:
    text = f"---\nname: a\ndescription: d\n{line}\n---\nx\n"
    result = verdict(forge, work, ".claude/agents/a.md", text, strict=True)
    assert result["valid"]
    assert message in result["warnings"][0]["message"]


def test_a_plain_subagent_needs_no_advice(forge: ForgeService, work: Path) -> None:
    text = subagent("a").replace("model: sonnet", "model: opus\ncolor: blue\nskills: pdf")
    write(work, {".claude/skills/pdf/SKILL.md": skill("pdf")})
    result = verdict(forge, work, ".claude/agents/a.md", text, strict=True)
    assert (result["errors"], result["warnings"]) == ([], [])
    text = text.replace("skills: pdf", "skills: gone")
    result = verdict(forge, work, ".claude/agents/a.md", text)
    assert result["warnings"][0]["message"].startswith("Tool not found: gone")


def test_in_a_plugin_an_agent_may_be_named_by_its_file(forge: ForgeService, work: Path) -> None:
    write(work, {PLUGIN: claude_plugin("plug")})
    text = "---\ndescription: d\nhooks: {}\n---\nx\n"
    result = verdict(forge, work, "plug/agents/a.md", text)
    assert result["valid"]
    said = {each["field"]: each["message"] for each in result["warnings"]}
    assert "calls it 'a', after its file" in said["name"]
    assert "ignores it in an agent of a plugin" in said["hooks"]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (COMMAND, []),
        ("Just do it.\n", []),
        ("---\nname: open\nDo it.\n", []),
        (
            "---\ndescription: [1]\nallowed-tools: 5\nfoo: 1\n---\nx",
            ["description", "allowed-tools"],
        ),
        ("---\nshell: zsh\n---\nx", ["shell"]),
    ],
)
def test_commands(forge: ForgeService, work: Path, text: str, fields: list[str]) -> None:
    result = verdict(forge, work, ".claude/commands/x.md", text)
    assert [each["field"] for each in result["errors"]] == fields


@pytest.mark.parametrize(
    ("header", "field"),
    [
        ("name: csv\ndescription: d", None),
        ("name: csv\ndescription: d\nlicense: MIT\nmetadata: {a: b}\nallowed-tools: Read", None),
        ("description: d", "name"),
        ("name: csv", "description"),
        ("name: other\ndescription: d", "name"),
        ("name: Csv\ndescription: d", "name"),
        ("name: csv--x\ndescription: d", "name"),
        (f"name: csv\ndescription: {'d' * 1025}", "description"),
        (f"name: csv\ndescription: d\ncompatibility: {'c' * 501}", "compatibility"),
        ("name: csv\ndescription: d\nwhen_to_use: often", "when_to_use"),
    ],
)
def test_a_skill_follows_the_specification_or_claude_code(
    forge: ForgeService, work: Path, header: str, field: str | None
) -> None:
    text = f"---\n{header}\n---\nDo it.\n"
    expected = [field] if field else []
    neutral = verdict(forge, work, ".agents/skills/csv/SKILL.md", text)
    assert [each["field"] for each in neutral["errors"]] == expected
    lenient = verdict(forge, work, ".claude/skills/csv/SKILL.md", text)
    assert lenient["errors"] == []
    strict = verdict(forge, work, ".claude/skills/csv/SKILL.md", text, strict=True)
    assert [each["field"] for each in strict["errors"]] == expected


def test_copilot_and_codex_agents(forge: ForgeService, work: Path) -> None:
    assert verdict(forge, work, ".github/agents/a.agent.md", COPILOT, strict=True)["valid"]
    bad = COPILOT.replace("description: Knows the database\n", "").replace("['codebase'", "[5")
    errors = verdict(forge, work, ".github/agents/b.agent.md", bad)["errors"]
    assert [each["field"] for each in errors] == ["description", "tools"]
    errors = verdict(forge, work, ".codex/agents/c.toml", 'name = "c"\nmodel = "x"\n')["errors"]
    assert [each["field"] for each in errors] == ["description", "developer_instructions"]
    errors = verdict(forge, work, ".codex/agents/d.toml", "name = \n")["errors"]
    assert "not valid TOML" in errors[0]["message"]


def test_a_skill_is_no_agent(forge: ForgeService, work: Path) -> None:
    write(work, {".agents/skills/csv/SKILL.md": skill("csv")})
    result = forge.validate("agent", path=".agents/skills/csv/SKILL.md")
    assert "validate it as a tool" in result.errors[0].message


PUBLISHED = PUBLISHED_TOOL.replace("---\nShows", "llm: {model: claude-haiku-4-5}\n---\nShows")


def test_fractary_tools_in_their_published_form(forge: ForgeService, work: Path) -> None:
    result = verdict(forge, work, "plugins/p/tools/status/tool.md", PUBLISHED, strict=True)
    assert result["valid"], result["errors"]
    older = tool("old").split("parameters")[0] + (
        "input_schema: {type: object}\nimplementation: {type: bash, scripts_directory: s}\n"
    )
    result = verdict(forge, work, ".fractary/tools/old.yaml", older, strict=True)
    assert result["valid"], result["errors"]
    guided = PUBLISHED.replace("type: bash, scripts_directory: scripts", "type: skill-based")
    assert verdict(forge, work, "plugins/p/tools/status/tool.md", guided, strict=True)["valid"]
    broken = PUBLISHED.replace("required: [branch]", "required: branch")
    errors = verdict(forge, work, "plugins/p/tools/status/tool.md", broken)["errors"]
    assert [each["field"] for each in errors] == ["parameters.required"]


def test_tools_of_a_program_are_not_missing(forge: ForgeService, work: Path) -> None:
    text = (
        "name: a\ntype: agent\ndescription: d\nversion: 1.0.0\nauthor: me\ntags: [x]\n"
        "llm: {provider: anthropic, model: m}\nsystem_prompt: Be brief.\n"
    )
    for tools in ("Bash, Skill", "[Bash, skill, Read, mcp__db__query]"):
        place = ".fractary/agents/a.yaml"
        result = verdict(forge, work, place, f"{text}tools: {tools}\n", strict=True)
        assert (result["errors"], result["warnings"]) == ([], [])
    assert jsonable(forge.info("agent", "a"))["tools"] == [
        "Bash",
        "skill",
        "Read",
        "mcp__db__query",
    ]
    errors = verdict(forge, work, place, f"{text}tools: Bash, gone\n", strict=True)["errors"]
    assert [each["message"] for each in errors] == ["Tool not found: gone (line 9)"]
