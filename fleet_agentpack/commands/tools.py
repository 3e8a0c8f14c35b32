"""`fleet-agentpack tools`: what the server offers, for people."""

from __future__ import annotations

import argparse
import sys

from fleet_agentpack import inventory
from fleet_agentpack.settings import Settings
from fleet_agentpack.support.terminal import Paint, table


def add(parser: argparse.ArgumentParser, name: str) -> None:  # noqa: ARG001
    """Add the arguments of `tools`."""
    parser.set_defaults(handler=show_tools)


def show_tools(_: argparse.Namespace, settings: Settings) -> int:
    """Print one line for every tool."""
    paint = Paint.for_stream(sys.stdout)
    rows = [
        [
            paint(spec.name, "cyan"),
            domain.name,
            paint("reads", "green") if spec.hints.read_only else paint("writes", "yellow"),
            spec.description.split(". ")[0].rstrip("."),
        ]
        for domain in inventory.select(settings.only)
        for spec in domain.tools
        if spec.hints.read_only or not settings.read_only
    ]
    print(table(["tool", "domain", "", "purpose"], rows, paint))
    return 0
