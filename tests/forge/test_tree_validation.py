"""`forge validate`: a whole tree, what can be mended, and what other programs read of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.forge.commands import sarif
from fleet_agentpack.forge.service import ForgeService
from fleet_agentpack.forge.validation import TreeVerdict
from tests.forge import programs
from tests.forge.programs import claude_plugin, skill, subagent
from tests.forge.tree import write

MANIFEST = ".claude-plugin/plugin.json"


def errors(verdict: TreeVerdict) -> list[tuple[str, str]]:
    """File and field of each error."""
    return [(each.path, each.field) for each in verdict.findings if each.severity == "error"]


def test_a_sound_tree_is_valid_in_every_part(forge: ForgeService, work: Path, home: Path) -> None:
    programs.fill(work, home)
    verdict = forge.validate_tree([])
    assert errors(verdict) == []
    assert verdict.valid
    assert dict(verdict.formats) == {
        "claude-agent": 3,
        "codex-agent": 1,
        "copilot-agent": 1,
        "agent-skill": 4,
        "claude-command": 2,
        "claude-plugin": 2,
        "hooks": 1,
        "mcp-servers": 1,
        "marketplace": 1,
        "agents-md": 1,
    }


@pytest.mark.parametrize(
    ("manifest", "fields"),
    [
        ({}, []),
        ({"name": "two words"}, ["name"]),
        ({"author": "me"}, ["author"]),
        ({"repository": {"url": "x"}}, ["repository"]),
        ({"keywords": "a"}, ["keywords"]),
        ({"version": 1}, ["version"]),
        ({"homepage": "nope"}, ["homepage"]),
        ({"agents": "./agents/"}, ["agents", "agents"]),
        ({"commands": ["./commands/nope.md"]}, ["commands.0"]),
        ({"hooks": "./hooks/none.json"}, ["hooks"]),
        ({"author": {"email": "x"}}, ["author.name"]),
        ({"foo": 1, "category": "x"}, []),
    ],
)
def test_a_manifest_is_judged_as_claude_code_judges_it(
    forge: ForgeService, work: Path, manifest: dict[str, Any], fields: list[str]
) -> None:
    write(work, {MANIFEST: {**claude_plugin("plug"), **manifest}})
    found = errors(forge.validate_tree([]))
    assert found == [(MANIFEST, field) for field in fields]


def test_strict_refuses_what_is_ignored(forge: ForgeService, work: Path) -> None:
    write(work, {MANIFEST: claude_plugin("plug", foo=1, category="x")})
    found = errors(forge.validate_tree([], strict=True))
    assert found == [(MANIFEST, "foo"), (MANIFEST, "category")]


@pytest.mark.parametrize(
    ("hooks", "fields"),
    [
        ({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}}, []),
        ({"hooks": {"Nope": []}}, ["hooks.Nope"]),
        ({"Stop": []}, ["hooks"]),
        ({"hooks": {"Stop": {"hooks": []}}}, ["hooks.Stop"]),
        ({"hooks": {"Stop": [{"hooks": [{"type": "x"}]}]}}, ["hooks.Stop.0.hooks.0.type"]),
        (
            {"hooks": {"Stop": [{"matcher": 5, "hooks": [{"type": "command"}]}]}},
            ["hooks.Stop.0.matcher", "hooks.Stop.0.hooks.0.command"],
        ),
    ],
)
def test_hooks(forge: ForgeService, work: Path, hooks: dict[str, Any], fields: list[str]) -> None:
    write(work, {MANIFEST: claude_plugin("plug"), "hooks/hooks.json": hooks})
    found = errors(forge.validate_tree([]))
    assert found == [("hooks/hooks.json", field) for field in fields]


def test_a_marketplace(forge: ForgeService, work: Path) -> None:
    place = ".claude-plugin/marketplace.json"
    entries = [
        {"name": "a", "source": "./plugins/a"},
        {"name": "a", "source": {"source": "github", "repo": "x/y"}},
        {"name": "b"},
        {"name": "c", "source": "../x"},
        {"name": "d", "source": {"source": "zzz"}},
        {"source": "./x"},
    ]
    write(work, {place: {"name": "m x", "owner": "o", "plugins": entries}})
    (work / "plugins/a").mkdir(parents=True)
    assert {field for _, field in errors(forge.validate_tree([]))} == {
        *("name", "owner", "plugins.0.name", "plugins.1.name", "plugins.2.source"),
        *("plugins.3.source", "plugins.4.source.source", "plugins.5.name"),
    }


def test_what_is_safe_is_mended_and_nothing_else(forge: ForgeService, work: Path) -> None:
    write(
        work,
        {
            ".claude/agents/colon.md": subagent("colon", "Use this: now").replace("\n", "\r\n"),
            ".claude/agents/nameless.md": "---\ndescription: d\n---\nx\n",
            ".agents/skills/csv/SKILL.md": skill("other"),
            ".claude/agents/silent.md": "---\nname: silent\n---\nx\n",
            ".claude/agents/fine.md": subagent("fine"),
        },
    )
    before = (work / ".claude/agents/fine.md").read_bytes()
    verdict = forge.validate_tree([], fix=True)
    assert set(verdict.fixed) == {
        *(".claude/agents/colon.md", ".claude/agents/nameless.md"),
        ".agents/skills/csv/SKILL.md",
    }
    assert errors(verdict) == [(".claude/agents/silent.md", "description")]
    text = (work / ".claude/agents/colon.md").read_bytes().decode()
    assert 'description: "Use this: now"\r\n' in text
    assert text.count("\r\n") == text.count("\n")
    assert (work / ".claude/agents/nameless.md").read_text().startswith("---\nname: nameless\n")
    assert "name: csv\n" in (work / ".agents/skills/csv/SKILL.md").read_text()
    assert (work / ".claude/agents/fine.md").read_bytes() == before


def test_single_files_and_directories_outside_a_project(
    forge: ForgeService, tmp_path: Path
) -> None:
    write(tmp_path / "far", {"pdf/SKILL.md": skill("pdf"), "csv/SKILL.md": skill("wrong")})
    assert forge.validate_tree([str(tmp_path / "far/pdf")]).files == 1
    verdict = forge.validate_tree([str(tmp_path / "far/csv/SKILL.md")])
    assert [field for _, field in errors(verdict)] == ["name"]
    verdict = forge.validate_tree([str(tmp_path / "far/pdf"), str(tmp_path / "far/csv")])
    assert (verdict.files, verdict.valid) == (2, False)
    with pytest.raises(Exception, match="does not exist"):
        forge.validate_tree([str(tmp_path / "nowhere")])


def test_sarif_names_file_line_and_level(forge: ForgeService, work: Path) -> None:
    write(work, {".claude/agents/a.md": "---\nname: a\ndescription: d\ntools: Foo\n---\nx\n"})
    log = json.loads(json.dumps(sarif(forge.validate_tree([]))))
    assert log["version"] == "2.1.0"
    (found,) = log["runs"][0]["results"]
    assert found["level"] == "warning"
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == ".claude/agents/a.md"
    assert place["region"]["startLine"] == 4


def test_codex_reads_only_the_start_of_a_long_agents_md(forge: ForgeService, work: Path) -> None:
    write(work, {"AGENTS.md": "x" * 40_000, ".mcp.json": {"mcpServers": {"db": {}}}})
    verdict = forge.validate_tree([])
    assert errors(verdict) == [(".mcp.json", "mcpServers.db")]
    assert "Codex reads the first 32,768 bytes" in verdict.findings[-1].message


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_what_cannot_be_read_is_one_finding(work: Path, forge: ForgeService) -> None:
    large = skill("large", "x" * 2_000_000)
    write(work, {".claude/skills/large/SKILL.md": large, ".claude/agents/ok.md": subagent("ok")})
    (work / ".claude/agents/binary.md").write_bytes(b"---\nname: a\x00\n---\n")
    os.mkfifo(work / ".claude/agents/pipe.md")
    errors = {
        each.path: each.message
        for each in forge.validate_tree([str(work)]).findings
        if each.severity == "error"
    }
    assert errors == {
        ".claude/agents/binary.md": "a binary file, not text",
        ".claude/agents/pipe.md": "not a regular file",
        ".claude/skills/large/SKILL.md": f"{len(large):,} bytes; at most 1,000,000 are read",
    }
