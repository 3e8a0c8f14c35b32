"""Which workspaces are agents, and what they were made with; anything else is never touched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from fleet_agentpack.fleet.coder import models
from fleet_agentpack.fleet.coder.client import CoderClient
from fleet_agentpack.fleet.coder.listing import ListedWorkspace, ListPage
from fleet_agentpack.fleet.coder.orders import CoderNames, WorkspaceOrder
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.models import AgentSnapshot, NewAgent
from fleet_agentpack.fleet.records import AgentRecord, AgentRecords

KEPT_BUILDS = 5000


class Membership:
    """A workspace is an agent if its build has the role parameter.

    One of a template that is configured, and that knows no roles, is an agent if we made it.
    """

    def __init__(
        self, client: CoderClient, names: CoderNames, records: AgentRecords | None
    ) -> None:
        self._client, self._names = client, names
        self._records = records if names.templates else None
        self._parameters: dict[str, dict[str, str]] = {}  # by build, where they never change

    async def listed(self) -> AsyncIterator[tuple[ListPage, ListedWorkspace]]:
        """Every agent: one request per hundred, and one for each template that needs its own."""
        for page in await self._client.workspaces(f"owner:me param:{self._names.role_parameter}"):
            for row in page.rows:
                yield page, row
        made = await self._made()
        for template in self._names.templates if made else ():
            for page in await self._client.workspaces(f"owner:me template:{template}"):
                for row in page.rows:
                    if row.id in made:
                        yield page, row

    async def described(self, agent: AgentSnapshot) -> AgentSnapshot:
        """The agent with its role and spec. Raises 404 for a workspace that is not an agent."""
        values = self._parameters.get(agent.build)
        if values is None:
            values = await self._client.parameters(agent.build)
            if self._names.role_parameter not in values:
                return await self._recorded(agent)
            self._remember(agent.build, values)
        # Only the build's parameters hold the spec in full.
        specs = [values[name] for name in self._names.spec_names if name in values]
        spec = specs[0] if specs else agent.metadata.get("fleet_mcp_agent_spec", "")
        return replace(agent, role=values.get(self._names.role_parameter, ""), spec=spec)

    async def add(self, workspace: models.Workspace, new: NewAgent, order: WorkspaceOrder) -> None:
        """Remember an agent that was made."""
        if self._records and (order.untold or not order.is_marked):
            record = AgentRecord(workspace.id, new.name, new.role, new.spec, order.untold)
            await asyncio.to_thread(self._records.add, record)
        if order.is_marked and not order.preset_id:
            self._remember(workspace.latest_build.id, dict(order.values))

    async def untold(self, agent: AgentSnapshot) -> str:
        """What an agent has yet to be told about itself."""
        record = (await self._made()).get(agent.workspace_id)
        return record.untold if record else ""

    async def told(self, agent: AgentSnapshot) -> None:
        """Note that it was told."""
        if self._records:
            await asyncio.to_thread(self._records.told, agent.workspace_id)

    async def _recorded(self, agent: AgentSnapshot) -> AgentSnapshot:
        workspace: models.Workspace = agent.handle
        is_configured = self._names.table_of(workspace.template_name) is not None
        record = (await self._made()).get(agent.workspace_id) if is_configured else None
        if record is None:
            raise FleetError.no_such_agent(agent.name)
        return replace(agent, role=record.role, spec=record.spec)

    async def _made(self) -> dict[str, AgentRecord]:
        return await asyncio.to_thread(self._records.made) if self._records else {}

    def _remember(self, build_id: str, values: dict[str, str]) -> None:
        if len(self._parameters) >= KEPT_BUILDS:
            self._parameters.clear()
        self._parameters[build_id] = values
