"""`fleet-agentpack forge …`: the eighteen queries, and the commands that write, for people."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from fleet_agentpack.console.command import Commands, Console, Handler
from fleet_agentpack.console.text import printable
from fleet_agentpack.forge.commands import report
from fleet_agentpack.forge.commands import writing as forge_write
from fleet_agentpack.forge.names import KINDS, Kind
from fleet_agentpack.forge.service import ForgeService, open_service

Query = Callable[[argparse.Namespace, ForgeService], object]


def add(parser: argparse.ArgumentParser, name: str) -> None:  # noqa: ARG001
    """Add the arguments of `forge`."""
    commands = Commands(parser)
    for kind in KINDS:
        _add_definitions(commands, kind)
    _add_plugins(commands)
    _add_configuration(commands)
    _add_cache(commands)
    _add_forks(commands)
    forge_write.add(commands)


def _show(query: Query) -> Handler:
    def run(console: Console) -> None:
        result = query(console.arguments, open_service(console.settings))
        console.answer(result, report.as_yaml(result))

    return run


def _rows(query: Query, key: str, *columns: str) -> Handler:
    def run(console: Console) -> None:
        result = query(console.arguments, open_service(console.settings))
        console.answer(result, report.table(result, key, columns, console.paint))

    return run


def _add_definitions(commands: Commands, kind: Kind) -> None:
    listing = commands.add(
        f"{kind}-list",
        f"list available {kind}s",
        _rows(
            lambda o, forge: forge.listing(
                kind, tags=o.tag, source=o.source, limit=o.limit, offset=o.offset
            ),
            f"{kind}s",
            "name",
            "version",
            "source",
            "description",
        ),
    )
    listing.add_argument("--tag", action="append", default=[], help="any of these tags")
    _source(listing)
    listing.add_argument("--limit", type=_count(1, 1000), default=100)
    listing.add_argument("--offset", type=_count(0), default=0)
    info = commands.add(
        f"{kind}-info",
        f"show one {kind}",
        _show(lambda o, forge: forge.info(kind, o.name, o.version, o.source)),
    )
    info.add_argument("name")
    info.add_argument("--version", help="version or range")
    _source(info)
    validate = commands.add(f"{kind}-validate", f"validate {kind} definitions", _validate(kind))
    validate.add_argument("path", nargs="?", help="a definition file or its directory")
    validate.add_argument("--name", help=f"an {kind} by name" if kind == "agent" else "by name")
    validate.add_argument("--strict", action="store_true")


def _validate(kind: Kind) -> Handler:
    def run(console: Console) -> int:
        given = console.arguments
        result = open_service(console.settings).validate(
            kind, path=given.path, name=given.name, strict=given.strict, anywhere=True
        )
        console.answer(result, report.validation(result, console.paint))
        return 0 if result.valid else 1

    return run


def _add_plugins(commands: Commands) -> None:
    listing = commands.add(
        "list",
        "list installed plugins",
        _rows(
            lambda o, forge: forge.plugin_list(o.scope, outdated=o.outdated),
            "plugins",
            "name",
            "version",
            "scope",
            "latestVersion",
            "path",
        ),
    )
    listing.add_argument("--scope", choices=("global", "local", "all"), default="all")
    listing.add_argument("--outdated", action="store_true", help="only those with an update")
    info = commands.add(
        "info",
        "show one plugin",
        _show(lambda o, forge: forge.plugin_info(o.plugin, o.version, remote=o.remote)),
    )
    info.add_argument("plugin")
    info.add_argument("--version", help="version or range")
    info.add_argument("--remote", action="store_true", help="ask the registries")
    search = commands.add(
        "search",
        "search the registries for plugins",
        _rows(
            lambda o, forge: forge.plugin_search(o.query, o.tag, o.limit, o.offset),
            "results",
            "name",
            "version",
            "registry",
            "description",
        ),
    )
    search.add_argument("query")
    search.add_argument("--tag", action="append", default=[], help="any of these tags")
    search.add_argument("--limit", type=_count(1), default=20)
    search.add_argument("--offset", type=_count(0), default=0)


def _add_configuration(commands: Commands) -> None:
    get = commands.add("config get", "print one value", _config_get)
    get.add_argument("key", help="dotted path, such as registries.0.url")
    show = commands.add(
        "config show",
        "print the whole configuration",
        _show(lambda o, forge: forge.config_show(include_defaults=not o.no_defaults)),
    )
    show.add_argument(
        "--no-defaults", action="store_true", help="only what files and variables say"
    )
    commands.add(
        "registry list",
        "list the configured registries",
        _rows(
            lambda _, forge: forge.registry_list(),
            "registries",
            "name",
            "priority",
            "authenticated",
            "url",
        ),
    )


def _config_get(console: Console) -> int:
    key = console.arguments.key
    result = open_service(console.settings).config_get(key)
    if console.as_json or result.exists:
        value = result.value
        console.answer(result, [value if isinstance(value, str) else json.dumps(value, indent=2)])
    else:
        sys.stderr.write(f"{printable(key)} is not set\n")
    return 0 if result.exists else 1


def _add_cache(commands: Commands) -> None:
    commands.add(
        "cache stats",
        "show what the cache holds",
        _show(lambda _, forge: forge.cache_stats()),
    )
    clear = commands.add(
        "cache clear",
        "empty the cache",
        _show(lambda o, forge: forge.cache_clear(o.type, o.older_than)),
    )
    clear.add_argument("--type", choices=("manifests", "downloads", "all"), default="all")
    clear.add_argument("--older-than", type=_count(0), metavar="DAYS", help="only older entries")


def _add_forks(commands: Commands) -> None:
    listing = commands.add(
        "fork list",
        "list forked agents and tools",
        _rows(
            lambda o, forge: forge.fork_list(o.type),
            "forks",
            "name",
            "type",
            "localVersion",
            "upstream",
            "hasUpstreamUpdate",
        ),
    )
    listing.add_argument("--type", choices=("agent", "tool", "all"), default="all")
    info = commands.add("fork info", "show one fork", _show(lambda o, f: f.fork_info(o.name)))
    info.add_argument("name")
    diff = commands.add("fork diff", "show how a fork differs from its upstream", _fork_diff)
    diff.add_argument("name")
    check = commands.add(
        "fork check",
        "check one fork, or all, for upstream updates",
        _rows(
            lambda o, forge: forge.fork_check(o.name),
            "updates",
            "name",
            "type",
            "localVersion",
            "upstreamVersion",
            "breakingChanges",
        ),
    )
    check.add_argument("name", nargs="?")


def _fork_diff(console: Console) -> None:
    forge, form = open_service(console.settings), "json" if console.as_json else "unified"
    result = forge.fork_diff(console.arguments.name, form)
    console.answer(result, report.diff(result, console.paint))


def _source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", choices=("local", "global", "stockyard", "all"), default="all")


def _count(low: int, high: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < low or (high is not None and value > high):
            bound = f"from {low} to {high}" if high is not None else f"{low} or more"
            raise argparse.ArgumentTypeError(f"must be {bound}")
        return value

    parse.__name__ = "number"
    return parse
