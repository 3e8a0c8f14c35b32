"""Resources that are read page by page: collections as they are now, and what answers left out."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from fastmcp.exceptions import FastMCPError, ResourceError, ValidationError
from fastmcp.resources.base import Resource, ResourceContent, ResourceResult
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.dependencies import get_context
from pydantic import PrivateAttr

from fleet_agentpack.kit.actions import Action, steps
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.kit.pages import NoSuchPageError
from fleet_agentpack.settings import SettingsError
from fleet_agentpack.wire.call import session_of
from fleet_agentpack.wire.limits import LIMITS, Limits

if TYPE_CHECKING:
    from fastmcp.server.context import Context

JSON = "application/json"
LONGEST_ECHO = 200  # of what a caller sent, in an error
PAGE = "{?page}"
List = Callable[[Any, str | None], Any]  # takes the service and the session
OpenService = Callable[["Context"], object]


class Listed:
    """A collection: how it is asked for, and how a page of it is written."""

    def __init__(self, address: str, function: List, service: OpenService) -> None:
        self.address, self._list, self._service = address, function, service

    async def read(self, page: int) -> ResourceResult:
        """A page, counted from 1. Raises `FastMCPError`."""
        context = get_context()
        session = session_of(context)
        try:
            value = await self._value(self._service(context), session)
            text = limits_of(context).page(value, page, self.address, session)
        except (AppError, SettingsError, NoSuchPageError) as error:
            raise told(error) from error
        return ResourceResult([ResourceContent(text, mime_type=JSON)])

    async def _value(self, service: object, session: str | None) -> object:
        if inspect.iscoroutinefunction(self._list):
            found: object = await self._list(service, session)
            return found
        return await anyio.to_thread.run_sync(self._list, service, session)


class Collection(Resource):
    """Everything of a kind; `resources/list` names it, its members have templates."""

    _listed: Listed = PrivateAttr()

    @classmethod
    def of(cls, listed: Listed, name: str, description: str) -> Collection:
        """The resource at the collection's address."""
        made = cls(uri=listed.address, name=name, description=description, mime_type=JSON)
        made._listed = listed
        return made

    async def read(self) -> ResourceResult:
        """The first page."""
        return await self._listed.read(1)


class CollectionPages(ResourceTemplate):
    """The pages of a collection."""

    _listed: Listed = PrivateAttr()

    @classmethod
    def of(cls, listed: Listed, name: str, description: str) -> CollectionPages:
        """The template beside the collection's address."""
        made = cls(
            uri_template=listed.address + PAGE,
            name=f"{name}_pages",
            description=f"{description} Page by page.",
            mime_type=JSON,
            parameters={},
        )
        made._listed = listed
        return made

    async def _read(self, uri: str, params: dict[str, Any]) -> ResourceResult:  # noqa: ARG002
        return await self._listed.read(page_number(params))


class KeptAnswers(ResourceTemplate):
    """What answers of a tool, or of any tool of a domain, left out."""

    _again: Action | None = PrivateAttr()

    @classmethod
    def of(cls, place: str, name: str, again: Action | None = None) -> KeptAnswers:
        """The template below a place; `again` gives what is no longer kept, else the same call."""
        made = cls(
            uri_template=f"{place}/{{id}}{PAGE}",
            name=name,
            description="What a long answer left out, page by page. The answer names the address.",
            mime_type=JSON,
            parameters={},
        )
        made._again = again
        return made

    async def _read(self, uri: str, params: dict[str, Any]) -> ResourceResult:
        context, address = get_context(), uri.partition("?")[0]
        pages = limits_of(context).kept.get(session_of(context), address)
        if pages is None:
            again = self._again or Action(
                params.get("tool", "")[:LONGEST_ECHO], text="Call {} again."
            )
            shown = address if len(address) <= LONGEST_ECHO else f"{address[:LONGEST_ECHO]}…"
            message = f"{shown} does not exist, or no longer does. {again.for_agent()}"
            raise ValidationError(message, log_level=logging.DEBUG)
        try:
            text = pages.read(page_number(params), address)
        except NoSuchPageError as error:
            raise told(error) from error
        return ResourceResult([ResourceContent(text, mime_type=pages.media_type)])


def limits_of(context: Context) -> Limits:
    """The server's limits."""
    limits: Limits = context.lifespan_context[LIMITS]
    return limits


def bounded_text(value: object, place: str) -> str:
    """A value as the text of the resource that is being read; the rest is below `place`."""
    context = get_context()
    return limits_of(context).text(value, place, session_of(context))


def page_number(params: dict[str, Any]) -> int:
    """The page that was asked for. Raises `ValidationError`."""
    page = params.get("page", "1")
    if not (page.isascii() and page.isdigit() and 0 < len(page) <= 9):
        raise ValidationError("page is a number, from 1", log_level=logging.DEBUG)
    return int(page)


def told(error: Exception) -> FastMCPError:
    """An expected failure as a client of a resource sees it: what is wrong, and what to do next."""
    if isinstance(error, NoSuchPageError):
        return ValidationError(str(error), log_level=logging.DEBUG)
    next_steps = steps(error.actions) if isinstance(error, AppError) else []
    return ResourceError(". ".join([str(error).rstrip("."), *next_steps]), log_level=logging.DEBUG)
