"""The domains as rows, and the choice of some of them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from fleet_agentpack.settings import SettingsError

SERVER_NAME = "agentpack"

# Domain name → the module whose `DOMAIN` describes it; the order is the order of `tools/list`.
DOMAINS: dict[str, str] = {
    "agentpack": "fleet_agentpack.deploy.tools",
    "fleet": "fleet_agentpack.fleet.tools",
    "enact": "fleet_agentpack.enact.tools",
    "forge": "fleet_agentpack.forge.tools",
    "climpt": "fleet_agentpack.climpt.tools",
}


def check_names(only: Sequence[str]) -> None:
    """Look whether there are such domains, importing none. Raises `SettingsError` if not."""
    unknown = [name for name in only if name not in DOMAINS]
    if unknown:
        raise SettingsError(
            f"unknown domain {', '.join(map(repr, unknown))}; choose from {', '.join(DOMAINS)}"
        )


def select(only: Sequence[str] = ()) -> list[Any]:
    """The chosen domains, or all of them. Raises `SettingsError` for a name that is not there."""
    check_names(only)
    chosen = [name for name in DOMAINS if not only or name in only]
    return [importlib.import_module(DOMAINS[name]).DOMAIN for name in chosen]


def server_name(domains: Sequence[Any], only: Sequence[str]) -> str:
    """What the server calls itself: a domain asked for alone has a name of its own."""
    return domains[0].server_name if only and len(domains) == 1 else SERVER_NAME


def instructions(domains: Sequence[Any]) -> str:
    """A short map of the chosen domains for the model at the other end."""
    lines = [f"- {domain.instructions}" for domain in domains]
    return "\n".join(
        ["What is here and what to call first; an error says what to do next.", *lines]
    )
