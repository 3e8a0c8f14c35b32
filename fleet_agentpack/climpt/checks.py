"""climpt's part of `doctor --all`: the registry of prompt commands."""

from __future__ import annotations

from collections.abc import Iterator

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.service import open_climpt
from fleet_agentpack.kit.checks import Check
from fleet_agentpack.settings import Settings


def checks(settings: Settings) -> Iterator[Check]:
    """Whether the project's commands can be read, and how many there are."""
    try:
        count = open_climpt(settings).reload().commandCount
    except ClimptError as error:
        path, details = (error.fields.get(name, "") for name in ("path", "details"))
        detail = ": ".join(filter(None, [path, details])) or str(error)
        if error.is_missing_registry:
            yield Check("climpt", "registry", "note", detail, "fleet-agentpack climpt init")
        else:
            yield Check("climpt", "registry", "problem", detail, "correct that file")
        return
    yield Check("climpt", "registry", "ok", f"{count} commands")
