"""Trees as people have them: the files of Claude Code, Agent Skills, Codex and Copilot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.forge.tree import write

SUBAGENT = """\
---
name: {name}
description: {description}
tools: Bash, Read, mcp__github__search
model: sonnet
---
You are {name}.
"""
SKILL = """\
---
name: {name}
description: {description}
---
Do it well.
"""
COMMAND = """\
---
description: Commits what is staged
argument-hint: [message]
allowed-tools: Bash(git add:*), Bash(git commit:*)
---
Commit $ARGUMENTS.
"""
CODEX = """\
name = "{name}"
description = "Reads the code"
developer_instructions = \"\"\"
You read code.
\"\"\"
"""
COPILOT = """\
---
name: 'A Friendly Name'
description: Knows the database
tools: ['codebase', 'edit/editFiles']
---
You know the database.
"""


def subagent(name: str, description: str = "Use it to review") -> str:
    """A subagent of Claude Code."""
    return SUBAGENT.format(name=name, description=description)


def skill(name: str, description: str = "Use it for files") -> str:
    """A skill."""
    return SKILL.format(name=name, description=description)


def claude_plugin(name: str, version: str | None = "1.2.3", **more: Any) -> dict[str, Any]:
    """A plugin's manifest as Claude Code has it."""
    given = {"version": version} if version else {}
    about = {"description": "A plugin", "author": {"name": "Acme"}}
    return {"name": name, **given, **about, **more}


def fill(work: Path, home: Path) -> None:
    """A project and a home with a little of everything."""
    write(
        work,
        {
            ".claude/agents/reviewer.md": subagent("code-reviewer"),
            ".claude/agents/README.md": "# Not an agent\n",
            ".claude/commands/git/commit.md": COMMAND,
            ".claude/skills/pdf/SKILL.md": skill("pdf"),
            ".claude/skills/pdf/scripts/run.md": "# Not a skill\n",
            ".agents/skills/csv/SKILL.md": skill("csv"),
            ".codex/agents/explorer.toml": CODEX.format(name="code-explorer"),
            ".github/agents/dba.agent.md": COPILOT,
            "AGENTS.md": "Be brief.\n",
            ".claude-plugin/marketplace.json": {
                "name": "acme",
                "owner": {"name": "Acme"},
                "description": "Our plugins",
                "plugins": [
                    {"name": "tester", "source": "./plugins/tester"},
                    {
                        "name": "documents",
                        "source": "./",
                        "strict": False,
                        "skills": ["./skills/docx"],
                    },
                ],
            },
            "skills/docx/SKILL.md": skill("docx"),
            "plugins/tester/.claude-plugin/plugin.json": claude_plugin("tester"),
            "plugins/tester/agents/unit.md": subagent("unit-tester"),
            "plugins/tester/skills/pdf/SKILL.md": skill("pdf", "Of the plugin"),
            "plugins/tester/commands/run.md": "Run the tests.\n",
            "plugins/tester/hooks/hooks.json": {
                "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}
            },
            "plugins/tester/.mcp.json": {"mcpServers": {"db": {"command": "db-server"}}},
            "plugins/flat/.claude-plugin/plugin.json": claude_plugin(
                "flat", None, agents=["./planner.md"]
            ),
            "plugins/flat/planner.md": subagent("planner"),
            "node_modules/x/.claude-plugin/plugin.json": claude_plugin("vendored"),
        },
    )
    write(
        home,
        {
            ".claude/agents/helper.md": subagent("helper"),
            ".claude/skills/notes/SKILL.md": skill("notes"),
            ".claude/plugins/cache/m/installed/2.0.0/.claude-plugin/plugin.json": claude_plugin(
                "installed", "2.0.0"
            ),
            ".claude/plugins/cache/m/installed/2.0.0/agents/far.md": subagent("far"),
            ".claude/plugins/cache/m/other/1.0.0/.claude-plugin/plugin.json": claude_plugin(
                "other", "1.0.0"
            ),
        },
    )
    cache = home / ".claude/plugins/cache/m"
    installed = {
        "version": 2,
        "plugins": {
            "installed@m": [{"scope": "user", "installPath": str(cache / "installed/2.0.0")}],
            "other@m": [
                {
                    "scope": "project",
                    "projectPath": "/somewhere/else",
                    "installPath": str(cache / "other/1.0.0"),
                }
            ],
        },
    }
    place = home / ".claude/plugins/installed_plugins.json"
    place.write_text(json.dumps(installed))
