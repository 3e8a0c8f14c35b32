"""Logging: everything goes to standard error, in one line each."""

from __future__ import annotations

import logging


def configure(level: str) -> None:
    """Send every library's log to standard error from this level on."""
    logging.basicConfig(
        level=level.upper(), format="%(levelname)s %(name)s: %(message)s", force=True
    )
    # Below a warning these tell of themselves, and FastMCP of the arguments of every call.
    for noisy in ("fastmcp", "mcp", "httpx", "httpcore", "uvicorn"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
