"""The deploy engine's part of `doctor --all`: the config repo and the roots of its targets."""

from __future__ import annotations

from collections.abc import Iterable

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.service import open_service
from fleet_agentpack.kit.checks import Check, failure
from fleet_agentpack.settings import Settings

AREA = "agentpack"


def checks(settings: Settings) -> Iterable[Check]:
    """Whether the config repo can be read, and the roots be written."""
    try:
        found = open_service(settings).doctor(Request())
    except DeployError as error:
        if error.code == "E_CONFIG_MISSING":
            yield Check(AREA, "config repo", "note", str(error), "fleet-agentpack init")
        else:
            yield failure(AREA, "config repo", error, "correct that file")
        return
    yield Check(AREA, "machine id", "ok", found.data.machine_id)
    for root in found.data.roots:
        subject, advice = f"{root.target} root", root.suggestion or ""
        if root.issues:
            detail = f"{root.root}: {', '.join(root.issues)}"
            yield Check(AREA, subject, "note", detail, advice)
        else:
            yield Check(AREA, subject, "ok", root.root)
    for warning in found.warnings:
        yield Check(AREA, "configuration", "note", warning)
