"""`fleet-agentpack doctor`: the deploy engine's own, and with `--all` a look at every domain."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fleet_agentpack.console.terminal import Paint, printable, table
from fleet_agentpack.deploy import commands as deploy
from fleet_agentpack.kit.results import jsonable, to_text
from fleet_agentpack.settings import Settings

if TYPE_CHECKING:
    from fleet_agentpack.kit.checks import Check

MARKS = {"ok": ("✓", "green"), "note": ("•", "yellow"), "problem": ("✗", "red")}


def add(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the arguments of `doctor`."""
    deploy.add(parser, name)
    parser.add_argument(
        "--all", action="store_true", help="look at every domain, not only at deploy"
    )
    parser.set_defaults(handler=_either(parser.get_default("handler")), lenient=True)


def _either(handler: Callable[[argparse.Namespace, Settings], int]) -> Callable[..., int]:
    def run(arguments: argparse.Namespace, settings: Settings) -> int:
        if arguments.all:
            return look(settings, as_json=arguments.json)
        return handler(arguments, settings)

    return run


def look(settings: Settings, *, as_json: bool) -> int:
    """Print what was found and what to do; the status says whether anything is broken."""
    from fleet_agentpack.doctor.looks import look_at_everything

    checks = look_at_everything(settings)
    broken = any(check.state == "problem" for check in checks)
    if as_json:
        print(to_text({"ok": not broken, "checks": jsonable(checks)}))
        return int(broken)
    paint = Paint.for_stream(sys.stdout)
    rows = [
        [
            paint(*MARKS[check.state]),
            check.area,
            check.subject,
            printable(check.detail)
            + (paint(f"  → {check.advice}", "cyan") if check.advice else ""),
        ]
        for check in checks
    ]
    print(table(["", "area", "what", "found"], rows, paint))
    print(f"\n{_summary(checks)}")
    return int(broken)


def _summary(checks: Sequence[Check]) -> str:
    count = Counter(check.state for check in checks)
    optional = f"• is optional ({count['note']})"
    if count["problem"]:
        return f"✗ needs attention ({count['problem']}); {optional}; → says what to do."
    return f"Nothing is broken; {optional}; → says what to do."
