"""Builds the MCP server: the chosen domains, the middleware around their tools, their lifetime."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypedDict

import anyio
import anyio.to_thread

from fleet_agentpack import domains as rooms
from fleet_agentpack.kit.private import install_memory_state
from fleet_agentpack.kit.stamps import Stamp
from fleet_agentpack.settings import Settings
from fleet_agentpack.version import __version__
from fleet_agentpack.wire.fastmcp_setup import import_fastmcp

import_fastmcp()

from fastmcp import FastMCP  # noqa: E402 - configured above

from fleet_agentpack.wire.call import TOOLS_CHANGED  # noqa: E402
from fleet_agentpack.wire.dynamic import DynamicTools  # noqa: E402
from fleet_agentpack.wire.list_changed import ListChanged  # noqa: E402
from fleet_agentpack.wire.middleware import CallBoundary  # noqa: E402
from fleet_agentpack.wire.provider import (  # noqa: E402
    SERVICES,
    WRITES_TAG,
    DomainTools,
    Services,
)

if TYPE_CHECKING:
    from fastmcp.server.auth import AuthProvider


class Lifespan(TypedDict):
    """What every request of a running server can reach."""

    services: Services
    tools_changed: Callable[[], Awaitable[None]]


def build_server(
    settings: Settings | None = None, listed: Mapping[str, Stamp | None] | None = None
) -> FastMCP[Lifespan]:
    """The server for these settings, ready to be served, inspected or called in memory.

    `listed` are the installed tools' files as a client of the front already knows them.
    Raises `SettingsError` for a domain that does not exist.
    """
    settings = settings or Settings.read()
    return assemble(settings, rooms.select(settings.only), listed)


def assemble(
    settings: Settings,
    domains: Sequence[DomainTools],
    listed: Mapping[str, Stamp | None] | None = None,
) -> FastMCP[Lifespan]:
    """A server of exactly these domains."""
    fixed = _tool_names(domains)
    services = Services(settings)
    changes = ListChanged(lambda session: _end_session(services, session), listed)
    dynamic = [DynamicTools(each, services, fixed) for each in domains if each.catalogue]

    @asynccontextmanager
    async def lifespan(_: FastMCP[Lifespan]) -> AsyncIterator[Lifespan]:
        watching = asyncio.create_task(changes.watch())
        try:
            yield {SERVICES: services, TOOLS_CHANGED: changes.look}
        finally:
            watching.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(watching, return_exceptions=True)
                await services.close()

    mcp: FastMCP[Lifespan] = FastMCP(
        rooms.server_name(domains, settings.only),
        rooms.instructions(domains),
        version=__version__,
        middleware=[_boundary(domains, settings), changes],
        providers=[*domains, *dynamic],
        lifespan=lifespan,
        mask_error_details=True,
        dereference_schemas=False,
        strict_input_validation=True,
        auth=_bearer_auth(settings),
    )
    if settings.read_only:
        mcp.disable(tags={WRITES_TAG})
    install_memory_state(mcp)
    changes.attach(mcp, dynamic)
    return mcp


def _tool_names(domains: Iterable[DomainTools]) -> frozenset[str]:
    """All tools' names. Raises `ValueError` for one that is there twice; FastMCP would not."""
    count = Counter(name for domain in domains for name in domain.tools)
    twice = [name for name, times in count.items() if times > 1]
    if twice:
        raise ValueError(f"more than one domain has a tool {', '.join(twice)}")
    return frozenset(count)


def _boundary(domains: Sequence[DomainTools], settings: Settings) -> CallBoundary:
    served = {
        tool.name: domain
        for domain in domains
        for tool in domain.tools_for(read_only=settings.read_only)
    }
    dynamic = next((domain for domain in domains if domain.catalogue), domains[0])
    return CallBoundary(served, dynamic.error)


async def _end_session(services: Services, session: str) -> None:
    """Tell the services that asked for it that a session is over."""
    for domain, service in services.opened().items():
        if domain.end_session:
            await anyio.to_thread.run_sync(domain.end_session, service, session)


def _bearer_auth(settings: Settings) -> AuthProvider | None:
    if settings.http.token is None:
        return None
    from fleet_agentpack.wire.http import BearerToken

    return BearerToken(settings.http.token)
