"""The tools' settings files: what is in them that a pack cannot hold, and the secrets in them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.deploy.importing.results import SecretRow, SkippedRow
from fleet_agentpack.deploy.importing.secrets import secret_keys
from fleet_agentpack.deploy.manifest import Scope
from fleet_agentpack.kit.files import UnreadableError, read_text
from fleet_agentpack.kit.keyed_edit import jsonc

SERVERS = "a pack cannot hold MCP servers; `fleet-agentpack connect` adds this server to a tool"
HOOK = "a pack cannot hold hooks"
_SETTING = "a pack cannot hold settings"
_STATE = "its program keeps its own state in it"
_CREDENTIALS = "it holds credentials"

Kinds = Mapping[str, tuple[str, str]]  # key → what each entry is, and why it stays
_MCP: Kinds = {"mcpServers": ("MCP server", SERVERS)}
_HOOKS: Kinds = {"hooks": ("hook", HOOK)}
_CODEX: Kinds = {"mcp_servers": ("MCP server", SERVERS), **_HOOKS}
_GEMINI: Kinds = {**_MCP, **_HOOKS}
_VSCODE: Kinds = {"servers": ("MCP server", SERVERS)}
_CLAUDE: Kinds = {
    **_HOOKS,
    "permissions": ("permissions", "a pack cannot hold permissions"),
    "enabledPlugins": ("plugins", "Claude Code owns what it installs"),
    **_MCP,
}


@dataclass(frozen=True)
class SettingsFile:
    """A settings file, below the user's or the project's directory, and what to name in it."""

    target: str
    scope: Scope
    path: str
    kinds: Kinds
    rest: str = ""  # one reason for all other keys; without it, each is named
    about: tuple[str, ...] = ()  # how the keys start that are meant, where most are about others


_COPILOT = ("chat.", "github.copilot.")

FILES = (
    SettingsFile("claude_code", "user", ".claude.json", _MCP, _STATE),
    SettingsFile("claude_code", "user", "settings.json", _CLAUDE),
    SettingsFile("claude_code", "user", "settings.local.json", _CLAUDE),
    SettingsFile("claude_code", "user", ".credentials.json", {}, _CREDENTIALS),
    SettingsFile("claude_code", "project", ".mcp.json", _MCP),
    SettingsFile("claude_code", "project", ".claude/settings.json", _CLAUDE),
    SettingsFile("claude_code", "project", ".claude/settings.local.json", _CLAUDE),
    SettingsFile("codex", "user", "config.toml", _CODEX),
    SettingsFile("codex", "user", "auth.json", {}, _CREDENTIALS),
    SettingsFile("codex", "project", ".codex/config.toml", _CODEX),
    SettingsFile("cursor", "user", ".cursor/mcp.json", _MCP),
    SettingsFile("cursor", "project", ".cursor/mcp.json", _MCP),
    SettingsFile("vscode", "user", ".config/Code/User/mcp.json", _VSCODE),
    SettingsFile("vscode", "user", "Library/Application Support/Code/User/mcp.json", _VSCODE),
    SettingsFile("vscode", "project", ".vscode/mcp.json", _VSCODE),
    SettingsFile("vscode", "user", ".config/Code/User/settings.json", {}, about=_COPILOT),
    SettingsFile("vscode", "project", ".vscode/settings.json", {}, about=_COPILOT),
    SettingsFile("vscode", "user", ".copilot/mcp-config.json", _MCP),
    SettingsFile("gemini", "user", "settings.json", _GEMINI),
    SettingsFile("gemini", "user", "oauth_creds.json", {}, _CREDENTIALS),
    SettingsFile("gemini", "project", ".gemini/settings.json", _GEMINI),
)


def look_into(
    path: Path, file: SettingsFile, project: str
) -> tuple[list[SkippedRow], list[SecretRow]]:
    """What a settings file has, and where secrets are in it; nothing if there is no such file."""
    try:
        text = read_text(path)
        data = tomllib.loads(text) if path.suffix == ".toml" else jsonc.parse(text)
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except (OSError, UnreadableError):
        return [SkippedRow(str(path), "settings", "it cannot be read")], []
    except ValueError:
        return [SkippedRow(str(path), "settings", "it cannot be parsed")], []
    if not isinstance(data, Mapping):
        return [SkippedRow(str(path), "settings", "it cannot be parsed")], []
    if file.about:
        data = {key: value for key, value in data.items() if str(key).startswith(file.about)}
    named = [*_unsupported(data, file), *_of_project(data, project, file)]
    skipped = [SkippedRow(str(path), what, reason) for what, reason in named]
    return skipped, [SecretRow(str(path), place) for place in secret_keys(data)]


def _unsupported(data: Mapping[str, object], file: SettingsFile) -> Iterator[tuple[str, str]]:
    for key, (what, reason) in file.kinds.items():
        value = data.get(key)
        if isinstance(value, Mapping) and what in ("MCP server", "hook"):
            yield from ((f"{what} {name}", reason) for name in sorted(value))
        elif value:
            yield what, reason
    others = [key for key in data if key not in file.kinds and not key.startswith("$")]
    if file.rest and others:
        yield "settings", file.rest
    else:
        yield from ((f"setting {key}", _SETTING) for key in others)


def _of_project(
    data: Mapping[str, object], project: str, file: SettingsFile
) -> Iterator[tuple[str, str]]:
    """The servers that Claude Code keeps in the user's own file for one project."""
    projects = data.get("projects")
    mine = projects.get(project) if isinstance(projects, Mapping) and project else None
    servers = mine.get("mcpServers") if isinstance(mine, Mapping) else None
    if file.path == ".claude.json" and isinstance(servers, Mapping):
        yield from ((f"MCP server {name}", SERVERS) for name in sorted(servers))
