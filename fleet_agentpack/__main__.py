"""Entry points: the whole product, and the contracts' names for one domain alone."""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 130


def main() -> None:
    """`fleet-agentpack`"""
    _end_quietly_when_interrupted()
    from fleet_agentpack.cli import run

    sys.exit(run(sys.argv[1:]))


def enact() -> None:
    """`enact-mcp`: the tool registry alone."""
    _end_quietly_when_interrupted()
    from fleet_agentpack.cli import run_single

    sys.exit(run_single("enact", "enact-mcp", sys.argv[1:]))


def forge() -> None:
    """`fractary-forge-mcp`: the definitions alone."""
    _end_quietly_when_interrupted()
    from fleet_agentpack.cli import run_single

    sys.exit(run_single("forge", "fractary-forge-mcp", sys.argv[1:]))


def _end_quietly_when_interrupted() -> None:
    """Until the work begins, Ctrl-C just ends the process.

    An exception would not do: raised in the middle of an import, it may be printed and swallowed.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


if __name__ == "__main__":
    main()
