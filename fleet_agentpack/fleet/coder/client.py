"""One short method per endpoint that we use, of Coder and of the AgentAPI inside a workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import quote

from fleet_agentpack.fleet.coder import models
from fleet_agentpack.fleet.coder.errors import Broken, RouteMissing, TooLarge
from fleet_agentpack.fleet.coder.listing import ListPage
from fleet_agentpack.fleet.coder.transport import Connection

A = TypeVar("A")
T = TypeVar("T")

LIST = "/api/v2/workspaces"
PAGE_SIZE = 100
PAGES_AT_ONCE = 5
MAX_WORKSPACES = 100_000
METADATA_WAIT_S = 5.0


class CoderClient:
    """Coder's REST API as typed calls. Every method raises `CoderError`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_older = False  # known once the newer create route turns out to be missing

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def workspaces(self, query: str) -> list[ListPage]:
        """Every page of workspaces that match a query; the first tells how many there are.

        Coder adds to a workspace all that its apps ever reported: a page that is too large for
        one answer is asked for in halves.
        """
        turn = asyncio.Semaphore(PAGES_AT_ONCE)

        async def pages(offset: int, size: int) -> list[ListPage]:
            params = {"q": query, "limit": size, "offset": offset}
            try:
                async with turn:
                    return [await self._ask("GET", LIST, ListPage, params=params)]
            except TooLarge:
                if size == 1:
                    raise
            half = size // 2
            return await pages(offset, half) + await pages(offset + half, size - half)

        first = await pages(0, PAGE_SIZE)
        if sum(len(page.rows) for page in first) < PAGE_SIZE:
            return first
        offsets = range(PAGE_SIZE, min(first[0].total, MAX_WORKSPACES), PAGE_SIZE)
        rest = await at_once(*(pages(offset, PAGE_SIZE) for offset in offsets))
        return [*first, *chain.from_iterable(rest)]

    def in_full(self, page: ListPage, workspace_id: str) -> models.Workspace:
        """A workspace of a page, with all its fields."""
        return _read("GET", LIST, page, lambda page: page.in_full)[workspace_id]

    async def workspace(self, name: str) -> models.Workspace:
        """Our workspace by name, ignoring case."""
        return await self._ask("GET", _api("users/me/workspace", name), models.WORKSPACE.decode)

    async def workspace_by_id(self, workspace_id: str) -> models.Workspace:
        """A workspace by its id."""
        return await self._ask("GET", _api("workspaces", workspace_id), models.WORKSPACE.decode)

    async def create_workspace(
        self,
        name: str,
        template: models.Template,
        values: Mapping[str, str],
        preset_id: str | None = None,
    ) -> models.Workspace:
        """Request a workspace; its build continues after the answer.

        With a preset, Coder takes a workspace that it has built beforehand, if there is one.
        """
        body: dict[str, Any] = {
            "name": name,
            "template_id": template.id,
            "rich_parameter_values": [{"name": k, "value": v} for k, v in values.items()],
        }
        if preset_id:
            body["template_version_preset_id"] = preset_id
        read = models.WORKSPACE.decode
        if not self._is_older:
            try:
                return await self._ask("POST", "/api/v2/users/me/workspaces", read, body=body)
            except RouteMissing:  # older servers know only the organization's route
                self._is_older = True
        organization = template.organization_name or "default"
        path = _api("organizations", organization, "/members/me/workspaces")
        return await self._ask("POST", path, read, body=body)

    async def build(self, build_id: str) -> models.Build:
        """A build by its id."""
        return await self._ask("GET", _api("workspacebuilds", build_id), models.BUILD.decode)

    async def parameters(self, build_id: str) -> dict[str, str]:
        """The parameters that a build was given."""
        path = _api("workspacebuilds", build_id, "/parameters")
        rows = await self._ask("GET", path, models.VALUES.decode)
        return {row.name: row.value for row in rows or []}

    async def build_logs(self, build_id: str, after: int | None = None) -> list[models.BuildLog]:
        """A build's log, all of it or the lines after one."""
        path = _api("workspacebuilds", build_id, "/logs")
        params = None if after is None else {"after": after}
        return await self._ask("GET", path, models.LOGS.decode, params=params) or []

    async def cancel(self, build_id: str) -> None:
        """Request that a build be canceled."""
        await self._connection.request("PATCH", _api("workspacebuilds", build_id, "/cancel"))

    async def delete_workspace(self, workspace_id: str) -> models.Build:
        """Start the build that destroys a workspace."""
        return await self._transition(workspace_id, "delete")

    async def start_workspace(self, workspace_id: str) -> models.Build:
        """Start the build that brings a stopped workspace up."""
        return await self._transition(workspace_id, "start")

    async def _transition(self, workspace_id: str, transition: str) -> models.Build:
        path = _api("workspaces", workspace_id, "/builds")
        body = {"transition": transition}
        return await self._ask("POST", path, models.BUILD.decode, body=body)

    async def templates(self) -> list[models.Template]:
        """Every template that we may use, from all organizations."""
        return await self._ask("GET", "/api/v2/templates", models.TEMPLATES.decode) or []

    async def rich_parameters(self, version_id: str) -> list[models.Parameter]:
        """The parameters that a template version asks for."""
        path = _api("templateversions", version_id, "/rich-parameters")
        return await self._ask("GET", path, models.PARAMETERS.decode) or []

    async def presets(self, version_id: str) -> list[models.Preset]:
        """The presets of a template version; an older Coder has none."""
        path = _api("templateversions", version_id, "/presets")
        try:
            return await self._ask("GET", path, models.PRESETS.decode) or []
        except RouteMissing:
            return []

    async def metadata(self, agent_id: str) -> list[models.Metadata]:
        """An agent's current metadata: the first event of the stream."""
        path = _api("workspaceagents", agent_id, "/watch-metadata")
        data = await self._connection.first_event(path, METADATA_WAIT_S)
        return _read("GET", path, data.encode(), models.METADATA.decode) or []

    async def agent_logs(self, agent_id: str) -> list[models.BuildLog]:
        """What an agent's startup scripts said."""
        path = _api("workspaceagents", agent_id, "/logs")
        return await self._ask("GET", path, models.LOGS.decode) or []

    async def agent_status(self, app: str) -> str:
        """Whether AgentAPI's program is working: `running` or `stable`."""
        return (await self._ask("GET", f"{app}/status", models.STATUS.decode)).status

    async def agent_messages(self, app: str) -> list[models.AgentApiMessage]:
        """The conversation with the program inside."""
        return (await self._ask("GET", f"{app}/messages", models.MESSAGES.decode)).messages or []

    async def agent_message(self, app: str, content: str, kind: str) -> None:
        """Send a message (`user`) or keys (`raw`) to the program inside."""
        body = {"content": content, "type": kind}
        await self._connection.request("POST", f"{app}/message", body=body)

    async def _ask(self, method: str, path: str, read: Callable[[bytes], T], **request: Any) -> T:
        return _read(method, path, await self._connection.request(method, path, **request), read)


def at_once(*work: Coroutine[Any, Any, T]) -> asyncio.Future[list[T]]:
    """Run together; when one fails or the result is cancelled, the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in work]
    together = asyncio.gather(*tasks)

    def give_up(done: asyncio.Future[list[T]]) -> None:
        done.cancelled() or done.exception()  # marks the exception as seen
        for task in tasks:
            task.cancel()

    together.add_done_callback(give_up)
    return together


def app_path(workspace: models.Workspace, agent: models.WorkspaceAgent, slug: str) -> str:
    """Where Coder proxies an app of a workspace."""
    place = f"{_part(workspace.name)}.{_part(agent.name)}"
    return f"/@{_part(workspace.owner_name)}/{place}/apps/{_part(slug)}"


def _read(method: str, path: str, answer: A, read: Callable[[A], T]) -> T:
    try:
        return read(answer)
    except (ValueError, RecursionError) as error:
        told = f"Coder's answer is incomplete or has an unexpected form: {error}"
        raise Broken(method, path, told) from error


def _api(objects: str, one: str, rest: str = "") -> str:
    return f"/api/v2/{objects}/{_part(one)}{rest}"


def _part(text: str) -> str:
    return quote(text, safe="")
