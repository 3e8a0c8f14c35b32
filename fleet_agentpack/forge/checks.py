"""Forge's part of `doctor --all`: the configuration, the definitions and the registries."""

from __future__ import annotations

from collections.abc import Iterable

from fleet_agentpack.forge.errors import ADD_REGISTRY, ForgeError
from fleet_agentpack.forge.names import KINDS
from fleet_agentpack.forge.service import open_service
from fleet_agentpack.kit.checks import Check, failure
from fleet_agentpack.settings import Settings

AREA = "forge"


def checks(settings: Settings) -> Iterable[Check]:
    """Whether the configuration can be read, and what is found with it."""
    forge = open_service(settings)
    try:
        sources = forge.config_show().sources
        yield Check(AREA, "configuration", "ok", ", ".join(sources) or "defaults")
        for kind in KINDS:
            yield Check(AREA, f"{kind}s", "ok", f"{forge.listing(kind).total} definitions")
        registries = forge.registry_list().registries
    except ForgeError as error:
        yield failure(AREA, "configuration", error, "correct that file")
        return
    if registries:
        yield Check(AREA, "registries", "ok", ", ".join(row.name for row in registries))
    else:
        yield Check(AREA, "registries", "note", "none", ADD_REGISTRY.for_person({}))
