"""The project of a request: over HTTP a client may name one that the configuration allows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware.middleware import CallNext, Middleware, MiddlewareContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, DiscoverResult, InitializeResult

from fleet_agentpack.kit.project import FoundProject, find_project

if TYPE_CHECKING:
    from fleet_agentpack.settings import Settings

PARAMETER = "project"
_NAMED: ContextVar[Path | None] = ContextVar("named", default=None)
Greeting = TypeVar("Greeting", InitializeResult, DiscoverResult)


def named_project() -> Path | None:
    """The project that the request under way names; None for the server's own."""
    return _NAMED.get()


class ProjectOfRequest(Middleware):
    """Lets `?project=` in the address choose, among the directories of `[http] projects`."""

    def __init__(self, settings: Settings, instructions: Callable[[str], str]) -> None:
        self._settings = settings
        self._instructions = instructions  # for what is said of a project

    async def on_message(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> object:
        """Answer for the project that is named. Raises `MCPError` for one that is not allowed."""
        named = _in_the_address()
        if named is None:
            return await call_next(context)
        with _for_project(self._allowed(named)):
            return await call_next(context)

    async def on_initialize(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> InitializeResult | None:
        """The instructions name the project that the client has named."""
        result: InitializeResult | None = await call_next(context)
        return result and self._told(result)

    async def on_discover(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> DiscoverResult:
        """The same in the era without a handshake."""
        result: DiscoverResult = await call_next(context)
        return self._told(result)

    def _told(self, greeting: Greeting) -> Greeting:
        project = named_project()
        if project is None:
            return greeting
        said = self._instructions(FoundProject(str(project)).sentence)
        return greeting.model_copy(update={"instructions": said})

    def _allowed(self, named: str) -> Path:
        """The directory with every link followed, so that no other spelling slips through."""
        home = str(self._settings.home)
        allowed = {os.path.realpath(each) for each in self._settings.http.projects}
        is_path = os.path.isabs(named) and "\0" not in named  # noqa: PTH117
        if not is_path or os.path.realpath(named) not in allowed:
            raise _refused(
                f"This server does not serve the project {named[:200]!r}; [http] projects in its"
                " config.toml lists those that it does"
            )
        found = find_project(named, home)
        if not found.path:
            raise _refused(f"{named[:200]!r} cannot be the project: {found.reason}")
        return Path(found.path)


def _in_the_address() -> str | None:
    """What `?project=` says in the address of the request under way, if it is one over HTTP."""
    try:
        given = get_http_request().query_params.getlist(PARAMETER)
    except RuntimeError:
        return None
    if len(given) > 1:
        raise _refused("the address names more than one project")
    return given[0] if given else None


@contextmanager
def _for_project(project: Path) -> Iterator[None]:
    token = _NAMED.set(project)
    try:
        yield
    finally:
        _NAMED.reset(token)


def _refused(message: str) -> MCPError:
    return MCPError(INVALID_PARAMS, message)
