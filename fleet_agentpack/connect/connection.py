"""One server in one client: what is there, what would change, and the change itself."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleet_agentpack.connect.client import Client, Entry, Machine, OwnCommand, Remote, Scope, Wanted
from fleet_agentpack.connect.config_file import ConfigFile
from fleet_agentpack.connect.errors import ConnectError
from fleet_agentpack.kit.process import ProcessTimeoutError, run, without_colours

# What says how a server is reached; all else in an entry is the user's and stays.
_TRANSPORT = {
    *("type", "command", "args"),
    *("url", "httpUrl", "headers", "http_headers", "bearer_token_env_var"),
}
_OF_PROGRAMS = {"env", "cwd"}  # what only a server that is started can have
_OURS = re.compile(r"fleet[-_]agentpack")
_COMMA = re.compile(r"[ \t,]*(\r?)$")
OWN_COMMAND_TIMEOUT_S = 60.0
APPEARS_WITHIN_S = 3.0  # VS Code hands the request to a running window and returns


@dataclass(frozen=True)
class Change:
    """What is to be done to the entry, and both ways to do it."""

    kind: Literal["add", "change", "remove"]
    file: ConfigFile
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None
    text: str  # the file as our own merge makes it
    own: list[str] | None  # the client's own command that does the same


@dataclass(frozen=True)
class Outcome:
    """How a change was made."""

    backup: Path | None = None
    lossy_command: bool = False  # the own command did not keep the rest of the file


@dataclass(frozen=True)
class Connection:
    """A server's entry under one name in one client's file."""

    client: Client
    scope: Scope
    name: str
    machine: Machine

    @property
    def path(self) -> Path:
        """The file that holds the entry."""
        return self.machine.path(self.client.files[self.scope])

    @property
    def keys(self) -> tuple[str, str]:
        """Where in the file the entry is."""
        return (self.client.table, self.name)

    def read(self) -> ConfigFile:
        """The file as it is now."""
        return ConfigFile.read(self.path, self.client.format)

    def entry(self) -> Entry | None:
        """The entry as the client will read it."""
        return Entry.of(self.read().find(self.keys))

    def adding(self, wanted: Wanted) -> list[str] | None:
        """The client's own command line that adds this, where it has one."""
        return self._own(self.client.adding(wanted), self.client.value(wanted))

    def removing(self) -> list[str] | None:
        """The client's own command line that removes the entry, where it has one."""
        return self._own(self.client.remove, {})

    def plan_add(self, wanted: Wanted) -> Change | None:
        """What makes the client use this server; None when it does already."""
        file = self.read()
        before = file.find(self.keys)
        value = self.client.value(wanted)
        if _way(before) == _way(value):
            return None
        if before is None:
            own = self._installed(self.adding(wanted))
            text = file.with_entry(self.keys, value)
            return Change("add", file, None, value, text, own)
        kept = before if isinstance(before, Mapping) else {}
        lost = _TRANSPORT | (_OF_PROGRAMS if isinstance(wanted, Remote) else set())
        merged = {k: v for k, v in kept.items() if k not in lost} | value
        # The clients' own commands would replace the entry and lose what the user put into it.
        return Change("change", file, kept, merged, file.with_entry(self.keys, merged), None)

    def plan_remove(self, url: str = "") -> Change | None:
        """What takes the entry out; None when it is not there.

        Raises `ConnectError` when the entry of that name is somebody else's. An address alone does
        not tell whose it is: such an entry must have the given one.
        """
        file = self.read()
        before = file.find(self.keys)
        if before is None:
            return None
        if not any(_OURS.search(word) or word == url for word in _way(before)):
            raise ConnectError(
                f"{self.name!r} in {self.path} is not fleet-agentpack; it was left alone",
                "Pass --name with the name under which fleet-agentpack was connected,"
                " and --url with the address if it was connected by one.",
            )
        own = self._installed(self.removing())
        kept = before if isinstance(before, Mapping) else {}
        return Change("remove", file, kept, None, file.with_entry(self.keys, None), own)

    def apply(self, change: Change) -> Outcome:
        """Carry a change out, by the client's own command where there is one.

        If that command does not keep every other line of the file, our own merge replaces it.
        """
        if not change.own:
            return Outcome(change.file.save(change.text))
        self._run(change.own)
        now = self._settled(change)
        if self._as_wanted(change, now):
            return Outcome()
        if self.scope in self.client.rewrites:  # what was read before may be out of date by now
            raise self._own_command_failed("it reported success, but the entry is not there")
        return Outcome(change.file.save(change.text, over=now), lossy_command=True)

    def _own(self, command: OwnCommand | None, value: Mapping[str, object]) -> list[str] | None:
        """The client's own command line; names the bare program."""
        if not self.client.program or not command or self.scope not in command.scopes:
            return None
        return [self.client.program, *command.filled(self.name, self.scope, value)]

    def _installed(self, own: list[str] | None) -> list[str] | None:
        program = self.machine.program(own[0]) if own else None
        return [program, *own[1:]] if own and program else None

    def _run(self, own: list[str]) -> None:
        try:
            done = run(
                own,
                cwd=self.machine.project,
                env=self.machine.environ,
                timeout_s=OWN_COMMAND_TIMEOUT_S,
            )
        except (OSError, ProcessTimeoutError) as error:
            raise self._own_command_failed(str(error)) from error
        if done.status:
            said = without_colours(done.complaint or done.text.strip())
            raise self._own_command_failed(said[-1000:] or f"exit status {done.status}")

    def _own_command_failed(self, reason: str) -> ConnectError:
        return ConnectError(
            f"{self.client.title}'s own command failed: {reason}",
            f"Correct what it names, or edit {self.path} by hand (--print shows the entry).",
        )

    def _settled(self, change: Change) -> ConfigFile:
        deadline = time.monotonic() + APPEARS_WITHIN_S
        while True:
            now = self.read()
            if self._done(change, now) or time.monotonic() >= deadline:
                return now
            time.sleep(0.1)

    def _done(self, change: Change, now: ConfigFile) -> bool:
        return _way(change.after) == _way(now.find(self.keys))

    def _as_wanted(self, change: Change, now: ConfigFile) -> bool:
        if not self._done(change, now):
            return False
        if self.scope in self.client.rewrites:
            return True
        untouched = _lines(change.file.text) & _lines(change.text)
        return now.keeps(change.file, self.keys) and not untouched - _lines(now.text)


def _way(value: object) -> tuple[str, ...]:
    """How an entry reaches its server, to compare two: a command line, or an address and token."""
    if entry := Entry.of(value):
        return tuple(entry.argv)
    if not isinstance(value, Mapping):
        return ()
    told = value.get("url") or value.get("httpUrl"), value.get("bearer_token_env_var")
    headers = value.get("headers")
    bearer = headers.get("Authorization") if isinstance(headers, Mapping) else None
    return tuple(str(each) for each in (*told, bearer) if each)


def _lines(text: str) -> Counter[str]:
    """How often each line is there; a comma at its end comes and goes with its neighbours."""
    return Counter(_COMMA.sub(r"\1", line) for line in text.split("\n") if line.strip())
