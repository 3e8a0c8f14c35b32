"""`fleet-agentpack demo`: the five domains at work, in half a minute, leaving nothing behind."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import time
from pathlib import Path

from fleet_agentpack.console.terminal import Paint, table
from fleet_agentpack.settings import Settings

PROG = "fleet-agentpack"


def add(parser: argparse.ArgumentParser, name: str) -> None:  # noqa: ARG001
    """Add the arguments of `demo`."""
    parser.set_defaults(handler=run, lenient=True)


def run(_: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """Play the story; the status says whether all of it went well."""
    for name in ("SIGTERM", "SIGHUP"):  # as Ctrl-C: the scratch home goes, too
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: signal.raise_signal(signal.SIGINT))
    return asyncio.run(_play(Paint.for_stream(sys.stdout)))


async def _play(paint: Paint) -> int:
    from fleet_agentpack.demo.stage import StoryError, staged
    from fleet_agentpack.demo.story import CHAPTERS

    started = time.monotonic()
    print(paint("fleet-agentpack demo", "bold"))
    print("A scratch home, no network, no account: a real MCP client talks to the real server.")
    print(paint("  starting the server …", "dim"), flush=True)
    played: list[list[str]] = []
    try:
        async with staged(paint) as stage:
            await stage.greet()
            for number, (title, chapter) in enumerate(CHAPTERS.items(), 1):
                stage.chapter(f"{number}/{len(CHAPTERS)}", title)
                begun, before = time.monotonic(), stage.calls
                await chapter(stage)
                domain, what = title.split(": ", 1)
                calls, seconds = stage.calls - before, time.monotonic() - begun
                tick = paint("✓", "green")
                played.append([tick, domain, what, f"{calls} calls", f"{seconds:.1f} s"])
    except StoryError as error:
        print(f"\n{paint('✗', 'red', 'bold')} {error}")
        print(f"Next: {_program()} doctor --all   (what is missing here, and what to do)")
        return 1
    print(f"\n{table(['', 'domain', 'what you saw', '', ''], played, paint)}\n")
    summary = f"all went well, {time.monotonic() - started:.1f} s in all; nothing is left behind"
    print(f"{paint('✓', 'green', 'bold')} {paint(summary, 'bold')}")
    others = "codex, gemini, cursor, vscode, claude-desktop"
    print(f"Next: {_program()} connect claude   (or {others})")
    return 0


def _program() -> str:
    """This program as the user can call it again."""
    called = sys.argv[0]
    if shutil.which(PROG):
        return PROG
    return called if Path(called).name == PROG else f"{sys.executable} -m fleet_agentpack"
