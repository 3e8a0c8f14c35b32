"""`fleet-agentpack connect`: tell an MCP client about this server, or make it forget again."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shlex
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from fleet_agentpack import domains
from fleet_agentpack.connect.check import CheckError, check
from fleet_agentpack.connect.connection import Change, Connection, Outcome
from fleet_agentpack.connect.errors import ConnectError
from fleet_agentpack.connect.launcher import PROGRAM, Running, fitting, launch_words
from fleet_agentpack.connect.model import Entry, Surroundings
from fleet_agentpack.connect.rows import CLIENTS
from fleet_agentpack.console.terminal import Paint, ask, is_attended, printable
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.settings import Settings, split_names

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def add(parser: argparse.ArgumentParser, name: str) -> None:  # noqa: ARG001
    """Add the arguments of `connect`."""
    parser.add_argument("client", choices=CLIENTS, help="the MCP client on this machine")
    parser.add_argument("--print", action="store_true", help="print what to do; write nothing")
    parser.add_argument("--remove", action="store_true", help="take the entry out again")
    parser.add_argument("--all", action="store_true", help="serve every tool, whatever the client")
    parser.add_argument("--only", metavar="DOMAIN[,DOMAIN]", default="", help="serve a part only")
    parser.add_argument("--read-only", action="store_true", help="leave out every tool that writes")
    parser.add_argument("--name", default="agentpack", help="name of the entry (%(default)s)")
    parser.add_argument(
        "--scope",
        choices=("user", "project"),
        default="user",
        help="for you everywhere, or for this directory (%(default)s)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(handler=connect)


def connect(options: argparse.Namespace, settings: Settings) -> int:
    """Write, print or remove one client's entry, then start the server as the client will."""
    settings = _with_server_options(options, settings)
    connection = _connection(options, settings)
    show = Screen(connection)
    if options.remove:
        return _remove(connection, options, settings, show)
    only = _domains(options, settings, connection)
    entry = _entry(only, settings)
    show.choice(only, settings)
    if options.print:
        show.instructions(entry)
        return 0
    change = connection.plan_add(entry)
    if change is None:
        print(f"{connection.client.title} has this entry already, in {connection.path}")
    else:
        _carry_out(connection, change, options, settings, show)
    return _check(connection, settings, show)


def _remove(
    connection: Connection, options: argparse.Namespace, settings: Settings, show: Screen
) -> int:
    if options.print:
        show.removal()
        return 0
    change = connection.plan_remove()
    if change is None:
        show.absent()
    else:
        _carry_out(connection, change, options, settings, show)
    return 0


def _connection(options: argparse.Namespace, settings: Settings) -> Connection:
    client = CLIENTS[options.client]
    if not _NAME.fullmatch(options.name):
        raise ConnectError(
            f"{options.name!r} is not a usable name",
            "Use letters, digits, - and _, not more than 64, and no - in front.",
        )
    if options.scope not in client.files:
        raise ConnectError(
            f"{client.title} has no {options.scope} scope; leave --scope {options.scope} out"
        )
    here = Surroundings(settings.home, settings.cwd, settings.environ)
    return Connection(client, options.scope, options.name, here)


def _with_server_options(options: argparse.Namespace, settings: Settings) -> Settings:
    """The server's options count after the command as they do before it."""
    return dataclasses.replace(
        settings,
        only=split_names(options.only) or settings.only,
        read_only=options.read_only or settings.read_only,
    )


def _domains(
    options: argparse.Namespace, settings: Settings, connection: Connection
) -> tuple[str, ...]:
    """The domains to serve: as asked for, else as many as the client takes; empty means all."""
    if options.all:
        return ()
    chosen = {
        domain.name: len(domain.tools_for(read_only=settings.read_only))
        for domain in domains.select(settings.only)
    }
    return fitting(chosen, connection.client.tool_limit) or settings.only


def _entry(only: tuple[str, ...], settings: Settings) -> Entry:
    words = launch_words(_running(settings))
    words += ["--only", ",".join(only)] if only else []
    words += ["--read-only"] if settings.read_only else []
    return Entry(words[0], tuple(words[1:]))


def _running(settings: Settings) -> Running:
    try:
        origin = metadata.distribution(PROGRAM).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        origin = None
    here = Surroundings(settings.home, settings.cwd, settings.environ)
    package = Path(__file__).resolve().parent.parent.parent
    return Running(sys.argv[0], sys.executable, package, origin, here.program("uvx"))


def _carry_out(
    connection: Connection,
    change: Change,
    options: argparse.Namespace,
    settings: Settings,
    show: Screen,
) -> None:
    show.change(change)
    if not options.yes and not _confirmed():
        raise ConnectError("nothing was changed")
    try:
        with file_lock(settings.directories.state / "connect.lock"):
            outcome = connection.apply(change)
    except OSError as error:
        raise ConnectError(f"nothing was changed: {error}") from error
    show.outcome(change, outcome)


def _confirmed() -> bool:
    if not is_attended():
        raise ConnectError(
            "nothing was changed: there is no terminal to ask on",
            "Pass --yes to go ahead without a question, or --print to see what to do by hand.",
        )
    return ask("Go ahead?")


def _check(connection: Connection, settings: Settings, show: Screen) -> int:
    entry = connection.entry()
    if entry is None:
        raise ConnectError(f"{connection.path} does not hold the entry; try --print")
    cwd = settings.home if connection.scope == "user" else settings.cwd
    try:
        checked = check(entry, environ=settings.environ, cwd=cwd)
    except CheckError as error:
        raise ConnectError(
            f"the entry is in place, but the server does not start from it: {error}",
            f"Try it yourself: {shlex.join(entry.words)}",
            f"Take it out:     {PROGRAM} connect {connection.client.name} --remove",
        ) from error
    show.works(len(checked.tools), checked.seconds)
    return 0


class Screen:
    """Tells a person what is going on with one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.client = connection.client
        self.paint = Paint.for_stream(sys.stdout, connection.surroundings.environ)

    def instructions(self, entry: Entry) -> None:
        """The exact command and snippet, and where it goes."""
        own = self.connection.own_command(self.client.add, entry)
        if own:
            print(f"{self.paint('Run', 'bold')}\n\n{shlex.join(own)}\n")
        value = self.client.value(entry)
        print(f"{self.paint('Or put' if own else 'Put', 'bold')} into {self.connection.path}\n")
        print(self.client.format.put("", self.connection.keys, value))
        print(self.client.then)

    def removal(self) -> None:
        """How to take the entry out by hand."""
        own = self.connection.own_command(self.client.remove, None)
        if own:
            print(f"{self.paint('Run', 'bold')}\n\n{shlex.join(own)}\n")
        what = ".".join(self.connection.keys)
        print(f"{'Or delete' if own else 'Delete'} {what} in {self.connection.path}")

    def absent(self) -> None:
        """There is nothing to take out; it may be in the client's other file."""
        print(f"{self.client.title} has no {self.connection.name!r} in {self.connection.path}")
        for scope in self.client.files:
            other = dataclasses.replace(self.connection, scope=scope)
            if scope != self.connection.scope and other.entry():
                print(f"There is one in {other.path}: --remove --scope {scope}")

    def choice(self, only: tuple[str, ...], settings: Settings) -> None:
        """Why not all domains are served, if they are not."""
        limit = self.client.tool_limit
        if limit and only and only != settings.only:
            print(
                f"{self.client.title} takes at most {limit} tools, so only {', '.join(only)} are "
                "served; --all serves everything."
            )

    def change(self, change: Change) -> None:
        """What is about to change, field by field, and how."""
        place = f"{change.file.path}, {'.'.join(self.connection.keys)}"
        print(self.paint(f"{self.client.title}: {place}", "bold"))
        before, after = change.before or {}, change.after or {}
        for key in dict.fromkeys([*before, *after]):
            if before.get(key) == after.get(key):
                print(f"    {key}: stays as it is")
                continue
            if key in before:
                print(self.paint(f"  - {key}: {_shown(before[key])}", "red"))
            if key in after:
                print(self.paint(f"  + {key}: {_shown(after[key])}", "green"))
        if change.own:
            print(f"  by {shlex.join(change.own)}")
        elif change.file.content is not None:
            print("  by an edit of that file, after a backup next to it")

    def outcome(self, change: Change, outcome: Outcome) -> None:
        """What was done."""
        if outcome.lossy_command:
            print(
                f"{self.client.title}'s own command changed other lines too; merged here instead."
            )
        if outcome.backup:
            print(f"The file as it was: {outcome.backup}")
        done = {"add": "Added to", "change": "Changed in", "remove": "Removed from"}[change.kind]
        print(f"{done} {self.client.title}.")

    def works(self, tools: int, seconds: float) -> None:
        """The server answered."""
        tick = self.paint("✓", "green")
        print(f"{tick} The server starts from this entry: {tools} tools in {seconds:.1f} s.")
        limit = self.client.tool_limit
        if limit and tools > limit:
            print(f"{self.client.title} takes at most {limit} tools; it will not offer the rest.")
        if self.connection.scope == "project":
            print("It names a path on this machine; others who share the project need their own.")
        print(self.client.then)


def _shown(value: Any) -> str:
    """A field for the screen; values of variables may be secrets and are not shown."""
    if not value:
        return "(none)"
    if isinstance(value, Mapping):
        return "(not shown)"
    text = shlex.join(map(str, value)) if isinstance(value, list) else str(value)
    return printable(text)
