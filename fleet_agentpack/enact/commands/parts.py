"""What the commands share: a service, the shape of a command, and the answer to a change."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

from fleet_agentpack.console.ask import ask, is_attended
from fleet_agentpack.console.command import Console, Handler, Line
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.progress import Report
from fleet_agentpack.enact import results
from fleet_agentpack.enact.errors import EnactError

if TYPE_CHECKING:
    from fleet_agentpack.enact.service import EnactService

R = TypeVar("R")
Work = Callable[["EnactService", argparse.Namespace], R]
Show = Callable[[R, Console], Iterable[Line]]

EXAMPLE = "agentpack/csv/stats"
SETTLE_S = 2.0  # for a daily check that was begun meanwhile


@contextmanager
def open_service(console: Console) -> Iterator[EnactService]:
    """A service for one command."""
    from fleet_agentpack.enact.service import EnactService
    from fleet_agentpack.enact.settings import EnactSettings

    with closing(EnactService(EnactSettings.of(console.settings))) as service:
        yield service
        service.settle(SETTLE_S)  # everything is printed


def runs(work: Work[R], show: Show[R]) -> Handler:
    """A command that does the work with a service of its own and shows the result."""

    def run(console: Console) -> None:
        with open_service(console) as service:
            result = work(service, console.arguments)
            console.answer(result, show(result, console))

    return run


def agrees(console: Console, report: Report) -> Callable[[EnactError], bool] | None:
    """How to ask whether another signer is accepted; None where nobody is there to answer."""

    def agree(change: EnactError) -> bool:
        report.hide()
        return ask(f"{change.message}. Install it all the same?", sys.stderr)

    return None if console.as_json or not is_attended() else agree


def message(
    changed: results.ChangeResult | results.ToolsetInUse | results.ToolsetChange, console: Console
) -> Iterable[Line]:
    """What a change says of itself."""
    yield console.paint("✓", "green"), changed.message


def add_project(parser: Parser, text: str) -> None:
    """Add `--project`."""
    parser.add_argument("--project", action="store_true", help=text)
