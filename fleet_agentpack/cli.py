"""The command line: serve, print, or hand over to a domain's own commands."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from fleet_agentpack.settings import HttpSettings, Settings, SettingsError, read_token_file
from fleet_agentpack.support.errors import AppError
from fleet_agentpack.support.secret import Secret
from fleet_agentpack.version import __version__

PROG = "fleet-agentpack"
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")

# Command → the module that adds its arguments and its handler, and one line of help.
COMMANDS: dict[str, tuple[str, str]] = {
    "tools": (
        "fleet_agentpack.commands.tools",
        "list every tool: domain, reads or writes, purpose",
    ),
    "fleet": ("fleet_agentpack.commands.fleet", "run coding agents: list, create, start, stop …"),
    "climpt": ("fleet_agentpack.commands.climpt", "find and render prompt commands"),
}


def run(argv: Sequence[str]) -> int:
    """`fleet-agentpack`: serve, or run one of the commands; returns the exit status."""
    parser = _server_parser(PROG, with_commands=True)
    options = parser.parse_args(argv)
    if options.command is None:
        return _guarded(parser, options, serve)
    if options.command not in COMMANDS:
        parser.error(f"unknown command {options.command!r}; {PROG} --help lists them")
    return _run_command(options)


def run_single(domain: str, prog: str, argv: Sequence[str]) -> int:
    """A server for one domain under its own program name."""
    parser = _server_parser(prog, with_commands=False)
    options = parser.parse_args(argv)
    options.only = domain
    return _guarded(parser, options, serve)


def serve(options: argparse.Namespace, settings: Settings) -> int:
    """Serve MCP on stdio or HTTP until the client, or a signal, ends it."""
    from fleet_agentpack.stdio import Wire, run_stdio

    over_http = options.http
    if not over_http and sys.stdin is not None and sys.stdin.isatty():
        _explain_waiting()
    wire = None if over_http else Wire.claim()
    # Importing makes many objects that live for ever: collecting them again and again is a tenth
    # of the start-up time.
    gc.disable()
    from fleet_agentpack.logs import configure
    from fleet_agentpack.server import build_server

    configure(options.log_level)
    for warning in settings.warnings:
        sys.stderr.write(f"{PROG}: {warning}\n")
    mcp = build_server(settings)
    gc.enable()
    gc.freeze()
    if wire:
        return run_stdio(mcp, wire)
    import asyncio

    from fleet_agentpack.http import MCP_PATH, serve_http

    sys.stderr.write(
        f"{PROG} {__version__} listens on http://{settings.http.host}:{settings.http.port}{MCP_PATH}\n"
    )
    asyncio.run(serve_http(mcp, settings.http, options.log_level))
    return 0


def _run_command(options: argparse.Namespace) -> int:
    module_name, help_line = COMMANDS[options.command]
    module = importlib.import_module(module_name)
    parser = argparse.ArgumentParser(prog=f"{PROG} {options.command}", description=help_line)
    module.add(parser, options.command)
    arguments = parser.parse_args(options.arguments)
    return _guarded(
        parser, options, lambda _, settings: int(arguments.handler(arguments, settings))
    )


def _guarded(parser: argparse.ArgumentParser, options: argparse.Namespace, action) -> int:  # type: ignore[no-untyped-def]
    """Run an action; what the user did wrong becomes a message and a status, never a trace."""
    try:
        return int(action(options, _settings(options)))
    except SettingsError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    except AppError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141


def _settings(options: argparse.Namespace) -> Settings:
    settings = Settings.read()
    only = tuple(part.strip() for part in options.only.split(",") if part.strip())
    return dataclasses.replace(
        settings,
        only=only or settings.only,
        read_only=options.read_only,
        http=_http_settings(options, settings) if options.http else settings.http,
    )


def _http_settings(options: argparse.Namespace, settings: Settings) -> HttpSettings:
    table = settings.table("http")
    return HttpSettings(
        host=options.host,
        port=options.port,
        token=_token(options, settings),
        allowed_hosts=(*table.get("allowed_hosts", ()), *options.allowed_host),
        install_scope=options.install_scope,
    )


def _token(options: argparse.Namespace, settings: Settings) -> Secret | None:
    path = options.token_file or settings.table("http").get("token_file")
    if path:
        return read_token_file(Path(path).expanduser())
    given = settings.environ.get("FLEET_AGENTPACK_TOKEN", "")
    return Secret(given) if given else None


def _server_parser(prog: str, *, with_commands: bool) -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {line}" for name, (_, line) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Serve MCP on standard input and output; this is what an MCP client starts.",
        epilog=f"commands ({prog} COMMAND --help tells more):\n{listing}"
        if with_commands
        else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{prog} {__version__}")
    parser.add_argument("--only", metavar="DOMAIN[,DOMAIN]", default="", help="serve a part only")
    parser.add_argument("--read-only", action="store_true", help="leave out every tool that writes")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="warning")
    http = parser.add_argument_group("HTTP instead of stdio")
    http.add_argument("--http", action="store_true", help="serve streamable HTTP at /mcp")
    http.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    http.add_argument("--port", type=int, default=3000, help="port to listen on (%(default)s)")
    http.add_argument("--token-file", metavar="PATH", help="file with the bearer token, mode 0600")
    http.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a Host header to accept",
    )
    http.add_argument(
        "--install-scope",
        choices=("global", "session"),
        default="global",
        help="whether installed tools belong to everybody or to one session",
    )
    if with_commands:
        parser.add_argument("command", nargs="?", metavar="COMMAND", help=argparse.SUPPRESS)
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _explain_waiting() -> None:
    sys.stderr.write(
        f"{PROG} {__version__}: an MCP server for agent configuration, fleets, tools and prompts.\n"
        "It now waits for an MCP client on standard input; press Ctrl-C to end it.\n"
        f"To connect one, for example Claude Code: claude mcp add agentpack -- {PROG}\n"
    )
