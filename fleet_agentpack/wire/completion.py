"""`completion/complete`: what can stand for an argument of a prompt or a resource template."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from mcp_types import Completion, PromptReference

from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.settings import SettingsError
from fleet_agentpack.wire.resources import PAGE

if TYPE_CHECKING:
    from fastmcp.server.completions import CompletionHandler, CompletionReference
    from mcp_types import CompletionArgument, CompletionContext

    from fleet_agentpack.wire.provider import DomainTools, Services

MOST = 100  # the protocol's
logger = logging.getLogger(__name__)

# Takes the service and the arguments given so far, and returns every value that could stand there.
Values = Callable[[Any, Mapping[str, str]], Iterable[str] | Awaitable[Iterable[str]]]


def completer(domains: Sequence[DomainTools], services: Services) -> CompletionHandler:
    """The one handler of a server: it asks the domain whose prompt or template is meant."""

    async def complete(
        ref: CompletionReference, argument: CompletionArgument, context: CompletionContext | None
    ) -> Completion:
        name = ref.name if isinstance(ref, PromptReference) else ref.uri.removesuffix(PAGE)
        for domain in domains:
            values = domain.completions.get((name, argument.name))
            if values:
                given = (context and context.arguments) or {}
                return matching(await _every(values, domain, services, given), argument.value)
        return Completion(values=[])

    return complete


def matching(values: Iterable[str], typed: str) -> Completion:
    """The values for what was typed: those that begin with it, then those that contain it."""
    wanted = typed.casefold()
    found = [value for value in dict.fromkeys(values) if wanted in value.casefold()]
    found.sort(key=lambda value: not value.casefold().startswith(wanted))
    return Completion(values=found[:MOST], total=len(found), has_more=len(found) > MOST)


async def _every(
    values: Values, domain: DomainTools, services: Services, given: Mapping[str, str]
) -> Iterable[str]:
    try:
        service = services.get(domain)
        if inspect.iscoroutinefunction(values):
            asked: Iterable[str] = await values(service, given)
            return asked
        return await anyio.to_thread.run_sync(lambda: list(values(service, given)))  # type: ignore[arg-type]
    except (AppError, SettingsError) as error:  # a suggestion less is no failure
        logger.debug("nothing to complete: %s", error)
        return []
