"""Builds the MCP server: the chosen domains, the middleware around their tools, their lifetime."""

from __future__ import annotations

import asyncio
import difflib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypedDict

import anyio
import anyio.to_thread

from fleet_agentpack import domains as rooms
from fleet_agentpack.kit.actions import PROGRAM
from fleet_agentpack.kit.private import advertise_no_logging, install_memory_state
from fleet_agentpack.kit.stamps import Stamp
from fleet_agentpack.settings import Settings, SettingsError
from fleet_agentpack.version import __version__
from fleet_agentpack.wire.fastmcp_setup import import_fastmcp

import_fastmcp()

from fastmcp import FastMCP  # noqa: E402 - configured above

from fleet_agentpack.wire.call import TOOLS_CHANGED  # noqa: E402
from fleet_agentpack.wire.completion import completer  # noqa: E402
from fleet_agentpack.wire.dynamic import DynamicTools  # noqa: E402
from fleet_agentpack.wire.dynamic_prompts import DynamicPrompts  # noqa: E402
from fleet_agentpack.wire.limits import LIMITS, Limits  # noqa: E402
from fleet_agentpack.wire.list_changed import ListChanged  # noqa: E402
from fleet_agentpack.wire.middleware import CallBoundary  # noqa: E402
from fleet_agentpack.wire.projects import ProjectOfRequest  # noqa: E402
from fleet_agentpack.wire.provider import SERVICES, DomainTool, DomainTools, Services  # noqa: E402
from fleet_agentpack.wire.queues import QUEUES, Queues, let_queues_decide  # noqa: E402
from fleet_agentpack.wire.selected import Selected  # noqa: E402
from fleet_agentpack.wire.selection import Choice, selection_of  # noqa: E402
from fleet_agentpack.wire.updates import ResourceUpdates  # noqa: E402

if TYPE_CHECKING:
    from fastmcp.server.auth import AuthProvider


class Lifespan(TypedDict):
    """What every request of a running server can reach."""

    services: Services
    limits: Limits
    queues: Queues
    tools_changed: Callable[[], Awaitable[None]]


def build_server(
    settings: Settings | None = None, listed: Mapping[str, Stamp | None] | None = None
) -> FastMCP[Lifespan]:
    """The server for these settings, ready to be served, inspected or called in memory.

    `listed` are all files behind the list of installed tools that the front gave its client.
    Raises `SettingsError` for a domain that does not exist.
    """
    settings = settings or Settings.read()
    return assemble(settings, rooms.select(settings.only), listed)


def choose(settings: Settings, domains: Sequence[DomainTools]) -> Choice:
    """The tools that are served. Raises `SettingsError` for names that there are not."""
    _refuse_duplicates(domains)
    facts = {name: each for domain in domains for name, each in domain.facts().items()}
    installed = next((domain.name for domain in domains if domain.catalogue), "")
    choice = Choice(selection_of(settings), facts, installed)
    for name in choice.unknown:
        near = difflib.get_close_matches(name, facts, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; `{PROGRAM} tools` lists them"
        raise SettingsError(f"there is no tool {name!r} to choose or to leave out{hint}")
    if not choice.domains:
        raise SettingsError("these options together leave no tool to serve")
    return choice


def served_tools(settings: Settings) -> dict[str, list[DomainTool]]:
    """The tools that a server for these settings lists, by domain; installed ones aside."""
    domains = rooms.select(settings.only)
    choice = choose(settings, domains)
    return {
        domain.name: [
            domain.tools[name].worded(served, choice.name)
            for name, served in choice.names.items()
            if name in domain.tools
        ]
        for domain in domains
        if domain.name in choice.domains
    }


def assemble(
    settings: Settings,
    domains: Sequence[DomainTools],
    listed: Mapping[str, Stamp | None] | None = None,
) -> FastMCP[Lifespan]:
    """A server of exactly these domains, as far as the settings choose from them."""
    choice = choose(settings, domains)
    fixed = frozenset(name for domain in domains for name in domain.tools)
    domains = [domain for domain in domains if domain.name in choice.domains]
    services, limits, queues = Services(settings), Limits(settings.result_bytes), Queues()
    changes = ListChanged(lambda session: _end_session(services, limits, session), listed)
    updates = ResourceUpdates(domains, services)
    dynamic = [
        DynamicTools(each, services, fixed, choice.selection.prefix)
        for each in domains
        if each.catalogue
    ]
    prompts = [DynamicPrompts(each, services) for each in domains if each.prompt_catalogue]

    @asynccontextmanager
    async def lifespan(_: FastMCP[Lifespan]) -> AsyncIterator[Lifespan]:
        let_queues_decide()
        watching = [asyncio.create_task(each.watch()) for each in (changes, updates)]
        try:
            yield {
                SERVICES: services,
                LIMITS: limits,
                QUEUES: queues,
                TOOLS_CHANGED: changes.look,
            }
        finally:
            for each in watching:
                each.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*watching, return_exceptions=True)
                await services.close()

    texts = {domain.name: domain.instructions for domain in domains}
    instructions = partial(choice.instructions, texts)
    mcp: FastMCP[Lifespan] = FastMCP(
        rooms.server_name(domains, settings.only),
        instructions(settings.place.sentence),
        version=__version__,
        middleware=[ProjectOfRequest(settings, instructions), _boundary(domains, choice), changes],
        providers=[*domains, *dynamic, *prompts],
        lifespan=lifespan,
        mask_error_details=True,
        dereference_schemas=False,
        strict_input_validation=True,
        auth=_bearer_auth(settings),
    )
    if not choice.is_everything:
        mcp.add_transform(Selected(choice, domains))
    mcp.add_completion_handler(completer(domains, services))
    install_memory_state(mcp)
    advertise_no_logging(mcp)
    changes.attach([*dynamic, *prompts])
    updates.attach(mcp, changes.bus)
    return mcp


def _refuse_duplicates(domains: Iterable[DomainTools]) -> None:
    """Raises `ValueError` for a name that is there twice; FastMCP would not."""
    count = Counter(name for domain in domains for name in domain.tools)
    twice = [name for name, times in count.items() if times > 1]
    if twice:
        raise ValueError(f"more than one domain has a tool {', '.join(twice)}")


def _boundary(domains: Sequence[DomainTools], choice: Choice) -> CallBoundary:
    served = {name: domain for domain in domains for name in domain.tools if name in choice.names}
    dynamic = next((domain for domain in domains if domain.catalogue), domains[0])
    return CallBoundary(served, dynamic, choice)


async def _end_session(services: Services, limits: Limits, session: str) -> None:
    """Forget what was kept for a session, and tell the services that asked for it."""
    limits.kept.forget(session)
    for domain, service in services.opened():
        if domain.end_session:
            await anyio.to_thread.run_sync(domain.end_session, service, session)


def _bearer_auth(settings: Settings) -> AuthProvider | None:
    if settings.http.token is None:
        return None
    from fleet_agentpack.wire.http import BearerToken

    return BearerToken(settings.http.token)
