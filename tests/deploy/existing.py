"""Homes and projects as people have them before any pack: one function per kind of user."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.deploy.lab import COMMAND, SKILL, Lab

RULE = "---\ndescription: TypeScript\nglobs: ['*.ts']\nalwaysApply: false\n---\n\nPrefer types.\n"
TOKEN = "ghp_" + "a1B2" * 9


def _skill(lab: Lab, place: str, name: str) -> None:
    lab.write(f"{place}/{name}/SKILL.md", SKILL.format(name=name))
    lab.write(f"{place}/{name}/scripts/run.sh", "#!/bin/sh\necho run\n", 0o755)
    lab.write(f"{place}/{name}/reference/notes.md", "notes\n", 0o600)


def claude_user(lab: Lab) -> None:
    lab.write("user/.claude/CLAUDE.md", "# Me\n\nSee @docs/style.md\n")
    lab.write("user/.claude/docs/style.md", "style\n")
    lab.write("user/.claude/commands/review.md", COMMAND.format(name="review"))
    lab.write("user/.claude/commands/git/commit.md", COMMAND.format(name="commit"))
    _skill(lab, "user/.claude/skills", "tidy")
    lab.write("user/.claude/agents/helper.md", "---\nname: helper\n---\n")
    lab.write("user/.claude/settings.json", '{"hooks": {"Stop": []}, "permissions": {"allow": []}}')
    lab.write("user/.claude/settings.json", '{"hooks": {"Stop": [{}]}}')
    lab.write("user/.claude/projects/-home/x.jsonl", "{}\n")


def codex_user(lab: Lab) -> None:
    lab.write("user/.codex/AGENTS.md", "# Codex\r\n\r\nno newline at the end")
    lab.write("user/.codex/prompts/Draft PR.md", "Draft.\n")
    _skill(lab, "user/.codex/skills", "Deep.Review")
    lab.write("user/.codex/skills/.system/own/SKILL.md", SKILL.format(name="own"))
    servers = f'[mcp_servers.gh]\ncommand = "gh"\n[mcp_servers.gh.env]\nTOKEN = "{TOKEN}"\n'
    lab.write("user/.codex/config.toml", f'model = "gpt"\n{servers}')


def same_for_both(lab: Lab) -> None:
    for place in ("user/.codex/AGENTS.md", "user/.claude/CLAUDE.md", "user/.gemini/GEMINI.md"):
        lab.write(place, "# The same\n")
    for place in ("user/.codex/skills", "user/.claude/skills", "user/.agents/skills"):
        _skill(lab, place, "shared")


def cursor_project(lab: Lab) -> None:
    lab.write("project/.cursor/rules/ts.mdc", RULE)
    lab.write("project/.cursor/rules/web/react.mdc", RULE.replace("TypeScript", "React"))
    lab.write("project/.cursor/commands/ship.md", "Ship it.\n")
    lab.write("project/.cursorrules", "old\n")
    lab.write("project/.cursor/mcp.json", json.dumps({"mcpServers": {"a": {"url": "x"}}}))


def copilot_project(lab: Lab) -> None:
    lab.write("project/.github/copilot-instructions.md", "# Copilot\n")
    lab.write("project/.github/instructions/py.instructions.md", "---\napplyTo: '**'\n---\nPy.\n")
    lab.write("project/.github/prompts/plan.prompt.md", "Plan.\n")
    lab.write("project/.github/agents/one.agent.md", "agent\n")
    lab.write("project/.github/workflows/ci.yml", "on: push\n")


def links_everywhere(lab: Lab) -> None:
    lab.write("project/AGENTS.md", "# Project\n")
    (lab.project / "CLAUDE.md").symlink_to("AGENTS.md")
    lab.write("project/.github/keep", "")
    (lab.project / ".github/copilot-instructions.md").symlink_to("../AGENTS.md")
    _skill(lab, "user/.agents/skills", "linked")
    lab.write("user/.claude/skills/keep/SKILL.md", SKILL.format(name="keep"))
    (lab.user / ".claude/skills/linked").symlink_to("../../.agents/skills/linked")


def whole_team_project(lab: Lab) -> None:
    lab.write("project/AGENTS.md", "# Team\n")
    lab.write("project/CLAUDE.md", "# Team\n")
    lab.write("project/.claude/commands/deploy.md", COMMAND.format(name="deploy"))
    _skill(lab, "project/.claude/skills", "release")
    _skill(lab, "project/.codex/skills", "release")
    lab.write("project/.mcp.json", json.dumps({"mcpServers": {"x": {"env": {"KEY": TOKEN}}}}))


def odd_files(lab: Lab) -> None:
    lab.write("user/.claude/commands/bare.md", "no header\n")
    lab.write("user/.claude/commands/ok.md", COMMAND.format(name="ok"))
    lab.write("user/.claude/skills/empty/readme.txt", "no SKILL.md\n")
    lab.write("user/.claude/skills/leaky/SKILL.md", SKILL.format(name="leaky") + TOKEN)
    lab.write("user/.codex/AGENTS.md", b"\xff\xfe not text\n")
    lab.write("user/.codex/config.toml", "not = = toml")
    lab.write("user/.codex/prompts/private.md", "mine\n", 0o600)


def claude_project(lab: Lab) -> None:
    lab.write("project/CLAUDE.md", "See @README.md and @.claude/docs/style.md, not `@code.md`.\n")
    lab.write("project/README.md", "read me\n")
    lab.write("project/.claude/docs/style.md", "style; more in @more.md\n")
    lab.write("project/.claude/docs/more.md", "and back to @style.md\n")
    lab.write("project/.claude/CLAUDE.md", "# Also here\n")
    lab.write("project/.claude/rules/api/rest.md", "---\npaths: ['api/**']\n---\nREST.\n")
    lab.write("project/.claude/commands/plain.md", "No header at all.\n")
    lab.write("project/.claude/commands/git/plain.md", "Another one.\n")
    lab.write("project/.claude/commands/good.md", COMMAND.format(name="good"))
    lab.write("project/.claude/hooks/check.sh", "#!/bin/sh\n", 0o755)


def gemini_user(lab: Lab) -> None:
    lab.write("user/.gemini/GEMINI.md", "# Gemini\n")
    lab.write("user/.gemini/commands/git/commit.toml", 'prompt = "Commit."\n')
    lab.write("project/.gemini/commands/fix.toml", 'description = "d"\nprompt = """\nFix.\n"""\n')
    lab.write("user/.gemini/commands/broken.toml", "prompt = \n")
    lab.write("user/.gemini/settings.json", '{"selectedAuthType": "oauth-personal"}')
    lab.write("user/.gemini/tmp/x/logs.json", "[]")
    lab.write("user/.gemini/history/x/.git/HEAD", "ref\n")
    lab.write("user/.gemini/oauth_creds.json", '{"refresh_token": "1//0abcdefgh12345678"}', 0o600)


def dotfiles(lab: Lab) -> None:
    """A home that is kept in git, with one text for two tools that has drifted apart."""
    text = "".join(f"- rule {number}\n" for number in range(20))
    lab.write("user/.codex/AGENTS.md", text)
    lab.write("user/.gemini/GEMINI.md", f"{text}- for Gemini\n")
    lab.write("user/.claude/CLAUDE.md", "# Me\n\n- @rules/style.md\n")
    lab.write("user/.claude/rules/style.md", "---\npaths: ['**/*.ts']\n---\nStyle.\n")
    lab.write("user/.claude/skills/.gitkeep", "")
    settings = {"hooks": {"Stop": [], "PreToolUse": [{}]}, "permissions": {"deny": ["Read(.env)"]}}
    more = {"enabledPlugins": {"lint@market": True}, "statusLine": {"command": "x"}, "tui": 1}
    lab.write("user/.claude/settings.json", json.dumps({**settings, **more}))
    lab.write("user/.agents/.skill-lock.json", "{}")
    _skill(lab, "user/.agents/skills", "find-docs")
    lab.write("project/CLAUDE.md", "# Dotfiles\n")
    (lab.project / "AGENTS.md").symlink_to("CLAUDE.md")
    lab.write("project/.gitignore", ".claude/settings.local.json\n")


def monorepo(lab: Lab) -> None:
    """Instructions and tools' directories in its parts; one skill for several tools by links."""
    lab.write("project/AGENTS.md", "# All\n\n## Tests\n\n    make test\n")
    lab.write("project/CLAUDE.md", "@AGENTS.md\n@.claude/docs/go.md\n")
    lab.write("project/.claude/docs/go.md", "Go.\n")
    lab.write("project/.claude/docs/unused.md", "Nobody reads this.\n")
    _skill(lab, "project/.agents/skills", "review")
    lab.write("project/.claude/skills/own/SKILL.md", SKILL.format(name="own"))
    (lab.project / ".claude/skills/review").symlink_to("../../.agents/skills/review")
    lab.write("project/site/AGENTS.md", "# Site\n")
    (lab.project / "site/CLAUDE.md").symlink_to("AGENTS.md")
    lab.write("project/site/.cursor/rules/site.mdc", RULE)
    lab.write("project/node_modules/dep/AGENTS.md", "not ours\n")


def claude_after_work(lab: Lab) -> None:
    """What Claude Code has written itself after a task, a plugin and some servers."""
    own = {"mcpServers": {"mine": {"headers": {"Authorization": "Bearer ab12cd34ef56gh78"}}}}
    servers = {"notes": {"type": "stdio", "command": "true", "env": {"TOKEN": TOKEN}}}
    state = {"numStartups": 3, "mcpServers": servers, "projects": {str(lab.project): own}}
    lab.write("user/.claude.json", json.dumps(state, indent=2), 0o600)
    lab.write("user/.claude/backups/.claude.json.backup.1", "{}", 0o600)
    lab.write("user/.claude/projects/-home-me-project/1e2b.jsonl", "{}\n", 0o600)
    lab.write("user/.claude/settings.json", '{"enabledPlugins": {"p@mk": true}}')
    lab.write("user/.claude/plugins/cache/mk/p/1.0.0/commands/hi.md", COMMAND.format(name="hi"))
    lab.write("user/.claude/plugins/installed_plugins.json", "{}")
    lab.write("user/.claude/sessions/1.json", "{}")
    lab.write("project/CLAUDE.md", "# Project\n\n- Run the tests.\n")
    lab.write("project/.claude/commands/ship.md", COMMAND.format(name="ship"))
    lab.write("project/.claude/settings.local.json", '{"permissions": {"allow": ["Bash(ls:*)"]}}')
    _skill(lab, "project/.claude/skills", "tidy")


def codex_after_work(lab: Lab) -> None:
    """What Codex has written itself after a task: its own skills, databases, trusted projects."""
    lab.write("user/.codex/AGENTS.md", "# Me\n")
    lab.write("user/.codex/prompts/draft.md", "Draft.\n")
    lab.write("user/.codex/skills/.system/.codex-system-skills.marker", "1")
    lab.write("user/.codex/skills/.system/creator/SKILL.md", SKILL.format(name="creator"))
    lab.write("user/.codex/skills/.system/creator/scripts/make.py", "print()\n", 0o755)
    for name in ("state_5.sqlite", "logs_2.sqlite", ".sandbox_migration", "installation_id"):
        lab.write(f"user/.codex/{name}", b"\0")
    lab.write("user/.codex/sessions/2026/11/18/rollout.jsonl", "{}\n")
    provider = '[model_providers.loopback]\nenv_key = "LOOPBACK_KEY"\n'
    trusted = f'[projects."{lab.project}"]\ntrust_level = "trusted"\n'
    lab.write("user/.codex/config.toml", f'model = "gpt"\n{provider}{trusted}')
    lab.write("project/AGENTS.md", "# Project\n\n- Run the tests.\n")
    _skill(lab, "project/.codex/skills", "tidy")


HOMES: dict[str, Callable[[Lab], None]] = {
    make.__name__: make
    for make in (
        claude_user,
        codex_user,
        same_for_both,
        cursor_project,
        copilot_project,
        links_everywhere,
        whole_team_project,
        odd_files,
        claude_project,
        gemini_user,
        dotfiles,
        monorepo,
        claude_after_work,
        codex_after_work,
    )
}


def furnish(root: Path, *names: str) -> Lab:
    """A lab with the files of these users, and no pack."""
    lab = Lab(root, git=False)
    for name in names:
        HOMES[name](lab)
    return lab
