"""A fleet on Coder for tests: the real one live, or its recordings."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleet_agentpack.fleet.coder.backend import CoderBackend, Timeouts
from fleet_agentpack.fleet.coder.client import CoderClient
from fleet_agentpack.fleet.coder.orders import CoderNames
from fleet_agentpack.fleet.coder.transport import Connection, Limits
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.records import AgentRecords
from fleet_agentpack.fleet.results import AgentCreated, AgentDetail
from fleet_agentpack.fleet.service import FleetService, quiet
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.kit.secret import Secret
from tests.cassette import Cassette

CASSETTES = Path(__file__).resolve().parents[2] / "cassettes"
HOST = "https://coder.example.test"
TOKEN = f"{'i' * 10}-SECRET{'s' * 16}"  # made up, in the form of Coder's
PROJECT = "setup-devcontainer"


async def at_once(_seconds: float) -> None:
    """A sleep that takes no time."""
    await asyncio.sleep(0)


def service(
    ledger: Path,
    url: str = HOST,
    token: str = TOKEN,
    *,
    names: CoderNames | None = None,
    sleep: Callable[[float], Awaitable[None]] = at_once,
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    create_timeout_s: float = 240.0,
) -> FleetService:
    """A fleet service on a Coder; by default it never really waits."""
    connection = Connection(url, Secret(token), sleep=sleep, limits=limits, transport=transport)
    kept = Ledger(ledger)
    backend = CoderBackend(
        CoderClient(connection),
        names or CoderNames(),
        records=AgentRecords(kept),
        sleep=sleep,
        timeouts=timeouts,
    )
    return FleetService(
        backend,
        kept,
        source="ai_controller",
        sleep=sleep,
        create_timeout_s=create_timeout_s,
    )


@dataclass
class Stage:
    """What a test that runs both ways needs to know."""

    fleet: FleetService
    folder: Path
    cassette: Cassette | None
    url: str
    token: str
    made: list[str] = field(default_factory=list)
    others: list[FleetService] = field(default_factory=list)

    @property
    def live(self) -> bool:
        return self.cassette is None

    def another(self, names: CoderNames | None = None) -> FleetService:
        """A second controller on another machine: the same Coder, a ledger of its own."""
        ledger = self.folder / f"other-{time.monotonic_ns()}.db"
        sleep = asyncio.sleep if self.live else at_once
        other = service(ledger, self.url, self.token, sleep=sleep, names=names)
        self.others.append(other)
        return other

    async def close(self) -> None:
        """Let go of every connection."""
        for fleet in (self.fleet, *self.others):
            await fleet.close()

    async def check(self) -> None:
        """Skip where a live Coder has other templates than the lab's."""
        names = [project.name for project in (await self.fleet.projects()).projects]
        if PROJECT not in names:
            pytest.skip(f"the live Coder has no template {PROJECT}")

    async def create(self, name: str, project: str, spec: str, report: Any = quiet) -> AgentCreated:
        """Create an agent and remember it: what a test did not make, it does not delete."""
        try:
            made = await self.fleet.create(name, project, "coder", spec, report)
        except FleetError as error:
            if "workspace_id" in error.details:
                self.made.append(name)
            raise
        self.made.append(name)
        return made

    async def clear(self) -> None:
        """Delete what the test made; some templates of the lab refuse that."""
        for name in self.made:
            with contextlib.suppress(FleetError):
                await self.fleet.delete(name)

    async def have(
        self, name: str, project: str = PROJECT, spec: str = "Keep the build green"
    ) -> None:
        """Make sure that an agent is there and answers; a recording always has it."""
        if not self.live:
            return
        try:
            await self.create(name, project, spec)
        except FleetError as error:
            if error.kind != "unavailable":
                raise
        for _ in range(100):
            shown = await self.fleet.show(name)
            if shown.warnings is UNKNOWN and shown.agent.status != "busy":
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"{name} never came up: {shown}")

    @asynccontextmanager
    async def ordinary(self, name: str) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
        """Somebody's workspace that is no agent; yields whether it is still there."""
        if not self.live:

            async def recorded() -> bool:
                return True

            yield recorded
            return
        client = CoderClient(Connection(self.url, Secret(self.token)))
        plain = next(one for one in await client.templates() if one.name == "plain")
        made = await client.create_workspace(name, plain, {})
        while (await client.build(made.latest_build.id)).job.active:
            await asyncio.sleep(0.2)

        async def there() -> bool:
            return (await client.workspace(name)).latest_build.id == made.latest_build.id

        yield there
        await client.delete_workspace(made.id)
        await client.close()

    async def stop_workspace(self, name: str) -> None:
        """Stop a workspace as a person would; in a recording somebody has."""
        if not self.live:
            return
        async with httpx.AsyncClient(base_url=f"{self.url}/api/v2", timeout=30) as http:
            http.headers["Coder-Session-Token"] = self.token
            found = (await http.get(f"/users/me/workspace/{name}")).json()
            path = f"/workspaces/{found['id']}/builds"
            build = (await http.post(path, json={"transition": "stop"})).json()
            while (await http.get(f"/workspacebuilds/{build['id']}")).json()["status"] != "stopped":
                await asyncio.sleep(0.2)

    async def until_status(self, name: str, *wanted: str) -> AgentDetail:
        """The agent once it has one of these statuses; looks again, as a controller would."""
        for _ in range(100):
            agent = (await self.fleet.show(name)).agent
            if agent.status in wanted:
                return agent
            await asyncio.sleep(0.3 if self.live else 0)
        raise AssertionError(f"{name} never was {wanted}: {agent}")
