"""The table of known clients: where each keeps its servers, and how to speak to it."""

from __future__ import annotations

from collections.abc import Mapping

from fleet_agentpack.connect.client import Client, HttpForm, OwnCommand
from fleet_agentpack.kit.keyed_edit import toml

# Cursor starts a server in the home; VS Code does for an entry of the user. The others start it in
# the folder that they are started in.
_FOLDER = "${workspaceFolder}"

_KNOWN = (
    Client(
        name="claude",
        title="Claude Code",
        files={"user": "{claude}/.claude.json", "project": "{project}/.mcp.json"},
        fields={"type": "stdio"},
        program="claude",
        add=OwnCommand(("mcp", "add", "--scope", "{scope}", "{name}", "--", "*")),
        remove=OwnCommand(("mcp", "remove", "--scope", "{scope}", "{name}")),
        http=HttpForm(
            {"type": "http"},
            add=OwnCommand(
                ("mcp", "add", "--transport", "http", "--scope", "{scope}", "{name}", "*")
            ),
        ),
        rewrites=("user",),
        shows_forms=True,
        then="Start claude; /mcp lists its servers (those of a project ask for approval once).",
    ),
    Client(
        name="codex",
        title="Codex",
        format=toml,
        table="mcp_servers",
        files={"user": "{codex}/config.toml"},
        program="codex",
        add=OwnCommand(("mcp", "add", "{name}", "--", "*")),
        remove=OwnCommand(("mcp", "remove", "{name}")),
        # Its own command for an address would go on to log in there.
        http=HttpForm(token_field="bearer_token_env_var"),  # noqa: S106 - a field's name
        then="Start codex; /mcp lists its servers.",
    ),
    Client(
        name="gemini",
        title="Gemini CLI",
        files={
            "user": "{gemini}/.gemini/settings.json",
            "project": "{project}/.gemini/settings.json",
        },
        program="gemini",
        # No `--`: Gemini takes it for the end of its own positional arguments and misses the rest.
        add=OwnCommand(("mcp", "add", "--scope", "{scope}", "{name}", "*")),
        remove=OwnCommand(("mcp", "remove", "--scope", "{scope}", "{name}")),
        http=HttpForm({"type": "http"}),
        then="Start gemini in a folder that it trusts; /mcp lists its servers.",
    ),
    Client(
        name="cursor",
        title="Cursor",
        files={"user": "{home}/.cursor/mcp.json", "project": "{project}/.cursor/mcp.json"},
        tool_limit=40,
        workspace=_FOLDER,
        http=HttpForm(variable="${{env:{}}}"),
        then="Open Cursor's settings, MCP, and switch the server on.",
    ),
    Client(
        name="vscode",
        title="VS Code",
        table="servers",
        files={"user": "{app}/Code/User/mcp.json", "project": "{project}/.vscode/mcp.json"},
        fields={"type": "stdio"},
        program="code",
        add=OwnCommand(("--add-mcp", "{json}"), scopes=("user",)),
        workspace=_FOLDER,
        http=HttpForm(
            {"type": "http"},
            "${{env:{}}}",
            add=OwnCommand(("--add-mcp", "{json}"), scopes=("user",)),
        ),
        shows_forms=True,
        then="Run 'MCP: List Servers' in VS Code and start the server.",
    ),
    Client(
        name="claude-desktop",
        title="Claude Desktop",
        files={"user": "{app}/Claude/claude_desktop_config.json"},
        has_folder=False,
        then="Quit Claude Desktop and start it again.",
    ),
)

CLIENTS: Mapping[str, Client] = {client.name: client for client in _KNOWN}
