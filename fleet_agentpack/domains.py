"""The domains as rows, and the choice of some of them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet_agentpack.settings import Settings, SettingsError

if TYPE_CHECKING:
    from fleet_agentpack.wire.provider import DomainTools

SERVER_NAME = "agentpack"

# Domain → its room, a package with `tools`, `commands` and `checks`; in the order of `tools/list`.
ROOMS: dict[str, str] = {
    "agentpack": "fleet_agentpack.deploy",
    "fleet": "fleet_agentpack.fleet",
    "enact": "fleet_agentpack.enact",
    "forge": "fleet_agentpack.forge",
    "climpt": "fleet_agentpack.climpt",
}


def check_names(only: Sequence[str]) -> None:
    """Look whether there are such domains, importing none. Raises `SettingsError` if not."""
    unknown = [name for name in only if name not in ROOMS]
    if unknown:
        import difflib  # here, since a server that starts needs none of it

        near = difflib.get_close_matches(unknown[0], ROOMS, n=1)
        meant = f"; did you mean {near[0]}?" if near else f"; choose from {', '.join(ROOMS)}"
        raise SettingsError(f"unknown domain {', '.join(map(repr, unknown))}{meant}")


def select(only: Sequence[str] = ()) -> list[DomainTools]:
    """The chosen domains, or all of them. Raises `SettingsError` for a name that is not there."""
    check_names(only)
    # Before a room's tools import it: only our own settings may steer FastMCP.
    importlib.import_module("fleet_agentpack.wire.fastmcp_setup").import_fastmcp()
    chosen = [room for name, room in ROOMS.items() if not only or name in only]
    return [importlib.import_module(f"{room}.tools").mcp for room in chosen]


def count_tools(settings: Settings) -> dict[str, int]:
    """How many tools a server for these settings lists of each domain, installed ones aside.

    Raises `SettingsError` for a domain or a tool that is not there.
    """
    served = importlib.import_module("fleet_agentpack.wire.server").served_tools(settings)
    return {domain: len(tools) for domain, tools in served.items()}


def server_name(domains: Sequence[DomainTools], only: Sequence[str]) -> str:
    """What the server calls itself: a domain asked for alone has a name of its own."""
    return domains[0].server_name if only and len(domains) == 1 else SERVER_NAME
