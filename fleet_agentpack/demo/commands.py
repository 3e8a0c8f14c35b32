"""`fleet-agentpack demo`: the five domains at work, in half a minute, leaving nothing behind."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from fleet_agentpack.console.command import Console, declare
from fleet_agentpack.console.parser import Parser
from fleet_agentpack.console.table import Table
from fleet_agentpack.console.text import Paint
from fleet_agentpack.kit.program import program

if TYPE_CHECKING:
    from fleet_agentpack.demo.stage import Stage


def add(parser: Parser, name: str) -> None:  # noqa: ARG001
    """Add the arguments of `demo`."""
    declare(parser, run, lenient=True)


def run(console: Console) -> int:
    """Play the story; the status says whether all of it went well."""
    for name in ("SIGTERM", "SIGHUP"):  # as Ctrl-C: the scratch home goes, too
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: signal.raise_signal(signal.SIGINT))
    return asyncio.run(_play(console))


async def _play(console: Console) -> int:
    from fleet_agentpack.demo.stage import StoryError, staged

    paint, started = console.paint, time.monotonic()
    console.show(
        paint("fleet-agentpack demo", "bold"),
        "A scratch home, no network, no account: a real MCP client talks to the real server.",
        paint("  starting the server …", "dim"),
    )
    try:
        async with staged(console) as stage:
            await stage.greet()
            played = [row async for row in _chapters(stage, paint)]
    except StoryError as error:
        console.show(
            "",
            (paint("✗", "red", "bold"), str(error)),
            f"Next: {program()} doctor --all   (what is missing here, and what to do)",
        )
        return 1
    summary = f"all went well, {time.monotonic() - started:.1f} s in all; nothing is left behind"
    others = "codex, gemini, cursor, vscode, claude-desktop"
    console.show(
        "",
        Table(["", "domain", "what you saw", "", ""], played),
        "",
        (paint("✓", "green", "bold"), paint(summary, "bold")),
        f"Next: {program()} connect claude   (or {others})",
    )
    return 0


async def _chapters(stage: Stage, paint: Paint) -> AsyncIterator[list[str]]:
    """Play the chapters; a row of the summary for each."""
    from fleet_agentpack.demo.story import CHAPTERS

    for number, (title, chapter) in enumerate(CHAPTERS.items(), 1):
        stage.chapter(f"{number}/{len(CHAPTERS)}", title)
        begun, before = time.monotonic(), stage.calls
        await chapter(stage)
        domain, what = title.split(": ", 1)
        calls, seconds = stage.calls - before, time.monotonic() - begun
        yield [paint("✓", "green"), domain, what, f"{calls} calls", f"{seconds:.1f} s"]
