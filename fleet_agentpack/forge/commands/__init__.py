"""`fleet-agentpack forge …`: the eighteen queries, and the commands that write, for people."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator

from fleet_agentpack.console.command import Commands, Console, Handler, Line, print_json
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.table import Table
from fleet_agentpack.console.text import Paint
from fleet_agentpack.forge.commands import changes
from fleet_agentpack.forge.names import KINDS, Kind
from fleet_agentpack.forge.results import ForkDiff, Validation
from fleet_agentpack.forge.service import ForgeService, open_service
from fleet_agentpack.forge.validation import TreeVerdict
from fleet_agentpack.kit.results import UNKNOWN, Json, jsonable
from fleet_agentpack.version import __version__

Query = Callable[[argparse.Namespace, ForgeService], object]

EXAMPLES: dict[Kind, str] = {"agent": "reviewer", "tool": "line-count"}
PLUGIN, FORK = "@acme/review", "my-reviewer"

_WORD = re.compile(r"([A-Z])")
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def add(parser: Parser, name: str) -> None:  # noqa: ARG001
    """Add the subcommands of `forge`."""
    commands = Commands(parser)
    for kind in KINDS:
        _add_definitions(commands, kind)
    _add_plugins(commands)
    _add_configuration(commands)
    _add_cache(commands)
    _add_forks(commands)
    _add_validation(commands)
    changes.add(commands)


def _add_definitions(commands: Commands, kind: Kind) -> None:
    def listed(given: argparse.Namespace, forge: ForgeService) -> object:
        return forge.listing(
            kind, tags=given.tag, source=given.source, limit=given.limit, offset=given.offset
        )

    table = _query(listed, f"{kind}s", "name", "version", "source", "description")
    listing = commands.add(f"{kind}-list", f"list available {kind}s", table, "--source local")
    listing.add_argument("--tag", action="append", default=[], help="any of these tags")
    _source(listing)
    listing.add_argument("--limit", type=_count(1, 1000), default=100)
    listing.add_argument("--offset", type=_count(0), default=0)
    shown = _query(lambda given, forge: forge.info(kind, given.name, given.version, given.source))
    info = commands.add(f"{kind}-info", f"show one {kind}", shown, EXAMPLES[kind])
    info.add_argument("name")
    info.add_argument("--version", help="version or range")
    _source(info)
    line = f"validate {kind} definitions"
    one = commands.add(f"{kind}-validate", line, _validate(kind), f"--name {EXAMPLES[kind]}")
    one.add_argument("path", nargs="?", help="a definition file or its directory")
    one.add_argument("--name", help=f"an {kind} by name" if kind == "agent" else "by name")
    one.add_argument("--strict", action="store_true")


def _add_plugins(commands: Commands) -> None:
    def installed(given: argparse.Namespace, forge: ForgeService) -> object:
        return forge.plugin_list(given.scope, outdated=given.outdated)

    def newer(given: argparse.Namespace, forge: ForgeService) -> object:
        return forge.plugin_list(given.scope, outdated=True)

    def one(given: argparse.Namespace, forge: ForgeService) -> object:
        return forge.plugin_info(given.plugin, given.version, remote=given.remote)

    def offered(given: argparse.Namespace, forge: ForgeService) -> object:
        return forge.plugin_search(given.query, given.tag, given.limit, given.offset)

    columns = ("name", "version", "scope", "latestVersion", "path")
    rows = _query(installed, "plugins", *columns)
    listing = commands.add("list", "list installed plugins", rows, "--outdated")
    listing.add_argument("--outdated", action="store_true", help="only those with an update")
    rows = _query(newer, "plugins", *columns)
    outdated = commands.add("outdated", "list installed plugins with an update", rows, "")
    for each in (listing, outdated):
        each.add_argument("--scope", choices=("global", "local", "all"), default="all")
    info = commands.add("info", "show one plugin", _query(one), PLUGIN)
    info.add_argument("plugin")
    info.add_argument("--version", help="version or range")
    info.add_argument("--remote", action="store_true", help="ask the registries")
    rows = _query(offered, "results", "name", "version", "registry", "description")
    search = commands.add("search", "search the registries for plugins", rows, "review")
    search.add_argument("query")
    search.add_argument("--tag", action="append", default=[], help="any of these tags")
    search.add_argument("--limit", type=_count(1), default=20)
    search.add_argument("--offset", type=_count(0), default=0)


def _add_configuration(commands: Commands) -> None:
    get = commands.add("config get", "print one value", _config_get, "registries.0.url")
    get.add_argument("key", help="dotted path, such as registries.0.url")
    shown = _query(lambda given, forge: forge.config_show(include_defaults=not given.no_defaults))
    show = commands.add("config show", "print the whole configuration", shown, "--no-defaults")
    show.add_argument(
        "--no-defaults", action="store_true", help="only values from files and variables"
    )
    columns = ("name", "priority", "authenticated", "url")
    rows = _query(lambda _, forge: forge.registry_list(), "registries", *columns)
    commands.add("registry list", "list the configured registries", rows, "")


def _add_cache(commands: Commands) -> None:
    stats = _query(lambda _, forge: forge.cache_stats())
    commands.add("cache stats", "show what the cache holds", stats, "")
    cleared = _query(lambda given, forge: forge.cache_clear(given.type, given.older_than))
    clear = commands.add("cache clear", "empty the cache", cleared, "--older-than 30")
    clear.add_argument("--type", choices=("manifests", "downloads", "all"), default="all")
    clear.add_argument("--older-than", type=_count(0), metavar="DAYS", help="only older entries")


def _add_forks(commands: Commands) -> None:
    columns = ("name", "type", "localVersion", "upstream", "hasUpstreamUpdate")
    rows = _query(lambda given, forge: forge.fork_list(given.type), "forks", *columns)
    listing = commands.add("fork list", "list forked agents and tools", rows, "--type agent")
    listing.add_argument("--type", choices=("agent", "tool", "all"), default="all")
    info = _query(lambda given, forge: forge.fork_info(given.name))
    commands.add("fork info", "show one fork", info, FORK).add_argument("name")
    diff = commands.add("fork diff", "show how a fork differs from its upstream", _fork_diff, FORK)
    diff.add_argument("name")
    columns = ("name", "type", "localVersion", "upstreamVersion", "breakingChanges")
    rows = _query(lambda given, forge: forge.fork_check(given.name), "updates", *columns)
    check = commands.add("fork check", "check one fork, or all, for upstream updates", rows, FORK)
    check.add_argument("name", nargs="?")


def _query(query: Query, key: str = "", *columns: str) -> Handler:
    """A command that prints an answer: the rows under a key as a table, else all of it as YAML."""

    def run(console: Console) -> None:
        result = query(console.arguments, open_service(console.settings))
        lines = _table_lines(result, key, columns, console.paint) if key else _yaml_lines(result)
        console.answer(result, lines)

    return run


def _validate(kind: Kind) -> Handler:
    def run(console: Console) -> int:
        given, forge = console.arguments, open_service(console.settings)
        result = forge.validate(
            kind, path=given.path, name=given.name, strict=given.strict, anywhere=True
        )
        console.answer(result, _findings(result, console.paint))
        return 0 if result.valid else 1

    return run


def _config_get(console: Console) -> int:
    result = open_service(console.settings).config_get(console.arguments.key)
    if result.exists or console.as_json:
        value = result.value
        console.answer(result, [value if isinstance(value, str) else json.dumps(value, indent=2)])
    else:
        print(f"{result.key} is not set", file=sys.stderr)
    return 0 if result.exists else 1


def _fork_diff(console: Console) -> None:
    layout = "json" if console.as_json else "unified"
    result = open_service(console.settings).fork_diff(console.arguments.name, layout)
    console.answer(result, _diff_lines(result, console.paint), long=True)


def _yaml_lines(result: object) -> Iterator[Line]:
    from fleet_agentpack.kit import yaml12

    plain = jsonable(result)
    plain.pop("warnings", None)
    yield from yaml12.dump(plain).splitlines()


def _table_lines(
    result: object, key: str, columns: tuple[str, ...], paint: Paint
) -> Iterator[Line]:
    rows = getattr(result, key)
    if rows:
        headers = [_WORD.sub(r" \1", name) for name in columns]  # `latestVersion` is two words
        yield Table(headers, [[_cell(getattr(row, name)) for name in columns] for row in rows])
    total = getattr(result, "total", len(rows))
    shown = "" if total == len(rows) else f", {len(rows)} shown"
    yield paint(f"{key}: {total}{shown}", "dim")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is UNKNOWN else str(value)


def _findings(result: Validation, paint: Paint) -> Iterator[Line]:
    groups = (("error", "red", result.errors), ("warning", "yellow", result.warnings))
    for kind, colour, issues in groups:
        for each in issues:
            yield paint(kind, colour), f" {_told(each.field, each.message)}"
    verdict = paint("valid", "green") if result.valid else paint("invalid", "red")
    yield f"{result.path}:", verdict


def _told(field: str, message: str) -> str:
    return f"{field}: {message}" if field else message


def _diff_lines(result: ForkDiff, paint: Paint) -> Iterator[Line]:
    for line in "" if result.unified is UNKNOWN else result.unified.splitlines():
        colour = _DIFF_COLOURS.get(line[:1])
        yield paint(line, colour) if colour else line
    counts = result.summary
    line = f"{counts.added} added, {counts.removed} removed, {counts.modified} modified"
    yield paint(line, "dim")


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


SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_COLOURS = {"error": "red", "warning": "yellow"}


def _add_validation(commands: Commands) -> None:
    """Add the command."""
    line = "validate agents, tools, plugins and hooks in directories or files"
    parser = commands.add("validate", line, _validate_tree, ". --format sarif")
    parser.add_argument("path", nargs="*", help="what to validate (default: this directory)")
    parser.add_argument("--fix", action="store_true", help="correct what needs no decision")
    parser.add_argument("--strict", action="store_true", help="more of the warnings are errors")
    layouts = ("text", "json", "sarif")
    parser.add_argument("--format", choices=layouts, default="text", help="of the output")


def _validate_tree(console: Console) -> int:
    given = console.arguments
    forge = open_service(console.settings)
    verdict = forge.validate_tree(given.path, strict=given.strict, fix=given.fix)
    if given.format == "sarif":
        print_json(sarif(verdict))
    elif given.format == "json":
        print_json(verdict)
    else:
        console.answer(verdict, _tree_lines(verdict, console.paint))
    return 0 if verdict.valid else 1


def sarif(verdict: TreeVerdict) -> Json:
    """The findings as a SARIF 2.1.0 log, which code-scanning services read."""
    driver: Json = {"name": "fleet-agentpack forge", "version": __version__}
    found: list[Json] = []
    for each in verdict.findings:
        start = 1 if each.line is UNKNOWN else each.line
        place: Json = {"artifactLocation": {"uri": each.path}, "region": {"startLine": start}}
        text = _told(each.field, each.message)
        where: Json = [{"physicalLocation": place}]
        found.append({"level": each.severity, "message": {"text": text}, "locations": where})
    run: Json = {"tool": {"driver": driver}, "results": found}
    return {"$schema": SARIF, "version": "2.1.0", "runs": [run]}


def _tree_lines(verdict: TreeVerdict, paint: Paint) -> Iterator[Line]:
    for path in verdict.fixed:
        yield paint("fixed", "green"), path
    for each in verdict.findings:
        place = each.path if each.line is UNKNOWN else f"{each.path}:{each.line}"
        severity = paint(each.severity, _COLOURS[each.severity])
        yield f"{place}:", severity, _told(each.field, each.message)
        if each.fix is not UNKNOWN:
            yield paint(f"    --fix writes: {each.fix}", "dim")
    errors = sum(each.severity == "error" for each in verdict.findings)
    counts = f"{errors} errors, {len(verdict.findings) - errors} warnings"
    yield paint(f"files: {verdict.files}, {counts}", "dim")
