"""Builds the MCP server: the chosen domains' tools, the middleware around them, their lifetime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from fleet_agentpack import domains as inventory
from fleet_agentpack.settings import Settings
from fleet_agentpack.version import __version__
from fleet_agentpack.wire.fastmcp_setup import import_fastmcp

import_fastmcp()

from fastmcp import FastMCP  # noqa: E402 - configured above

from fleet_agentpack.wire.dynamic import DynamicTools  # noqa: E402
from fleet_agentpack.wire.list_changed import ListChanged  # noqa: E402
from fleet_agentpack.wire.middleware import Guard  # noqa: E402
from fleet_agentpack.wire.register import Domain, Runtime, Services, register  # noqa: E402
from fleet_agentpack.wire.session_state import MemoryState  # noqa: E402


def build_server(settings: Settings | None = None) -> FastMCP[Any]:
    """The server for these settings, ready to be served, inspected or called in memory.

    Raises `SettingsError` for a domain that does not exist.
    """
    settings = settings or Settings.read()
    return assemble(settings, inventory.select(settings.only))


def assemble(settings: Settings, domains: Sequence[Domain]) -> FastMCP[Any]:
    """A server of exactly these domains."""
    services = Services(settings, domains)
    changes = ListChanged(services.end_session)
    runtime = Runtime(services, changes.look)
    projected = [
        DynamicTools(domain, runtime, read_only=settings.read_only)
        for domain in domains
        if domain.catalogue
    ]

    @asynccontextmanager
    async def lifespan(_: FastMCP[Any]) -> AsyncIterator[dict[str, Any]]:
        watching = asyncio.create_task(changes.watch())
        try:
            yield {}
        finally:
            watching.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(watching, return_exceptions=True)
                await services.close()

    mcp: FastMCP[Any] = FastMCP(
        inventory.server_name(domains, settings.only),
        inventory.instructions(domains),
        version=__version__,
        middleware=[_guard(domains, settings), changes],
        providers=projected,
        lifespan=lifespan,
        on_duplicate="error",
        mask_error_details=True,
        dereference_schemas=False,
        strict_input_validation=True,
        auth=_bearer_auth(settings),
    )
    MemoryState.install(mcp)
    changes.attach(mcp, [each.fingerprint for each in projected])
    for domain in domains:
        register(mcp, domain, runtime, read_only=settings.read_only)
    return mcp


def _guard(domains: Sequence[Domain], settings: Settings) -> Guard:
    table = {
        spec.name: (domain, spec)
        for domain in domains
        for spec in domain.tools
        if spec.hints.read_only or not settings.read_only
    }
    fallback = next((domain for domain in domains if domain.catalogue), domains[0])
    return Guard(table, fallback)


def _bearer_auth(settings: Settings) -> Any:
    if settings.http.token is None:
        return None
    from fleet_agentpack.wire.http import BearerToken

    return BearerToken(settings.http.token)
