"""One short method per endpoint of Coder, and of the AgentAPI inside a workspace, that we use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from fleet_agentpack.fleet.coder import models
from fleet_agentpack.fleet.coder.errors import Broken, RouteMissing
from fleet_agentpack.fleet.coder.transport import Connection

T = TypeVar("T")

PAGE_SIZE = 100
MAX_PAGES = 1000
METADATA_WAIT_S = 5.0


class CoderClient:
    """Coder's REST API as typed calls. Every method raises `CoderError`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._create_in: str | None = None  # the older create route, once it is known to be needed

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def workspaces(self, query: str) -> AsyncIterator[models.Workspace]:
        """Every workspace that a query finds, each once, page by page."""
        given: set[str] = set()
        for number in range(MAX_PAGES):
            params = {"q": query, "limit": PAGE_SIZE, "offset": number * PAGE_SIZE}
            page = await self._get(
                "/api/v2/workspaces", models.WorkspacePage.model_validate_json, params
            )
            rows = page.workspaces or []
            for workspace in rows:
                if workspace.id not in given:
                    given.add(workspace.id)
                    yield workspace
            if len(rows) < PAGE_SIZE or (number + 1) * PAGE_SIZE >= page.count:
                return

    async def workspace(self, name: str) -> models.Workspace:
        """Our workspace of a name, in any case."""
        path = f"/api/v2/users/me/workspace/{_part(name)}"
        return await self._get(path, models.Workspace.model_validate_json)

    async def workspace_by_id(self, workspace_id: str) -> models.Workspace:
        """A workspace by its id."""
        path = f"/api/v2/workspaces/{_part(workspace_id)}"
        return await self._get(path, models.Workspace.model_validate_json)

    async def create_workspace(
        self, name: str, template: models.Template, values: dict[str, str]
    ) -> models.Workspace:
        """Ask for a workspace; its build goes on after the answer."""
        body = {
            "name": name,
            "template_id": template.id,
            "rich_parameter_values": [{"name": k, "value": v} for k, v in values.items()],
        }
        read = models.Workspace.model_validate_json
        if self._create_in is None:
            try:
                return await self._send("POST", "/api/v2/users/me/workspaces", body, read)
            except RouteMissing:  # older servers know only the organization's route
                self._create_in = "organizations"
        organization = _part(template.organization_name or "default")
        path = f"/api/v2/organizations/{organization}/members/me/workspaces"
        return await self._send("POST", path, body, read)

    async def build(self, build_id: str) -> models.Build:
        """A build by its id."""
        path = f"/api/v2/workspacebuilds/{_part(build_id)}"
        return await self._get(path, models.Build.model_validate_json)

    async def parameters(self, build_id: str) -> dict[str, str]:
        """The parameters that a build was given."""
        path = f"/api/v2/workspacebuilds/{_part(build_id)}/parameters"
        rows = await self._get(path, models.VALUES.validate_json)
        return {row.name: row.value for row in rows or []}

    async def build_logs(self, build_id: str, after: int | None = None) -> list[models.BuildLog]:
        """A build's log, all of it or what came after a line."""
        path = f"/api/v2/workspacebuilds/{_part(build_id)}/logs"
        params = None if after is None else {"after": after}
        return await self._get(path, models.LOGS.validate_json, params) or []

    async def cancel(self, build_id: str) -> None:
        """Ask for a build to be canceled."""
        path = f"/api/v2/workspacebuilds/{_part(build_id)}/cancel"
        await self._connection.request("PATCH", path)

    async def delete_workspace(self, workspace_id: str) -> models.Build:
        """Start the build that destroys a workspace."""
        path = f"/api/v2/workspaces/{_part(workspace_id)}/builds"
        return await self._send(
            "POST", path, {"transition": "delete"}, models.Build.model_validate_json
        )

    async def templates(self) -> list[models.Template]:
        """Every template that we may use, of all organizations."""
        return await self._get("/api/v2/templates", models.TEMPLATES.validate_json) or []

    async def rich_parameters(self, version_id: str) -> list[models.Parameter]:
        """The parameters that a template version asks for."""
        path = f"/api/v2/templateversions/{_part(version_id)}/rich-parameters"
        return await self._get(path, models.PARAMETERS.validate_json) or []

    async def metadata(self, agent_id: str) -> list[models.Metadata]:
        """An agent's metadata as it is now: the first event of the stream."""
        path = f"/api/v2/workspaceagents/{_part(agent_id)}/watch-metadata"
        data = await self._connection.first_event(path, METADATA_WAIT_S)
        return _read("GET", path, data.encode(), models.METADATA.validate_json) or []

    async def agent_status(self, app: str) -> str:
        """AgentAPI's word on whether the program works: `running` or `stable`."""
        found = await self._get(f"{app}/status", models.AgentApiStatus.model_validate_json)
        return found.status

    async def agent_messages(self, app: str) -> list[models.AgentApiMessage]:
        """The conversation with the program inside."""
        found = await self._get(f"{app}/messages", models.AgentApiMessages.model_validate_json)
        return found.messages or []

    async def agent_message(self, app: str, content: str, kind: str) -> None:
        """Say something to the program inside (`user`), or press keys (`raw`)."""
        body = {"content": content, "type": kind}
        await self._connection.request("POST", f"{app}/message", body=body)

    async def _get(
        self, path: str, read: Callable[[bytes], T], params: dict[str, Any] | None = None
    ) -> T:
        answer = await self._connection.request("GET", path, params=params)
        return _read("GET", path, answer, read)

    async def _send(self, method: str, path: str, body: Any, read: Callable[[bytes], T]) -> T:
        return _read(method, path, await self._connection.request(method, path, body=body), read)


def app_path(workspace: models.Workspace, agent: models.WorkspaceAgent, slug: str) -> str:
    """Where Coder proxies an app of a workspace."""
    place = f"{_part(workspace.name)}.{_part(agent.name)}"
    return f"/@{_part(workspace.owner_name)}/{place}/apps/{_part(slug)}"


def _read(method: str, path: str, answer: bytes, read: Callable[[bytes], T]) -> T:
    try:
        return read(answer)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
        told = f"Coder's answer is incomplete or not what Coder answers (at {where or 'the start'})"
        raise Broken(method, path, told) from error


def _part(text: str) -> str:
    return quote(text, safe="")
