"""The tools that can be deployed to. A new one is an entry of `ALL`."""

from __future__ import annotations

from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.manifest import TargetConfig
from fleet_agentpack.deploy.targets import contents
from fleet_agentpack.deploy.targets.target import Area, Target


def _codex_home(config: TargetConfig, home: Home) -> str:
    """The option names it first, then `CODEX_HOME`, then `~/.codex`."""
    option = config.options.get("codex_home")
    given = option if isinstance(option, str) and option.strip() else None
    return home.expand(given or home.environ.get("CODEX_HOME", "").strip() or "~/.codex")


def _claude_home(_config: TargetConfig, home: Home) -> str:
    """`CLAUDE_CONFIG_DIR` names it, as for Claude Code itself, else it is `~/.claude`."""
    return home.expand(home.environ.get("CLAUDE_CONFIG_DIR", "").strip() or "~/.claude")


_agents = contents.combined("AGENTS.md")
_copilot = contents.combined("copilot-instructions.md")
_copies = contents.single_files()
_prompts = contents.single_files(".prompt.md")  # VS Code finds them by their double ending
_skills = contents.skills

ALL = (
    Target(
        "codex",
        (
            Area("write_repo_skills", "project", ".codex/skills", "skill", _skills),
            Area("write_user_skills", "user", "skills", "skill", _skills),
            Area("write_user_prompts", "user", "prompts", "prompt", _copies),
            Area("write_agents_global", "user", "", "instructions", _agents, scan=False),
            Area("write_agents_repo_root", "project", "", "instructions", _agents, scan=False),
        ),
        checks=("instructions", "skill"),
        user_dir=_codex_home,
        options={"codex_home": "~/.codex"},
    ),
    Target(
        "claude_code",
        (
            Area("write_repo_commands", "project", ".claude/commands", "command", _copies),
            Area("write_user_commands", "user", "commands", "command", _copies),
            Area("write_repo_skills", "project", ".claude/skills", "skill", _skills, default=False),
            Area("write_user_skills", "user", "skills", "skill", _skills, default=False),
        ),
        user_dir=_claude_home,
    ),
    Target(
        "cursor", (Area("write_rules", "project", ".cursor/rules", "instructions", contents.rules),)
    ),
    Target(
        "vscode",
        (
            Area("write_instructions", "project", ".github", "instructions", _copilot, scan=False),
            Area("write_prompts", "project", ".github/prompts", "prompt", _prompts),
        ),
        checks=("instructions",),
    ),
)
BY_NAME = {target.name: target for target in ALL}
NAMES = tuple(BY_NAME)
OPTIONS = {target.name: tuple(target.default_options) for target in ALL}
PROJECT_ONLY = tuple(target.name for target in ALL if target.project_only)
