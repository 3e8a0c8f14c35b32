"""`fleet-agentpack demo`: the five domains at work, in half a minute, leaving nothing behind."""

from __future__ import annotations

import argparse
import asyncio
import sys

from fleet_agentpack.settings import Settings
from fleet_agentpack.support.terminal import Paint


def add(parser: argparse.ArgumentParser, name: str) -> None:  # noqa: ARG001
    """Add the arguments of `demo`."""
    parser.set_defaults(handler=run)


def run(_: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """Play the story; the status says whether all of it went well."""
    return asyncio.run(_play(Paint.for_stream(sys.stdout)))


async def _play(paint: Paint) -> int:
    from fleet_agentpack.demo.stage import StoryError, staged
    from fleet_agentpack.demo.story import CHAPTERS

    print(paint("fleet-agentpack demo", "bold"))
    print("A scratch home, no network, no account: a real MCP client talks to the real server.")
    try:
        async with staged(paint) as stage:
            for number, (title, chapter) in enumerate(CHAPTERS.items(), 1):
                stage.chapter(number, title)
                await chapter(stage)
            calls, seconds = stage.calls, stage.elapsed_s
    except StoryError as error:
        print(f"\n{paint('✗', 'red', 'bold')} {error}")
        return 1
    summary = f"five domains, {calls} calls, {seconds:.1f} s; nothing is left behind"
    print(f"\n{paint('✓', 'green', 'bold')} {paint(summary, 'bold')}")
    print(
        "Next: fleet-agentpack connect claude   (or codex, gemini, cursor, vscode, claude-desktop)"
    )
    return 0
