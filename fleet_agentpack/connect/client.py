"""What an MCP client is to us: where it keeps its servers, and how to speak to it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from fleet_agentpack.kit.keyed_edit import jsonc

Scope = Literal["user", "project"]


class Format(Protocol):
    """A text format whose entries can be edited while all else stays; raises `FormatError`."""

    def parse(self, text: str) -> Mapping[str, object]:
        """The whole text as plain values."""

    def put(self, text: str, keys: Sequence[str], value: Mapping[str, object]) -> str:
        """The text with the value at that path."""

    def drop(self, text: str, keys: Sequence[str]) -> str:
        """The text without what is at that path."""


@dataclass(frozen=True)
class Entry:
    """How a client starts one server."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """Command and arguments as one list."""
        return [self.command, *self.args]

    @classmethod
    def of(cls, value: object) -> Entry | None:
        """The entry that a configuration file holds, unless it is of another kind."""
        if not isinstance(value, Mapping) or "url" in value or "httpUrl" in value:
            return None
        match value.get("command"), value.get("args", []), value.get("env") or {}:
            case str(command), list(args), Mapping() as env:
                return cls(command, tuple(map(str, args)), {k: str(v) for k, v in env.items()})
        return None


@dataclass(frozen=True)
class Machine:
    """This machine: where its programs and settings are."""

    home: Path
    project: Path
    environ: Mapping[str, str]
    platform: str = sys.platform

    def path(self, template: str) -> Path:
        """A place such as `{home}/.cursor/mcp.json` on this machine."""
        environ = self.environ
        return Path(
            template.format(
                home=self.home,
                project=self.project,
                app=self._applications(),
                claude=environ.get("CLAUDE_CONFIG_DIR") or self.home,
                codex=environ.get("CODEX_HOME") or self.home / ".codex",
                gemini=environ.get("GEMINI_CLI_HOME") or self.home,
            )
        )

    def program(self, name: str) -> str | None:
        """The absolute path of a program, when it is installed."""
        found = shutil.which(name, path=self.environ.get("PATH", ""))
        return str(Path(found).absolute()) if found else None

    def _applications(self) -> Path:
        """Where desktop applications keep their settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")


@dataclass(frozen=True)
class OwnCommand:
    """The words after a client's program; a last `*` stands for the server's command line."""

    words: tuple[str, ...]
    scopes: tuple[Scope, ...] = ("user", "project")

    def filled(self, name: str, scope: Scope, entry: Entry | None) -> list[str]:
        """The words for one server."""
        values = {"name": name, "scope": scope}
        if entry:
            described = {"name": name, "command": entry.command, "args": entry.args}
            values["json"] = json.dumps(described)
        words = [word.format(**values) for word in self.words]
        return [*words[:-1], *entry.words] if entry and words[-1] == "*" else words


@dataclass(frozen=True)
class Client:
    """One MCP client."""

    name: str
    title: str
    files: Mapping[Scope, str]  # templates for `Machine.path`
    format: Format = jsonc
    table: str = "mcpServers"  # the key that holds the servers
    fields: Mapping[str, str] = field(default_factory=dict)  # what an entry has besides
    program: str | None = None
    add: OwnCommand | None = None
    remove: OwnCommand | None = None
    rewrites: tuple[Scope, ...] = ()  # files that the program itself keeps changing
    shows_forms: bool = False  # whether its window brings a server's question to the person
    tool_limit: int | None = None
    then: str = ""  # what the user does next

    def value(self, entry: Entry) -> dict[str, str | list[str] | dict[str, str]]:
        """The entry in the client's own shape."""
        env = {"env": dict(entry.env)} if entry.env else {}
        return {**self.fields, "command": entry.command, "args": list(entry.args), **env}
