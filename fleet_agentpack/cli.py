"""The command line: serve, print, or hand over to a room's own commands."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fleet_agentpack import domains
from fleet_agentpack.commands import COMMANDS, PROG, completion_of, parser_of
from fleet_agentpack.console.parser import Parser, did_you_mean, near_misses
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.options import ASK, VARIABLES, add_choice
from fleet_agentpack.kit.paths import expand_home
from fleet_agentpack.kit.project import why_no_project
from fleet_agentpack.kit.secret import Secret
from fleet_agentpack.settings import (
    HttpSettings,
    Settings,
    SettingsError,
    check_exposure,
    own_token,
    read_token_file,
)
from fleet_agentpack.version import __version__
from fleet_agentpack.wire.descriptors import ClaimedStdio, Handover
from fleet_agentpack.wire.quick_start import LOG_LEVELS, can_have_front
from fleet_agentpack.wire.selection import selection_of

LAST_PORT = 65535
MISTAKEN, FAILED, INTERRUPTED, UNREAD = 2, 1, 130, 141

# The deploy commands take these before the command too, as the original does.
DEPLOY_VALUES = ("repo", "profile", "target", "machine")
DEPLOY_SWITCHES = ("json", "yes", "dry_run")

EXAMPLES = ("demo", "connect claude", "--only fleet --read-only")
HTTP_ONLY = ("host", "port", "token_file", "no_token", "allowed_host", "install_scope")


def run(argv: Sequence[str]) -> int:
    """`fleet-agentpack`: serve, or run one of the commands; returns the exit status."""
    parser = main_parser()
    options = parser.parse_args(argv)
    if options.command is None:
        if early := _given_before_the_command(options):
            parser.error(f"{early[0]} needs a command")
        return _guarded(PROG, lambda: serve(options))
    if options.command not in COMMANDS:
        near = near_misses(options.command, list(COMMANDS))
        hint = did_you_mean(near) if near else ""
        parser.error(f"unknown command {options.command!r}{hint}")
    if options.command == "help":
        return run([*options.arguments, "--help"])
    return _run_command(options, parser)


def run_single(domain: str, prog: str, argv: Sequence[str]) -> int:
    """A server for one domain under its own program name."""
    options = _server_parser(prog).parse_args(argv)
    _serve_alone(options, domain)
    return _guarded(prog, lambda: serve(options))


def take_over(
    prog: str, argv: Sequence[str], domain: str, wire: ClaimedStdio, left: Handover
) -> int:
    """Serve on, where the front has stopped; these options need no more checks."""
    options = _server_parser(prog).parse_args(argv)
    if domain:
        _serve_alone(options, domain)

    def serve_on() -> int:
        settings = _settings(options, lenient=True)  # a session that has begun goes on
        _begin(settings, options.log_level)
        return _serve_wire(settings, wire, left)

    return _guarded(prog, serve_on)


def _serve_alone(options: argparse.Namespace, domain: str) -> None:
    """Serve one domain, and of it what its contract has."""
    options.only, options.no_extras = domain, "1"


def serve(options: argparse.Namespace) -> int:
    """Serve MCP on stdio or HTTP until the client, or a signal, ends it."""
    settings = _settings(options)
    domains.check_names(settings.only)
    if options.http:
        check_exposure(settings.http)
    elif useless := [name for name in HTTP_ONLY if getattr(options, name) is not None]:
        raise SettingsError(f"--{useless[0].replace('_', '-')} needs --http")
    _begin(settings, options.log_level)
    return _serve_http(settings, options.log_level) if options.http else _serve_stdio(settings)


def _with_token(settings: Settings) -> Settings:
    """These settings with a token, unless none is wanted; says where one is that was not given."""
    http = settings.http
    if http.token or http.open_to_all:
        return settings
    path = settings.directories.state / "http-token"
    token, is_new = own_token(path)
    shown = f": {token.reveal()}" if is_new and sys.stderr.isatty() else ""
    sys.stderr.write(f"{PROG}: clients need the token in {path}{shown}\n")
    return dataclasses.replace(settings, http=dataclasses.replace(http, token=token))


def _begin(settings: Settings, log_level: str) -> None:
    from fleet_agentpack.wire.logs import configure

    configure(log_level)
    for warning in settings.warnings:
        sys.stderr.write(f"{PROG}: {warning}\n")


def _serve_stdio(settings: Settings) -> int:
    if sys.stdin is not None and sys.stdin.isatty():
        _explain_waiting()
    wire = ClaimedStdio.claim()
    left = _answer_known(settings, wire)
    return 0 if left is None else _serve_wire(settings, wire, left)


def _answer_known(settings: Settings, wire: ClaimedStdio) -> Handover | None:
    """Let the front answer what it can; what `[enact]` changes in a listing, it cannot know."""
    from fleet_agentpack.wire.front import serve_known
    from fleet_agentpack.wire.recorded import RecordedListing

    listing = RecordedListing.read(selection_of(settings), settings.place.sentence)
    if listing is None or not can_have_front(settings.environ) or "enact" in settings.config:
        return Handover()
    home, cache = str(settings.home), str(settings.directories.cache)
    return serve_known(wire, listing, home, cache, settings.place.path)


def _serve_wire(settings: Settings, wire: ClaimedStdio, left: Handover) -> int:
    with _uncollected():
        from fleet_agentpack.wire.server import build_server
        from fleet_agentpack.wire.stdio import run_stdio

        mcp = build_server(settings, left.listed)
    return run_stdio(mcp, wire, left)


def _serve_http(settings: Settings, log_level: str) -> int:
    with _uncollected():
        import asyncio

        from fleet_agentpack.wire.http import listen, serve_http
        from fleet_agentpack.wire.server import build_server

        sockets = listen(settings.http)
        mcp = build_server(_with_token(settings))
    _let_work_be_interrupted()
    asyncio.run(serve_http(mcp, settings.http, log_level, sockets))
    return 0


@contextmanager
def _uncollected() -> Iterator[None]:
    """Import without garbage collection: it would take a tenth of the start-up time and find
    nothing, since what is imported stays."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


def _run_command(options: argparse.Namespace, parser: Parser) -> int:
    room, _ = COMMANDS[options.command]
    early = _given_before_the_command(options)
    if early and room not in ("deploy", "doctor"):
        parser.error(f"{early[0]} goes after {options.command}")
    below = parser_of(options.command)
    arguments = below.parse_args([*early, *options.arguments])
    if options.command == "completion":
        return _guarded(below.prog, lambda: _complete(arguments.shell, parser))
    as_json = getattr(arguments, "json", False)
    lenient = getattr(arguments, "lenient", False)
    _let_work_be_interrupted()
    return _guarded(
        below.prog,
        lambda: int(arguments.handler(arguments, _settings(options, lenient=lenient))),
        as_json=as_json,
    )


def _complete(shell: str, parser: Parser) -> int:
    sys.stdout.write(completion_of(shell, parser))
    sys.stdout.flush()
    return 0


def _given_before_the_command(options: argparse.Namespace) -> list[str]:
    """The deploy flags that were given before the command, as arguments again."""
    words: list[str] = []
    for flag in DEPLOY_VALUES:
        value = getattr(options, flag)
        words += [] if value is None else [f"--{flag}", value]
    given = (flag for flag in DEPLOY_SWITCHES if getattr(options, flag))
    return words + [f"--{flag.replace('_', '-')}" for flag in given]


def _guarded(prog: str, action: Callable[[], int], *, as_json: bool = False) -> int:
    """Run an action; what the user did wrong becomes a message and a status, never a trace."""
    try:
        return action()
    except SettingsError as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return MISTAKEN
    except AppError as error:
        from fleet_agentpack.console.command import print_error

        print_error(prog, error, as_json=as_json)
        return FAILED
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end is near, and has to be clean
        sys.stderr.write(f"{prog}: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD


def _let_work_be_interrupted() -> None:
    """From here on, Ctrl-C is an exception again: work that it stops is undone or finished."""
    if callable(signal.getsignal(signal.SIGINT)):  # a caller that ignores it goes on doing so
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _settings(options: argparse.Namespace, *, lenient: bool = False) -> Settings:
    given = {name: value for name in VARIABLES if (value := getattr(options, name))}
    settings = Settings.read(options=given, lenient=lenient)
    return dataclasses.replace(
        settings,
        read_only=options.read_only,
        http=_http_settings(options, settings) if options.http else settings.http,
    )


def _http_settings(options: argparse.Namespace, settings: Settings) -> HttpSettings:
    from fleet_agentpack.config import HttpTable

    configured = settings.read_table(HttpTable, "http")
    return HttpSettings(
        host=HttpSettings.host if options.host is None else options.host,
        port=HttpSettings.port if options.port is None else options.port,
        token=_token(options, configured.token_file, settings),
        open_to_all=bool(options.no_token),
        allowed_hosts=(*configured.allowed_hosts, *(options.allowed_host or ())),
        install_scope=options.install_scope or HttpSettings.install_scope,
        projects=tuple(_allowed_project(each, settings) for each in configured.projects),
    )


def _allowed_project(listed: str, settings: Settings) -> Path:
    path = expand_home(listed, settings.home)
    why = why_no_project(str(path), str(settings.home)) if path.is_absolute() else "is not absolute"
    if why:
        raise SettingsError(f"{settings.config_path}: [http] projects: {listed!r} {why}")
    return path


def _token(
    options: argparse.Namespace, configured: str | None, settings: Settings
) -> Secret | None:
    if options.no_token:
        if options.token_file:
            raise SettingsError("--no-token and --token-file contradict each other")
        return None
    if given := options.token_file or configured:
        return read_token_file(expand_home(given, settings.home))
    token = settings.environ.get("FLEET_AGENTPACK_TOKEN", "")
    return Secret(token) if token else None


def main_parser() -> Parser:
    """The server's options, and a command with its own arguments."""
    parser = _server_parser(PROG)
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {line}" for name, (_, line) in COMMANDS.items())
    parser.usage = f"{PROG} [OPTIONS]\n       {PROG} COMMAND [ARGUMENTS]"
    examples = "".join(f"\n  {PROG} {words}".rstrip() for words in EXAMPLES)
    parser.epilog = f"commands (see {PROG} help COMMAND):\n{listing}\n\nexamples:{examples}"
    for flag in DEPLOY_VALUES:
        parser.add_argument(f"--{flag}", help=argparse.SUPPRESS)
    for flag in DEPLOY_SWITCHES:
        option = f"--{flag.replace('_', '-')}"
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="?", metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _server_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Serve MCP on standard input and output; this is what an MCP client starts.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{prog} {__version__}")
    add_choice(parser)
    parser.add_argument(
        "--project", metavar="DIR", default="", help="the project (default: the working directory)"
    )
    parser.add_argument(
        "--ask", choices=ASK, default="", help="when to ask a person as well (default: never)"
    )
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default="warning",
        help="what goes to standard error (default: %(default)s)",
    )
    _add_http_options(parser.add_argument_group("HTTP instead of stdio"))
    return parser


def _add_http_options(http: argparse._ArgumentGroup) -> None:
    default = HttpSettings()
    http.add_argument("--http", action="store_true", help="serve streamable HTTP at /mcp")
    http.add_argument("--host", help=f"address to listen on (default: {default.host})")
    http.add_argument("--port", type=_port, help=f"port to listen on (default: {default.port})")
    http.add_argument("--token-file", metavar="PATH", help="file with the bearer token, mode 0600")
    http.add_argument(
        "--no-token", action="store_true", default=None, help="ask for no token, on loopback alone"
    )
    http.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        help="a Host header to accept; repeatable",
    )
    http.add_argument(
        "--install-scope",
        choices=("global", "session"),
        help=f"who sees an installed tool (default: {default.install_scope})",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give one from 0 to {LAST_PORT}")
    return int(text)


def _explain_waiting() -> None:
    sys.stderr.write(
        f"{PROG} {__version__}: an MCP server for agent configuration, fleets, tools and prompts.\n"
        "It now waits for an MCP client on standard input; press Ctrl-C to end it.\n"
        f"To connect one: {PROG} connect claude (or codex, gemini, cursor, vscode …)\n"
    )
