"""`fleet-agentpack tools`: what the server offers, and what it costs a client's context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleet_agentpack.console.command import Console, declare
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.table import Table
from fleet_agentpack.kit.options import split_names
from fleet_agentpack.kit.results import to_text
from fleet_agentpack.wire.provider import DomainTool, is_reader
from fleet_agentpack.wire.server import served_tools

BYTES_PER_TOKEN = 4  # a rule of thumb for JSON in English


def add(parser: Parser, name: str) -> None:  # noqa: ARG001
    """Add the arguments of `tools`."""
    parser.add_argument(
        "--only", metavar="DOMAIN[,DOMAIN]", default="", help="list only these domains"
    )
    parser.add_argument(
        "--tokens", action="store_true", help="print the size of tools/list instead"
    )
    parser.example = "--tokens"
    declare(parser, run)


def run(console: Console) -> None:
    """Print one line for every tool, or the size of every domain."""
    only = split_names(console.arguments.only) or console.settings.only
    served = served_tools(replace(console.settings, only=only))
    console.show(_sizes(served) if console.arguments.tokens else _listing(served, console))


def _listing(served: Mapping[str, Sequence[DomainTool]], console: Console) -> Table:
    paint = console.paint
    rows = [
        [
            paint(tool.name, "cyan"),
            domain,
            paint("reads", "green") if is_reader(tool) else paint("writes", "yellow"),
            (tool.description or "").split(". ")[0].rstrip("."),
        ]
        for domain, tools in served.items()
        for tool in tools
    ]
    return Table(["tool", "domain", "", "purpose"], rows)


def _sizes(served: Mapping[str, Sequence[DomainTool]]) -> Table:
    sizes = [(domain, [size(tool) for tool in tools]) for domain, tools in served.items()]
    everything = [size for _, found in sizes for size in found]
    rows = [
        [name, str(len(found)), f"{sum(found):,}", f"{sum(found) // BYTES_PER_TOKEN:,}"]
        for name, found in [*sizes, ("all", everything)]
    ]
    return Table(["domain", "tools", "bytes", "about tokens"], rows)


def size(tool: DomainTool) -> int:
    """The bytes of a tool in `tools/list`, with the comma after it."""
    listed = tool.to_mcp_tool().model_dump(by_alias=True, exclude_none=True, mode="json")
    return len(to_text(listed).encode()) + 1
