"""Entry points: the whole product, and the contracts' names for one domain alone."""

from __future__ import annotations

import sys


def main() -> None:
    """`fleet-agentpack`"""
    from fleet_agentpack.cli import run

    sys.exit(run(sys.argv[1:]))


def enact() -> None:
    """`enact-mcp`: the tool registry alone."""
    from fleet_agentpack.cli import run_single

    sys.exit(run_single("enact", "enact-mcp", sys.argv[1:]))


def forge() -> None:
    """`fractary-forge-mcp`: the definitions alone."""
    from fleet_agentpack.cli import run_single

    sys.exit(run_single("forge", "fractary-forge-mcp", sys.argv[1:]))


if __name__ == "__main__":
    main()
