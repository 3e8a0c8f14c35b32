"""`fleet-agentpack doctor`: the deploy engine's own, and with `--all` every domain's checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleet_agentpack.console.command import Console, Line, declare
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.table import Table
from fleet_agentpack.console.text import Paint, Text
from fleet_agentpack.deploy import commands as deploy
from fleet_agentpack.kit.checks import Check
from fleet_agentpack.kit.program import located

MARKS = {"ok": ("✓", "green"), "note": ("•", "yellow"), "problem": ("✗", "red")}


@dataclass(frozen=True)
class Report:
    """Every check; `ok` if none found a problem."""

    ok: bool
    checks: Sequence[Check]


def add(parser: Parser, name: str) -> None:
    """Add the arguments of `doctor`."""
    deploy.add(parser, name)
    parser.add_argument("--all", action="store_true", help="check every domain, not only agentpack")
    check_deploy = parser.get_default("handler")

    def run(console: Console) -> int:
        if console.arguments.all:
            return check_all(console)
        return int(check_deploy(console.arguments, console.settings))

    declare(parser, run, lenient=True)


def check_all(console: Console) -> int:
    """Print what was found and what to do; the status says whether anything is broken."""
    from fleet_agentpack.doctor.checks import check_everything

    checks = check_everything(console.settings)
    report = Report(all(check.state != "problem" for check in checks), checks)
    console.answer(report, _show(report, console.paint))
    return 0 if report.ok else 1


def _show(report: Report, paint: Paint) -> Iterator[Line]:
    rows = [
        [paint(*MARKS[check.state]), check.area, check.subject, _finding(check, paint)]
        for check in report.checks
    ]
    yield Table(["", "area", "what", "found"], rows)
    yield ""
    yield _summary(report.checks)


def _finding(check: Check, paint: Paint) -> Text:
    return (
        (check.detail, paint(f" → {located(check.advice)}", "cyan"))
        if check.advice
        else check.detail
    )


def _summary(checks: Sequence[Check]) -> str:
    count = Counter(check.state for check in checks)
    optional = f"• is optional ({count['note']})"
    if count["problem"]:
        return f"✗ needs attention ({count['problem']}); {optional}; → says what to do."
    return f"Nothing is broken; {optional}; → says what to do."
