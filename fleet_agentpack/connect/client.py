"""What an MCP client is to us: where it keeps its servers, and how to speak to it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from fleet_agentpack.connect.errors import ConnectError
from fleet_agentpack.kit.keyed_edit import jsonc

Scope = Literal["user", "project"]
Value = dict[str, str | list[str] | dict[str, str]]  # an entry in a file


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
    def argv(self) -> list[str]:
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

    def filled(self, variable: str, value: Path) -> Entry:
        """The entry as a client starts it that fills in a variable."""
        if not variable:
            return self
        args = tuple(word.replace(variable, str(value)) for word in self.args)
        return replace(self, args=args)


@dataclass(frozen=True)
class Remote:
    """A server that is already running, and the variable that holds its token."""

    url: str
    token_env: str = ""


Wanted = Entry | Remote


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

    def filled(self, name: str, scope: Scope, value: Mapping[str, object]) -> list[str]:
        """The words for one server, whose entry has this value."""
        plain = ("env", "type") if "command" in value else ()
        described = {"name": name, **{k: each for k, each in value.items() if k not in plain}}
        values = {"name": name, "scope": scope, "json": json.dumps(described)}
        words = [word.format(**values) for word in self.words]
        return [*words[:-1], *_arguments_of(value)] if words[-1] == "*" else words


def _arguments_of(value: Mapping[str, object]) -> list[str]:
    """What a client's own command takes for an entry: a command line, or an address."""
    match value:
        case {"url": str(url), "headers": Mapping() as headers}:
            return [url, *(w for k, v in headers.items() for w in ("--header", f"{k}: {v}"))]
        case {"url": str(url)}:
            return [url]
        case {"command": str(command), "args": list(args)}:
            return [command, *map(str, args)]
    return []


@dataclass(frozen=True)
class HttpForm:
    """How a client writes down a server that it reaches at an address."""

    fields: Mapping[str, str] = field(default_factory=dict)
    variable: str = "${{{}}}"  # how it writes a variable, with a place for the name
    token_field: str = ""  # a field of its own for the name of the token's variable
    add: OwnCommand | None = None

    def value(self, remote: Remote) -> Value:
        """The entry in the client's own shape."""
        value: Value = {**self.fields, "url": remote.url}
        if remote.token_env and self.token_field:
            value[self.token_field] = remote.token_env
        elif remote.token_env:
            bearer = f"Bearer {self.variable.format(remote.token_env)}"
            value["headers"] = {"Authorization": bearer}
        return value


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
    workspace: str = ""  # what it fills in with the folder that is open
    has_folder: bool = True  # whether it works in a folder at all
    http: HttpForm | None = None  # None: it reaches only servers that it starts
    then: str = ""  # what the user does next

    def value(self, wanted: Wanted) -> Value:
        """The entry in the client's own shape. Raises `ConnectError` if it has none."""
        if isinstance(wanted, Remote):
            if self.http is None:
                raise ConnectError(
                    f"{self.title} takes only servers that it starts itself; leave --url out"
                )
            return self.http.value(wanted)
        env = {"env": dict(wanted.env)} if wanted.env else {}
        return {**self.fields, "command": wanted.command, "args": list(wanted.args), **env}

    def adding(self, wanted: Wanted) -> OwnCommand | None:
        """The client's own command that adds such a server."""
        if isinstance(wanted, Remote):
            return self.http.add if self.http else None
        return self.add
