"""Puts climpt's parts together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.original import OriginalCli
from fleet_agentpack.climpt.places import Places
from fleet_agentpack.climpt.render import Renderer
from fleet_agentpack.climpt.service import ClimptService


def open_climpt(
    cwd: Path, home: Path, environ: Mapping[str, str], execute: Any = None
) -> ClimptService:
    """The service for a working directory and a home; `execute` is the setting of that name.

    Raises `ClimptError` for a setting that is not known.
    """
    places = Places(cwd, home)
    if execute in (None, "render"):
        return ClimptService(places, Renderer(places))
    if execute == "cli":
        return ClimptService(places, OriginalCli(places, environ))
    raise ClimptError("Invalid configuration", details='[climpt] execute must be "render" or "cli"')
