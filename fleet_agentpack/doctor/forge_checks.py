"""Forge's part of `doctor --all`, until its room has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fleet_agentpack.kit.checks import Check, failure
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.settings import Settings


def checks(settings: Settings) -> Iterable[Check]:
    """The configuration and the definitions."""
    from fleet_agentpack.forge.tools import open_service

    try:
        service: Any = open_service(settings)
        shown = service.config_show()
        sources = shown["sources"]
        yield Check("forge", "configuration", "ok", ", ".join(map(str, sources)) or "defaults")
        for name, kind in (("agents", "agent"), ("tools", "tool")):
            total = service.listing(kind)["total"]
            yield Check("forge", name, "ok", f"{total} definitions")
        registries = service.registry_list()["registries"]
    except AppError as error:
        yield failure("forge", "configuration", error, "correct that file")
        return
    if registries:
        yield Check("forge", "registries", "ok", ", ".join(row["name"] for row in registries))
    else:
        yield Check(
            "forge", "registries", "note", "none", "fleet-agentpack forge registry add NAME URL"
        )
