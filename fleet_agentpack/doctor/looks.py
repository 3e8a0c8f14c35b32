"""A look at the package itself and at each domain."""

from __future__ import annotations

import asyncio
import platform
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fleet_agentpack.kit.checks import Check, directory, failure, program
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.results import jsonable
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
    from fleet_agentpack.fleet.options import choose_engine, fleet_table

    try:
        table = fleet_table(settings)
        engine = choose_engine(settings, table)
        agents, projects = asyncio.run(_ask_fleet(settings))
    except AppError as error:
        advice = 'correct what it names; [fleet] engine = "local" runs agents on this machine'
        yield failure("fleet", "engine", error, advice)
        return
    where = (
        settings.environ.get("CODER_URL", "this machine") if engine == "coder" else "this machine"
    )
    yield Check("fleet", "engine", "ok", f"{engine}, on {where}; {len(agents)} agents")
    if projects:
        yield Check("fleet", "projects", "ok", ", ".join(row["name"] for row in projects))
    else:
        advice = "start the server in a git repository, or add [fleet.projects.NAME] path"
        yield Check("fleet", "projects", "note", "none", advice)
    if engine == "local":
        yield _agent_program(settings, table.program or "claude", table.programs)


def enact(settings: Settings) -> Iterable[Check]:
    """The tool registry."""
    from fleet_agentpack.enact.checks import checks

    return checks(settings)


def forge(settings: Settings) -> Iterable[Check]:
    """The configuration and the definitions."""
    from fleet_agentpack.forge.checks import checks

    return checks(settings)


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


async def _ask_fleet(settings: Settings) -> tuple[list[Any], list[Any]]:
    from fleet_agentpack.fleet.engine import open_fleet

    service = open_fleet(settings, "human")
    try:
        agents, projects = await service.agents(), await service.projects()
        return jsonable(agents)["agents"], jsonable(projects)["projects"]
    finally:
        await service.close()


def _agent_program(settings: Settings, name: str, programs: Any) -> Check:
    from fleet_agentpack.fleet.local.programs import load_programs

    chosen = load_programs(programs).get(name)
    if chosen is None:
        return Check(
            "fleet", "agent program", "problem", f"{name} is not described", "see docs/fleet.md"
        )
    found = shutil.which(chosen.command[0], path=settings.environ.get("PATH"))
    if found:
        return Check("fleet", "agent program", "ok", f"{name}: {found}")
    advice = f"install {chosen.command[0]}, or choose another with [fleet] program"
    return Check(
        "fleet", "agent program", "note", f"{name}: {chosen.command[0]} is not installed", advice
    )
