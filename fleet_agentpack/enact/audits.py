"""Looks at installed tools again, now or once a day in the background: vetoes and withdrawals."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.results import AuditedTool, AuditResult, if_any
from fleet_agentpack.enact.trust.findings import Attempt
from fleet_agentpack.enact.trust.policy import PASSING

if TYPE_CHECKING:
    from fleet_agentpack.enact.config import Config
    from fleet_agentpack.enact.projection import Installed
    from fleet_agentpack.enact.receipt import Receipt
    from fleet_agentpack.enact.registries.sources import Sources
    from fleet_agentpack.enact.runner import Report

DAY_S = 24 * 3600.0
AGAIN_S = 3600.0  # after a registry that did not answer
MOST_NAMED = 5
LONGEST_TOLD = 500
logger = logging.getLogger(__name__)


def _quiet(_done: float, _total: float | None, _text: str) -> None:
    """Report nothing."""


class _StoppedError(Exception):
    """The server ends while a check is under way."""


class Audits:
    """The checks of what one user has installed; at most one is under way."""

    def __init__(
        self,
        sources: Sources,
        config: Callable[[], Config],
        check: Callable[[Installed], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sources = sources
        self._config = config
        self._check = check  # raises `EnactError` for a tool that must not run
        self._clock = clock
        self._not_before = 0.0
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def now(self, tools: Iterable[Installed], report: Report) -> AuditResult:
        """Ask about each of these tools, and say which of them may run."""
        looked_at = [each for each in tools if self._receipt(each)]
        self._sources.findings.claim(Attempt(self._clock()), math.inf)
        problems = self._ask_about(looked_at, report)
        rows = tuple(self._row(each, problems.get(_label(each))) for each in looked_at)
        return AuditResult(rows, if_any(self._config().warnings))

    def known(self, tools: Iterable[Installed]) -> tuple[AuditedTool, ...]:
        """What is known of these tools; nobody is asked."""
        return tuple(self._row(each, None) for each in tools if self._receipt(each))

    def in_background(self, tools: Callable[[], Iterable[Installed]]) -> None:
        """Begin a check if the last one is more than a day old; never waits for anything."""
        now = self._clock()
        if now < self._not_before or (self._thread and self._thread.is_alive()):
            return
        try:
            is_remote = self._config().registry.url is not None
            last = self._sources.findings.last_attempt()
        except EnactError:
            return
        self._not_before = now + AGAIN_S
        # A time to come is a clock that was wrong, and no reason to check never again.
        if is_remote and not 0 <= now - last.tried_at < _pause(last):
            self._thread = threading.Thread(
                target=self._work, args=(tools,), name="enact-audit", daemon=True
            )
            self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait for the check under way, if there is one."""
        if self._thread:
            self._thread.join(timeout_s)

    def stop(self) -> None:
        """Give up the check under way."""
        self._stopping.set()
        self.wait(2.0)

    def checked_at(self, receipt: Receipt) -> float:
        """When these bytes were last checked; the install was a check, too."""
        found = self._sources.findings.of(f"{receipt.name}@{receipt.version}", receipt.digest)
        installed = 0.0
        with contextlib.suppress(ValueError):
            installed = datetime.fromisoformat(receipt.installed_at).timestamp()
        return max(found.checked_at if found else 0.0, installed)

    def notes(self, tools: Iterable[Installed]) -> Iterator[str]:
        """Which tools will not run, and how old that knowledge is where it is old."""
        looked_at = [*tools]
        for each in looked_at:
            receipt = self._receipt(each)
            if receipt is None:
                continue
            try:
                self._sources.recheck(receipt, each.manifest.image, self._config())
            except EnactError as error:
                if error.code == "CONFIG_INVALID":
                    return
                yield f"{each.name} will not run: {error.message}"
        if told := self.stale(looked_at):
            yield told

    def stale(self, tools: Iterable[Installed]) -> str:
        """Which tools were last checked when, of those for which that is more than a day ago."""
        try:
            return self._stale(tools)
        except EnactError as error:
            return error.message

    def _stale(self, tools: Iterable[Installed]) -> str:
        found = [(each.name, self._receipt(each)) for each in tools]
        ages = [(name, self._clock() - self.checked_at(r)) for name, r in found if r]
        old = [f"{name} {said_age(age)} ago" for name, age in ages if age > DAY_S]
        if not old:
            return ""
        more = f" and {len(old) - MOST_NAMED} more" if len(old) > MOST_NAMED else ""
        problem = self._sources.findings.last_attempt().problem
        why = f" ({problem})" if problem else ""
        return f"last checked for vetoes and withdrawals: {', '.join(old[:MOST_NAMED])}{more}{why}"

    def _work(self, tools: Callable[[], Iterable[Installed]]) -> None:
        try:
            findings = self._sources.findings
            # A tool that was just called may be among the installed ones, too.
            due = {(each.name, each.version): each for each in tools() if self._is_due(each)}
            last = findings.last_attempt()
            if due and findings.claim(Attempt(self._clock()), last.tried_at):
                self._ask_about(due.values(), _quiet)
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread's errors
            if not self._stopping.is_set():
                logger.warning("installed tools were not checked: %s", type(error).__name__)

    def _ask_about(self, tools: Iterable[Installed], report: Report) -> dict[str, EnactError]:
        """Ask the registry about each tool; of which it did not tell, and why."""
        looked_at = [*tools]
        problems: dict[str, EnactError] = {}
        away: EnactError | None = None
        for number, each in enumerate(looked_at):
            report(number, len(looked_at), f"checking {each.name}")
            problem = away or self._ask(each)
            if problem:
                problems[_label(each)] = problem
                away = problem if problem.code in PASSING else None
        told = "; ".join(dict.fromkeys(each.message for each in problems.values()))
        self._sources.findings.end(told[:LONGEST_TOLD], reached=away is None)
        return problems

    def _ask(self, tool: Installed) -> EnactError | None:
        receipt = self._receipt(tool)
        try:
            if receipt:
                self._sources.audit(receipt, self._config(), self._tick)
        except EnactError as error:
            return error
        return None

    def _is_due(self, tool: Installed) -> bool:
        receipt = self._receipt(tool)
        return receipt is not None and self._clock() - self.checked_at(receipt) >= DAY_S

    def _tick(self) -> None:
        if self._stopping.is_set():
            raise _StoppedError

    def _row(self, tool: Installed, problem: EnactError | None) -> AuditedTool:
        receipt = self._receipt(tool)
        checked = self.checked_at(receipt) if receipt else 0.0
        when = datetime.fromtimestamp(checked, UTC).isoformat("T", "seconds")
        signers = receipt.parties if receipt else ()
        try:
            self._check(tool)
        except EnactError as error:
            words = error.message
            return AuditedTool(tool.name, tool.version, "refused", when, signers, error.code, words)
        row = AuditedTool(tool.name, tool.version, "ok", when, signers)
        if problem is None:
            return row
        return replace(row, state="unchecked", code=problem.code, message=problem.message)

    @staticmethod
    def _receipt(tool: Installed) -> Receipt | None:
        """The receipt of a tool that came from a registry; None for what is ours, or broken."""
        try:
            receipt = tool.store.receipt(tool.name, tool.version)
        except EnactError:
            return None
        return receipt if receipt and not receipt.is_builtin else None


def _label(tool: Installed) -> str:
    return f"{tool.name}@{tool.version}"


def _pause(last: Attempt) -> float:
    return DAY_S if last.reached else AGAIN_S


def said_age(seconds: float) -> str:
    """A span of time in words."""
    units: Sequence[tuple[str, float]] = (("day", DAY_S), ("hour", 3600.0), ("minute", 60.0))
    for word, length in units:
        if seconds >= length:
            count = int(seconds / length)
            return f"{count} {word}{'s' * (count != 1)}"
    return "less than a minute"
