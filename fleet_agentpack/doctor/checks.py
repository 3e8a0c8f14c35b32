"""The checks of `doctor --all`: the package's own, then those of every domain's room."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Iterator

from fleet_agentpack.domains import ROOMS
from fleet_agentpack.kit.checks import Check, directory, program
from fleet_agentpack.settings import Settings, SettingsError
from fleet_agentpack.version import __version__

# Area → the module whose `checks` looks at it.
CHECKS = {"package": __name__, **{domain: f"{room}.checks" for domain, room in ROOMS.items()}}


def check_everything(settings: Settings) -> list[Check]:
    """Every check, in order; nothing is written but our own caches and ledger."""
    areas = CHECKS.items()
    return [check for area, module in areas for check in _guarded(area, module, settings)]


def checks(settings: Settings) -> Iterator[Check]:
    """The package, its configuration file and its directories."""
    yield Check("package", "version", "ok", f"{__version__}, Python {platform.python_version()}")
    path = settings.config_path
    there = path is not None and path.exists()
    yield Check(
        "package", "configuration", "ok", f"{path}" if there else f"{path} (does not exist)"
    )
    for warning in settings.warnings:
        yield Check("package", "configuration", "problem", warning, "correct that file")
    places = settings.directories
    for name, place in (("state", places.state), ("cache", places.cache), ("data", places.data)):
        yield directory("package", f"{name} directory", place)
    why, search_path = "git modules and local agents need it", settings.environ.get("PATH")
    yield program("package", ["git"], search_path, why, "install git")


def _guarded(area: str, module: str, settings: Settings) -> Iterator[Check]:
    """Run a module's checks; an unexpected error becomes a line of the report."""
    try:
        # Imported one by one: a room that does not even import must not hide the others.
        yield from importlib.import_module(module).checks(settings)
    except SettingsError as error:
        yield Check(area, "configuration", "problem", str(error), "correct that file")
    except Exception as error:  # noqa: BLE001 - such as a disk in an unforeseen state
        detail = f"cannot be checked: {type(error).__name__}: {error}"
        advice = "make the file or directory that it names usable, or move it away"
        yield Check(area, "files", "problem", detail, advice)
