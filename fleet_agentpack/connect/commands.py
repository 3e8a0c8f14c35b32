"""`fleet-agentpack connect`: tell an MCP client about this server, or make it forget again."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import get_args

from fleet_agentpack import domains
from fleet_agentpack.connect.check import Checked, CheckError, check
from fleet_agentpack.connect.client import Client, Entry, Machine
from fleet_agentpack.connect.connection import Change, Connection, Outcome
from fleet_agentpack.connect.errors import ConnectError
from fleet_agentpack.connect.known_clients import CLIENTS
from fleet_agentpack.connect.launcher import PROGRAM, Running, fitting, launch_words
from fleet_agentpack.console.ask import confirm
from fleet_agentpack.console.command import Console, Line, declare
from fleet_agentpack.console.text import Paint
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.options import split_names
from fleet_agentpack.settings import Ask, Settings

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def add(parser: argparse.ArgumentParser, name: str) -> None:  # noqa: ARG001
    """Add the arguments of `connect`."""
    parser.add_argument("client", choices=CLIENTS, help="the MCP client on this machine")
    parser.add_argument("--print", action="store_true", help="print what to do; write nothing")
    parser.add_argument("--remove", action="store_true", help="remove the entry")
    parser.add_argument("--all", action="store_true", help="serve every tool, whatever the client")
    parser.add_argument(
        "--only", metavar="DOMAIN[,DOMAIN]", default="", help="serve only these domains"
    )
    parser.add_argument("--read-only", action="store_true", help="leave out every tool that writes")
    parser.add_argument(
        "--ask", choices=get_args(Ask), help="when the server asks you in the client, too"
    )
    parser.add_argument("--name", default="agentpack", help="name of the entry (%(default)s)")
    parser.add_argument(
        "--scope",
        choices=("user", "project"),
        default="user",
        help="for you everywhere, or for this directory (%(default)s)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    declare(parser, connect)


def connect(console: Console) -> None:
    """Write, print or remove one client's entry, then start the server as the client will."""
    options = console.arguments
    settings = _with_server_options(options, console.settings)
    connection = _connection(options, settings)
    if options.remove:
        _remove(connection, console)
        return
    only = _domains(options, settings, connection.client)
    entry = _entry(only, settings, connection.machine, options.ask)
    console.show(*_show_choice(connection.client, only, settings), *_show_launch(entry))
    if options.print:
        console.show(*_show_instructions(connection, entry, console.paint))
        console.show(*_show_asking(connection.client, options.ask))
        return
    change = connection.plan_add(entry)
    if change is None:
        console.show(f"{connection.client.title} has this entry already, in {connection.path}")
    else:
        _carry_out(connection, change, console)
    checked = _check(connection, settings)
    console.show(*_show_check(connection, checked, console.paint))
    console.show(*_show_asking(connection.client, options.ask))


def _remove(connection: Connection, console: Console) -> None:
    if console.arguments.print:
        console.show(*_show_removal(connection, console.paint))
        return
    change = connection.plan_remove()
    if change is None:
        console.show(*_show_absence(connection))
    else:
        _carry_out(connection, change, console)


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
    machine = Machine(settings.home, settings.cwd, settings.environ)
    return Connection(client, options.scope, options.name, machine)


def _with_server_options(options: argparse.Namespace, settings: Settings) -> Settings:
    """The server's options count after the command as they do before it."""
    return dataclasses.replace(
        settings,
        only=split_names(options.only) or settings.only,
        read_only=options.read_only or settings.read_only,
    )


def _domains(options: argparse.Namespace, settings: Settings, client: Client) -> tuple[str, ...]:
    """The domains to serve: as asked for, else as many as the client takes; empty means all."""
    if options.all:
        return ()
    return fitting(domains.count_tools(settings), client.tool_limit) or settings.only


def _entry(only: tuple[str, ...], settings: Settings, machine: Machine, ask: Ask | None) -> Entry:
    words = launch_words(_running(machine))
    words += ["--only", ",".join(only)] if only else []
    words += ["--read-only"] if settings.read_only else []
    words += ["--ask", ask] if ask else []
    return Entry(words[0], tuple(words[1:]))


def _running(machine: Machine) -> Running:
    try:
        origin = metadata.distribution(PROGRAM).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        origin = None
    package = Path(__file__).resolve().parent.parent.parent
    return Running(sys.argv[0], sys.executable, package, origin, machine.program("uvx"))


def _carry_out(connection: Connection, change: Change, console: Console) -> None:
    console.show(*_show_change(connection, change, console.paint))
    if not console.arguments.yes and not confirm("Go ahead?", _unattended):
        raise ConnectError("nothing was changed")
    try:
        with file_lock(console.settings.directories.state / "connect.lock"):
            outcome = connection.apply(change)
    except OSError as error:
        raise ConnectError(f"nothing was changed: {error}") from error
    console.show(*_show_outcome(connection.client, change, outcome))


def _unattended(reason: str) -> ConnectError:
    return ConnectError(reason, "--print shows what to do by hand; nothing was changed.")


def _check(connection: Connection, settings: Settings) -> Checked:
    entry = connection.entry()
    if entry is None:
        raise ConnectError(f"{connection.path} does not hold the entry; try --print")
    cwd = settings.home if connection.scope == "user" else settings.cwd
    try:
        return check(entry, environ=settings.environ, cwd=cwd)
    except CheckError as error:
        raise ConnectError(
            f"the entry is in place, but the server does not start from it: {error}",
            f"Try it yourself: {shlex.join(entry.words)}",
            f"Take it out:     {PROGRAM} connect {connection.client.name} --remove",
        ) from error


def _show_instructions(connection: Connection, entry: Entry, paint: Paint) -> Iterator[Line]:
    """The exact command and snippet, and where it goes."""
    client = connection.client
    own = connection.own_command(client.add, entry)
    if own:
        yield from (paint("Run", "bold"), "", shlex.join(own), "")
    yield paint("Or put" if own else "Put", "bold"), f"into {connection.path}\n"
    yield client.format.put("", connection.keys, client.value(entry))
    yield client.then


def _show_removal(connection: Connection, paint: Paint) -> Iterator[Line]:
    """How to take the entry out by hand."""
    own = connection.own_command(connection.client.remove, None)
    if own:
        yield from (paint("Run", "bold"), "", shlex.join(own), "")
    what = ".".join(connection.keys)
    yield f"{'Or delete' if own else 'Delete'} {what} in {connection.path}"


def _show_absence(connection: Connection) -> Iterator[Line]:
    """There is nothing to take out; it may be in the client's other file."""
    client = connection.client
    yield f"{client.title} has no {connection.name!r} in {connection.path}"
    for scope in client.files:
        other = dataclasses.replace(connection, scope=scope)
        if scope != connection.scope and other.entry():
            yield f"There is one in {other.path}: --remove --scope {scope}"


def _show_choice(client: Client, only: tuple[str, ...], settings: Settings) -> Iterator[Line]:
    """Why not all domains are served, if they are not."""
    if client.tool_limit and only and only != settings.only:
        yield (
            f"{client.title} takes at most {client.tool_limit} tools, so only {', '.join(only)} "
            "are served; --all serves everything."
        )


def _show_launch(entry: Entry) -> Iterator[Line]:
    """What a start by uvx costs, and how to have a better one."""
    program = Path(entry.command)
    if program.stem == "uvx":
        what = entry.args[1] if entry.args[0] == "--from" else PROGRAM
        install = shlex.join([str(program.with_name("uv")), "tool", "install", what])
        yield (
            "This entry starts by uvx, which looks for newer versions each time: it is slower, and "
            f"fails without a network. After {install}, connect again from there."
        )


def _show_asking(client: Client, ask: Ask | None) -> Iterator[Line]:
    """What `--ask` means in this client; where it is not given, that there is such a thing."""
    if ask in (None, "never"):
        if ask is None and client.shows_forms:
            yield (
                f"With --ask risky, {client.title} also asks you before files are deleted,"
                " overwritten or rolled back, and refuses where you cannot answer."
            )
        return
    yield _ASKING[ask]
    if not client.shows_forms:
        effect = "refuses all of it" if ask == "require" else "may refuse it, or go on without you"
        yield f"{client.title} does not show such questions, so the server {effect}."
    else:
        yield f"Where {client.title} runs without you, it answers no for you."


_ASKING: dict[Ask, str] = {
    "risky": "You are asked before files of yours are deleted or overwritten, before a rollback,"
    " and before an agent with unsaved work is deleted.",
    "always": "You are asked before every deploy, rollback and deletion of an agent.",
    "require": "You are asked before files of yours are deleted or overwritten, before a rollback,"
    " and before an agent with unsaved work is deleted; nothing of this is done unasked.",
}


def _show_change(connection: Connection, change: Change, paint: Paint) -> Iterator[Line]:
    """What is about to change, field by field, and how."""
    place = f"{change.file.path}, {'.'.join(connection.keys)}"
    yield paint(f"{connection.client.title}: {place}", "bold")
    before, after = change.before or {}, change.after or {}
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) == after.get(key):
            yield f"    {key}: stays as it is"
            continue
        if key in before:
            yield paint(f"  - {key}: {_shown(before[key])}", "red")
        if key in after:
            yield paint(f"  + {key}: {_shown(after[key])}", "green")
    if change.own:
        yield f"  by {shlex.join(change.own)}"
    elif change.file.content is not None:
        yield "  by an edit of that file, after a backup next to it"


def _show_outcome(client: Client, change: Change, outcome: Outcome) -> Iterator[Line]:
    """What was done."""
    if outcome.lossy_command:
        yield f"{client.title}'s own command changed other lines too; merged here instead."
    if outcome.backup:
        yield f"Backup of the original: {outcome.backup}"
    done = {"add": "Added to", "change": "Changed in", "remove": "Removed from"}[change.kind]
    yield f"{done} {client.title}."


def _show_check(connection: Connection, checked: Checked, paint: Paint) -> Iterator[Line]:
    """The server answered."""
    client, tools = connection.client, len(checked.tools)
    took = f"{tools} tools in {checked.seconds:.1f} s"
    yield paint("✓", "green"), f"The server starts from this entry: {took}."
    if client.tool_limit and tools > client.tool_limit:
        yield f"{client.title} takes at most {client.tool_limit} tools; it will not offer the rest."
    if connection.scope == "project":
        yield "It names a path on this machine; others who share the project need their own."
    yield client.then


def _shown(value: object) -> str:
    """A field for the screen; values of variables may be secrets and are not shown."""
    if not value:
        return "(none)"
    if isinstance(value, Mapping):
        return "(not shown)"
    return shlex.join(map(str, value)) if isinstance(value, list) else str(value)
