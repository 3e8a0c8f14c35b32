"""The tools that can be deployed to. A new one is an entry of `ALL`."""

from __future__ import annotations

from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.manifest import SCOPES, TargetConfig
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


def _gemini_home(_config: TargetConfig, home: Home) -> str:
    return home.expand("~/.gemini")


_agents = contents.combined("AGENTS.md")
_claude = contents.combined("CLAUDE.md")
_gemini = contents.combined("GEMINI.md")
_copilot = contents.combined("copilot-instructions.md")
_cursorrules = contents.rule_files(".cursorrules")
_claude_files = contents.rule_files(".md")
_copies = contents.single_files()
_prompts = contents.single_files(".prompt.md")  # VS Code finds them by their double ending
_rule_files = contents.rule_files(".instructions.md")
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
            # Commands without front matter are prompts to a pack.
            Area(
                "write_repo_prompts",
                "project",
                ".claude/commands",
                "prompt",
                _copies,
                default=False,
            ),
            Area("write_user_prompts", "user", "commands", "prompt", _copies, default=False),
            Area("write_repo_skills", "project", ".claude/skills", "skill", _skills, default=False),
            Area("write_user_skills", "user", "skills", "skill", _skills, default=False),
            Area("write_claude_md", "user", "", "instructions", _claude, scan=False, default=False),
            Area(
                "write_claude_md", "project", "", "instructions", _claude, scan=False, default=False
            ),
            *(
                Area(
                    "write_claude_files",
                    scope,
                    "",
                    "instructions",
                    _claude_files,
                    scan=False,
                    default=False,
                )
                for scope in SCOPES
            ),
        ),
        user_dir=_claude_home,
    ),
    Target(
        "cursor",
        (
            Area("write_rules", "project", ".cursor/rules", "instructions", contents.rules),
            Area(
                "write_cursorrules",
                "project",
                "",
                "instructions",
                _cursorrules,
                scan=False,
                default=False,
            ),
            Area("write_commands", "project", ".cursor/commands", "prompt", _copies, default=False),
        ),
    ),
    Target(
        "vscode",
        (
            Area("write_instructions", "project", ".github", "instructions", _copilot, scan=False),
            Area("write_prompts", "project", ".github/prompts", "prompt", _prompts),
            Area(
                "write_rule_files",
                "project",
                ".github/instructions",
                "instructions",
                _rule_files,
                default=False,
            ),
        ),
        checks=("instructions",),
    ),
    Target(
        "agents",  # the directory of skills that several tools read
        (
            Area("write_repo_skills", "project", ".agents/skills", "skill", _skills),
            Area("write_user_skills", "user", ".agents/skills", "skill", _skills),
        ),
        original=False,
    ),
    Target(
        "gemini",
        (
            Area("write_gemini_md", "user", "", "instructions", _gemini, scan=False),
            Area("write_gemini_md", "project", "", "instructions", _gemini, scan=False),
            Area("write_commands", "user", "commands", "command", contents.toml_commands),
            Area(
                "write_commands", "project", ".gemini/commands", "command", contents.toml_commands
            ),
        ),
        user_dir=_gemini_home,
        original=False,
    ),
)
BY_NAME = {target.name: target for target in ALL}
NAMES = tuple(BY_NAME)
OPTIONS = {target.name: tuple(target.default_options) for target in ALL}
PROJECT_ONLY = tuple(target.name for target in ALL if target.project_only)
