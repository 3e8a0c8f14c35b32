"""How the files of each program are told apart, and the tools that each program brings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fleet_agentpack.forge.names import Format, Kind, is_usable_name

# How a directory of definitions is laid out. In `fractary` the path gives name and version.
Layout = Literal["fractary", "agents", "commands", "skills", "codex", "copilot"]

# What says that a file defines something: the directory it is in, which a program reads; its own
# header; or, in a directory of any name, a header that only a subagent has.
Proof = Literal["place", "header", "alone"]

SKILL_FILES = ("SKILL.md", "skill.md")
PLUGIN_MANIFEST = ".claude-plugin/plugin.json"
MARKETPLACE = ".claude-plugin/marketplace.json"
PROGRAMS: dict[Format, str] = {
    "fractary": "Forge",
    "claude-agent": "Claude Code",
    "claude-command": "Claude Code",
    "claude-plugin": "Claude Code",
    "agent-skill": "Agent Skills",
    "codex-agent": "Codex",
    "copilot-agent": "Copilot",
}

_OF_SUBAGENTS = ("tools", "model", "color")
_OF_FRACTARY = ("llm", "implementation")
_COPILOT_HOMES = (".github", ".copilot")
_NAMED_INSIDE: tuple[Layout, ...] = ("agents", "codex")  # their files say what they are called


def path_name(layout: Layout, parts: Sequence[str], root: str) -> str | None:
    """What a file below a directory is called by its path; None for one that defines nothing."""
    file, folder = parts[-1], parts[-2] if len(parts) > 1 else root
    stem, _, ending = file.rpartition(".")
    if layout == "skills":
        return folder if file in SKILL_FILES else None
    if layout == "codex":
        return stem if ending == "toml" else None
    if ending not in (("md",) if layout != "agents" else ("md", "yaml", "yml")):
        return None
    if layout == "commands":
        return None if file in SKILL_FILES else ":".join([*parts[:-1], stem])
    if stem == "agent" and len(parts) > 1:
        return folder
    return stem.removesuffix(".agent")


def is_named_inside(layout: Layout) -> bool:
    """Whether a file of this layout may call itself something else than its path does."""
    return layout in _NAMED_INSIDE


def own_name(layout: Layout, path: Path, data: Mapping[str, Any]) -> str | None:
    """The name that a definition gives itself, where that counts and can be one."""
    name = data.get("name")
    counts = is_named_inside(layout) and not path.name.endswith(".agent.md")
    return name if counts and is_usable_name(name, "agent") else None


def format_of(path: Path, kind: Kind, data: Mapping[str, Any], layout: Layout | None) -> Format:
    """The dialect of a definition, by its place and by its contents."""
    if layout == "fractary":
        return "fractary"
    if path.name in SKILL_FILES:
        return "agent-skill"
    if path.suffix == ".toml":
        return "codex-agent"
    if path.suffix != ".md" or path.stem in ("agent", "tool") or says_fractary(data):
        return "fractary"
    if kind == "tool":
        return "claude-command"
    home = path.parent.parent.name if path.parent.name == "agents" else ""
    if layout == "copilot" or home in _COPILOT_HOMES or path.name.endswith(".agent.md"):
        return "copilot-agent"
    return "claude-agent"


def says_fractary(data: Mapping[str, Any]) -> bool:
    """Whether only a Fractary definition has these fields."""
    return data.get("type") in ("agent", "tool") or any(key in data for key in _OF_FRACTARY)


def is_definition(
    layout: Layout, path: Path, data: Mapping[str, Any], *, has_header: bool, proof: Proof
) -> bool:
    """Whether a file defines something, or only lies beside files that do."""
    if layout in ("fractary", "skills", "codex"):
        return True
    if path.suffix != ".md":
        return data.get("type") == "agent"
    if layout == "commands":
        return proof == "place" or "description" in data
    if proof != "place" and not path.name.endswith(".agent.md"):
        named = "description" in data and is_usable_name(data.get("name"), "agent")
        alike = data.get("name") == path.stem and any(key in data for key in _OF_SUBAGENTS)
        return named and (alike or proof == "header")
    return has_header


def listed_in(text: object) -> list[str]:
    """The names in a list, or in a text that separates them by commas; brackets stay together."""
    if isinstance(text, list):
        return [each for each in text if isinstance(each, str)]
    if not isinstance(text, str):
        return []
    found, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += char
    return [each.strip() for each in found if each.strip()]


_SOUGHT: dict[str, tuple[str, str]] = {
    "agent": (
        ".fractary/agents, .claude/agents, .codex/agents, .github/agents, in plugins, in "
        "directories called agents, and in Markdown files that say they are subagents",
        "an agent is .claude/agents/NAME.md with `name` and `description` in its header",
    ),
    "tool": (
        ".fractary/tools, .claude/skills, .claude/commands, every other .NAME/skills, in plugins, "
        "and in directories with a SKILL.md",
        "a tool is .claude/skills/NAME/SKILL.md with `name` and `description` in its header",
    ),
    "plugin": (
        ".fractary/plugins, directories with .claude-plugin/plugin.json, and marketplaces",
        "a plugin is a directory with .claude-plugin/plugin.json and `agents` or `skills`",
    ),
}


def sought(kind: str, source: str) -> str:
    """What an empty answer says: where it looked, and what it would have found."""
    where, example = _SOUGHT[kind]
    whose = {"local": "the project's", "global": "the home's"}.get(
        source, "the project's and home's"
    )
    return f"No {kind}s found in {whose} {where}; for example, {example}"


# As Claude Code 2.1 lists them when it starts, with those that it offers only in some settings and
# the older names that it still takes.
CLAUDE_CODE = frozenset(
    {
        *("Agent", "AskUserQuestion", "Bash", "BashOutput", "CronCreate", "CronDelete", "CronList"),
        *("DesignSync", "Edit", "EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree"),
        *("Glob", "Grep", "KillBash", "KillShell", "LS", "LSP", "ListMcpResourcesTool", "Monitor"),
        *("MultiEdit", "NotebookEdit", "NotebookRead", "PowerShell", "PushNotification", "Read"),
        *("ReadMcpResourceTool", "RemoteTrigger", "ReportFindings", "ScheduleWakeup"),
        *("SendMessage", "SendUserFile", "Skill", "SlashCommand", "StructuredOutput", "Task"),
        *("TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate"),
        *("TeamCreate", "TeamDelete", "TodoRead", "TodoWrite", "ToolSearch", "WebFetch"),
        *("WebSearch", "Workflow", "Write"),
    }
)
CODEX = frozenset(("apply_patch", "exec_command", "shell", "update_plan", "view_image"))
COPILOT = frozenset(
    {
        *("agent", "browser", "codebase", "custom-agent", "edit", "execute", "fetch", "githubRepo"),
        *("read", "runCommands", "runTasks", "search", "shell", "todo", "todos", "vscode", "web"),
    }
)

_ANY = frozenset(each.lower() for each in CLAUDE_CODE | CODEX | COPILOT)
_PATTERN = re.compile(r"([^(\s]+)\s*(?:\(.*\))?\Z", re.DOTALL)


def is_host_tool(text: str) -> bool:
    """Whether a reference means a tool of some program, or of an MCP server."""
    return text.startswith("mcp__") or _name_in(text).lower() in _ANY


def is_claude_tool(text: str) -> bool:
    """Whether Claude Code has this tool, perhaps limited to some uses, such as `Bash(git *)`."""
    name = _name_in(text)
    return name in CLAUDE_CODE or name.startswith("mcp__") or name == "*"


def _name_in(text: str) -> str:
    found = _PATTERN.match(text.strip())
    return found[1] if found else text
