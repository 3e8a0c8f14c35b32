"""A look at the package itself and at each domain."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fleet_agentpack.kit.checks import Check, directory, failure, program
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.settings import Settings, SettingsError
from fleet_agentpack.version import __version__

Look = Callable[[Settings], Iterable[Check]]


def package(settings: Settings) -> Iterable[Check]:
    """The package, its configuration file and its directories."""
    yield Check("package", "version", "ok", f"{__version__}, Python {platform.python_version()}")
    path = settings.config_path
    there = path is not None and path.exists()
    yield Check("package", "configuration", "ok", f"{path}" if there else f"{path} (not there)")
    for warning in settings.warnings:
        yield Check("package", "configuration", "problem", warning, "correct that file")
    places = settings.directories
    for name in ("state", "cache", "data"):
        yield directory("package", f"{name} directory", getattr(places, name))
    search_path = settings.environ.get("PATH")
    yield program(
        "package", ["git"], search_path, "git modules and worktrees need it", "install git"
    )


def agentpack(settings: Settings) -> Iterable[Check]:
    """The config repo and the roots of its targets."""
    from fleet_agentpack.deploy.tools import open_service
    from fleet_agentpack.deploy.workspace import Request

    try:
        found = open_service(settings).doctor(Request())
    except AppError as error:
        yield _config_repo(error)
        return
    yield Check("agentpack", "machine id", "ok", found.data.machine_id)
    for row in found.data.roots:
        detail = f"{row.root}: {', '.join(row.issues)}" if row.issues else row.root
        advice = row.suggestion or ""
        yield Check(
            "agentpack", f"{row.target} root", "note" if row.issues else "ok", detail, advice
        )
    for warning in found.warnings:
        yield Check("agentpack", "configuration", "note", warning)


def fleet(settings: Settings) -> Iterable[Check]:
    """The engine, and whether it answers."""
    from fleet_agentpack.fleet.checks import checks

    return checks(settings)


def enact(settings: Settings) -> Iterable[Check]:
    """The tool registry."""
    from fleet_agentpack.enact.checks import checks

    return checks(settings)


def forge(settings: Settings) -> Iterable[Check]:
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


def climpt(settings: Settings) -> Iterable[Check]:
    """The registry of prompt commands."""
    from fleet_agentpack.climpt.tools import open_service

    try:
        count = open_service(settings).reload()["commandCount"]
    except AppError as error:
        yield _prompt_registry(error)
        return
    yield Check("climpt", "registry", "ok", f"{count} commands")


LOOKS: Sequence[Look] = (package, agentpack, fleet, enact, forge, climpt)


def look_at_everything(settings: Settings) -> list[Check]:
    """Every check, in order; nothing is written but our own caches and ledger."""
    return [check for look in LOOKS for check in _guarded(look, settings)]


def _guarded(look: Look, settings: Settings) -> Iterable[Check]:
    """A look whose fault becomes a line of the report and hides none of the others."""
    try:
        yield from look(settings)
    except SettingsError as error:
        yield Check(look.__name__, "configuration", "problem", str(error), "correct that file")
    except Exception as error:  # noqa: BLE001 - a disk in a state that nobody thought of
        detail = f"cannot be looked at: {type(error).__name__}: {error}"
        advice = "make the file or directory that it names usable, or move it away"
        yield Check(look.__name__, "files", "problem", detail, advice)


def _config_repo(error: AppError) -> Check:
    if error.payload()["errors"][0]["code"] == "E_CONFIG_MISSING":
        return Check("agentpack", "config repo", "note", str(error), "fleet-agentpack init")
    return failure("agentpack", "config repo", error, "correct that file")


def _prompt_registry(error: AppError) -> Check:
    payload = error.payload()
    detail = ": ".join(payload[key] for key in ("path", "details") if key in payload) or str(error)
    if payload.get("details") == "File not found":
        return Check("climpt", "registry", "note", detail, "fleet-agentpack climpt init")
    return Check("climpt", "registry", "problem", detail, "correct that file")
