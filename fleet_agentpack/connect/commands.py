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
from urllib.parse import quote

from fleet_agentpack import domains
from fleet_agentpack.connect.check import Checked, CheckError, check
from fleet_agentpack.connect.client import Client, Entry, Machine, Remote, Wanted
from fleet_agentpack.connect.connection import Change, Connection, Outcome
from fleet_agentpack.connect.errors import ConnectError
from fleet_agentpack.connect.known_clients import CLIENTS
from fleet_agentpack.connect.launcher import PROGRAM, Running, fitting, launch_words
from fleet_agentpack.connect.remote import address, check_remote
from fleet_agentpack.console.ask import confirm
from fleet_agentpack.console.command import Console, Line, declare
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.text import Paint
from fleet_agentpack.kit.locks import file_lock
from fleet_agentpack.kit.options import add_choice
from fleet_agentpack.settings import Ask, Settings

_CHOICE = ("only", "tools", "without", "no_extras", "prefix")
_OF_THE_SERVER = (*_CHOICE, "read_only", "all", "ask")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def add(parser: Parser, name: str) -> None:  # noqa: ARG001
    """Add the arguments of `connect`."""
    parser.add_argument("client", metavar="CLIENT", choices=CLIENTS, help=", ".join(CLIENTS))
    parser.add_argument("--print", action="store_true", help="print what to do; write nothing")
    parser.add_argument("--remove", action="store_true", help="remove the entry")
    parser.add_argument("--all", action="store_true", help="serve every tool, whatever the client")
    add_choice(parser)
    parser.add_argument(
        "--project",
        metavar="DIR",
        default="",
        help="the project, where the client does not name it",
    )
    parser.add_argument(
        "--ask",
        choices=get_args(Ask),
        help="when the server asks you, in the client, before it acts",
    )
    parser.add_argument(
        "--url",
        default="",
        help="a server that is already running, such as http://127.0.0.1:3000/mcp",
    )
    parser.add_argument(
        "--token-env", metavar="NAME", default="", help="the variable that holds its token"
    )
    parser.add_argument(
        "--name", default="agentpack", help="name of the entry (default: %(default)s)"
    )
    parser.add_argument(
        "--scope",
        choices=("user", "project"),
        default="user",
        help="for you everywhere, or for this directory (default: %(default)s)",
    )
    parser.add_argument("--yes", action="store_true", help="write without asking")
    parser.example = "claude --ask risky"
    declare(parser, connect)


def connect(console: Console) -> None:
    """Write, print or remove one client's entry, then start the server as the client will."""
    options = console.arguments
    settings = _with_server_options(options, console.settings)
    connection = _connection(options, settings)
    if options.remove:
        _remove(connection, console)
        return
    wanted = _remote(options) if options.url else _started(connection, console, settings)
    if options.print:
        console.show(*_show_instructions(connection, wanted, console.paint))
        console.show(*_show_asking(connection.client, options.ask, wanted))
        return
    change = connection.plan_add(wanted)
    if change is None:
        console.show(f"{connection.client.title} has this entry already, in {connection.path}")
    else:
        _carry_out(connection, change, console)
    checked = _check(connection, wanted, settings)
    console.show(*_show_check(connection, wanted, checked, console.paint))
    console.show(*_show_asking(connection.client, options.ask, wanted))


def _started(connection: Connection, console: Console, settings: Settings) -> Entry:
    """A server that the client starts."""
    options, client = console.arguments, connection.client
    if options.token_env:
        raise ConnectError("--token-env is for a server at an address: it needs --url")
    only = _domains(options, settings, client)
    project = _named_project(options.project, settings) or client.workspace
    entry = _entry(dataclasses.replace(settings, only=only), project, connection, options.ask)
    console.show(*_show_choice(client, only, settings), *_show_launch(entry))
    console.show(*_show_project(client, project))
    return entry


def _remote(options: argparse.Namespace) -> Remote:
    """A server that is already running; what it serves was decided when it was started."""
    chosen = [name for name in _OF_THE_SERVER if getattr(options, name)]
    if chosen:
        option = f"--{chosen[0].replace('_', '-')}"
        raise ConnectError(f"{option} belongs to the server at {options.url}, not here")
    if options.token_env and not _VARIABLE.fullmatch(options.token_env):
        raise ConnectError(
            f"{options.token_env!r} is not the name of a variable",
            "--token-env takes the variable's name, never the token itself.",
        )
    return Remote(address(options.url, options.project), options.token_env)


def _remove(connection: Connection, console: Console) -> None:
    if console.arguments.print:
        console.show(*_show_removal(connection, console.paint))
        return
    url = console.arguments.url
    change = connection.plan_remove(address(url, console.arguments.project) if url else "")
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
    given = {name: getattr(options, name) for name in _CHOICE}
    read_only = options.read_only or settings.read_only
    return dataclasses.replace(settings.choosing(given), read_only=read_only)


def _domains(options: argparse.Namespace, settings: Settings, client: Client) -> tuple[str, ...]:
    """The domains to serve: as asked for, else as many as the client takes; empty means all."""
    if options.all:
        return ()
    return fitting(domains.count_tools(settings), client.tool_limit) or settings.only


def _named_project(given: str, settings: Settings) -> str:
    """What was given for the project, absolute; a client's own variable stays as it is."""
    return given if not given or "$" in given else str(settings.paths.resolve(given))


def _entry(settings: Settings, project: str, connection: Connection, ask: Ask | None) -> Entry:
    words = launch_words(_running(connection.machine))
    for option, names in (
        ("--only", settings.only),
        ("--tools", settings.tools),
        ("--without", settings.without),
    ):
        words += [option, ",".join(names)] if names else []
    words += ["--read-only"] if settings.read_only else []
    words += [] if settings.extras else ["--no-extras"]
    words += ["--prefix", settings.prefix] if settings.prefix else []
    words += ["--project", project] if project else []
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


def _check(connection: Connection, wanted: Wanted, settings: Settings) -> Checked | None:
    """What the server says to this entry; None where the token is not known here."""
    client = connection.client
    if isinstance(wanted, Remote):
        return _check_remote(connection, wanted, settings)
    entry = connection.entry()
    if entry is None:
        raise ConnectError(f"{connection.path} does not hold the entry; try --print")
    cwd = settings.home if connection.scope == "user" else settings.cwd
    filled = entry.filled(client.workspace, settings.cwd)
    try:
        return check(filled, environ=settings.environ, cwd=cwd)
    except CheckError as error:
        raise ConnectError(
            f"the entry is in place, but the server does not start from it: {error}",
            f"Try it yourself: {shlex.join(filled.argv)}",
            f"Take it out:     {PROGRAM} connect {client.name} --remove",
        ) from error


def _check_remote(connection: Connection, remote: Remote, settings: Settings) -> Checked | None:
    if remote.token_env and not settings.environ.get(remote.token_env):
        return None
    client = connection.client
    url = remote.url.replace(client.workspace or "$", quote(str(settings.cwd)))
    try:
        return check_remote(dataclasses.replace(remote, url=url), settings.environ)
    except CheckError as error:
        raise ConnectError(
            f"the entry is in place, but {error}",
            f"Start the server there: {PROGRAM} --http",
            f"Take the entry out:     {PROGRAM} connect {client.name} --remove --url {remote.url}",
        ) from error


def _show_instructions(connection: Connection, wanted: Wanted, paint: Paint) -> Iterator[Line]:
    """The exact command and snippet, and where it goes."""
    client = connection.client
    own = connection.adding(wanted)
    if own:
        yield from (paint("Run", "bold"), "", shlex.join(own), "")
    yield paint("Or put" if own else "Put", "bold"), f"into {connection.path}\n"
    yield client.format.put("", connection.keys, client.value(wanted))
    yield client.then


def _show_removal(connection: Connection, paint: Paint) -> Iterator[Line]:
    """How to take the entry out by hand."""
    own = connection.removing()
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
            "This entry starts with uvx, which looks for newer versions each time: it is slower, "
            f"and fails without a network. After {install}, connect again from there."
        )


def _show_project(client: Client, project: str) -> Iterator[Line]:
    """Which project the server works in, where that is not plain."""
    if project and project == client.workspace:
        yield f"The project is the folder that is open in {client.title} ({project})."
    elif not project and not client.has_folder:
        yield f"{client.title} opens no folder, so there is no project; --project DIR names one."


def _show_asking(client: Client, ask: Ask | None, wanted: Wanted) -> Iterator[Line]:
    """What `--ask` means in this client; where it is not given, that there is such a thing."""
    if isinstance(wanted, Remote):
        return
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
    " and before an agent with unsaved work is deleted; none of this happens unless you agree.",
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


def _show_check(
    connection: Connection, wanted: Wanted, checked: Checked | None, paint: Paint
) -> Iterator[Line]:
    """The server answered."""
    client = connection.client
    if checked is None and isinstance(wanted, Remote):
        yield f"The server was not checked: {wanted.token_env} is not set here."
        yield f"{client.title} needs {wanted.token_env} in its environment when it starts."
    if checked is None:
        yield client.then
        return
    tools = len(checked.tools)
    answers = "answers" if isinstance(wanted, Remote) else "starts from this entry"
    yield paint("✓", "green"), f"The server {answers}: {tools} tools in {checked.seconds:.1f} s."
    if client.tool_limit and tools > client.tool_limit:
        yield f"{client.title} takes at most {client.tool_limit} tools; it will not offer the rest."
    if connection.scope == "project" and isinstance(wanted, Entry):
        yield "It names a path on this machine; others who share the project need their own."
    yield client.then


def _shown(value: object) -> str:
    """A field for the screen; values of variables may be secrets and are not shown."""
    if not value:
        return "(none)"
    if isinstance(value, Mapping):
        return "(not shown)"
    return shlex.join(map(str, value)) if isinstance(value, list) else str(value)
