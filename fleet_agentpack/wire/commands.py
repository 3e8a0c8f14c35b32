"""`fleet-agentpack tools`: what the server offers, and what it costs a client's context."""

from __future__ import annotations

import argparse

from fleet_agentpack import domains
from fleet_agentpack.console.command import Console, declare
from fleet_agentpack.console.table import Table
from fleet_agentpack.kit.results import to_text
from fleet_agentpack.settings import split_names
from fleet_agentpack.wire.provider import DomainTool, DomainTools, is_reader

BYTES_PER_TOKEN = 4  # a rule of thumb for JSON in English


def add(parser: argparse.ArgumentParser, name: str) -> None:  # noqa: ARG001
    """Add the arguments of `tools`."""
    parser.add_argument("--only", metavar="DOMAIN[,DOMAIN]", default="", help="a part of them")
    parser.add_argument(
        "--tokens", action="store_true", help="print the size of tools/list instead"
    )
    declare(parser, run)


def run(console: Console) -> None:
    """Print one line for every tool, or the size of every domain."""
    chosen = domains.select(split_names(console.arguments.only) or console.settings.only)
    console.show(_sizes(chosen) if console.arguments.tokens else _listing(chosen, console))


def _listing(domains: list[DomainTools], console: Console) -> Table:
    paint = console.paint
    rows = [
        [
            paint(tool.name, "cyan"),
            domain.name,
            paint("reads", "green") if is_reader(tool) else paint("writes", "yellow"),
            (tool.description or "").split(". ")[0].rstrip("."),
        ]
        for domain in domains
        for tool in domain.tools_for(read_only=console.settings.read_only)
    ]
    return Table(["tool", "domain", "", "purpose"], rows)


def _sizes(domains: list[DomainTools]) -> Table:
    sizes = [(domain.name, [size(tool) for tool in domain.tools.values()]) for domain in domains]
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
