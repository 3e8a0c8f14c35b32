"""Puts the fleet together: the chosen engine, the ledger, the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_agentpack.fleet.backend import Backend
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.models import Source
from fleet_agentpack.fleet.options import choose_engine, coder_access, fleet_table
from fleet_agentpack.fleet.service import FleetService

if TYPE_CHECKING:
    from fleet_agentpack.config import FleetTable
    from fleet_agentpack.settings import Settings


def open_fleet(settings: Settings, source: Source) -> FleetService:
    """The fleet service as configured. Raises 503 for settings that cannot be used."""
    table = fleet_table(settings)
    backend: Backend
    if choose_engine(settings, table) == "coder":
        backend = _coder(settings, table)
    else:
        backend = _local(settings, table)
    ledger = Ledger(settings.directories.state / "fleet.db")
    return FleetService(backend, ledger, source=source)


def _coder(settings: Settings, table: FleetTable) -> Backend:
    from fleet_agentpack.fleet.coder.backend import CoderBackend, Patience
    from fleet_agentpack.fleet.coder.client import CoderClient
    from fleet_agentpack.fleet.coder.projects import Names
    from fleet_agentpack.fleet.coder.transport import Connection

    access, coder = coder_access(settings), table.coder
    names = Names(
        role_parameter=coder.role_parameter or Names.role_parameter,
        spec_parameter=coder.spec_parameter,
        app_slug=coder.app_slug,
        projects=coder.projects,
    )
    patience = Patience(create_s=table.create_timeout_s)
    client = CoderClient(Connection(access.url, access.token))
    return CoderBackend(client, names, patience=patience)


def _local(settings: Settings, table: FleetTable) -> Backend:
    from fleet_agentpack.fleet.local.opening import open_local

    return open_local(settings, table)
