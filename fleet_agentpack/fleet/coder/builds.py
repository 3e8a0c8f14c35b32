"""Waits for Coder's builds: until an agent is ready, until a workspace is deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from fleet_agentpack.fleet.backend import Progress
from fleet_agentpack.fleet.coder import models
from fleet_agentpack.fleet.coder.client import CoderClient
from fleet_agentpack.fleet.coder.errors import CoderError, Conflict, Forbidden, Invalid, NotFound
from fleet_agentpack.fleet.errors import FleetError

LAST_LINES = 20
STARTING = ("", "created", "starting")


class BuildWatcher:
    """Polls builds; the caller sets the time limit."""

    def __init__(
        self, client: CoderClient, poll_s: float, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._client, self._poll_s, self._sleep = client, poll_s, sleep

    async def until_ready(self, workspace: models.Workspace, report: Progress) -> models.Workspace:
        """The workspace once its agent can take tasks. Raises 503 if build or agent fail."""
        build = await self._until_built(workspace.latest_build, report)
        if build.status != "running":
            raise await self._build_failed(workspace, build, "could not be built")
        while True:
            workspace = await self._client.workspace_by_id(workspace.id)
            agent = workspace.agent()
            if agent is None or agent.status in ("timeout", "disconnected"):
                state = agent.status if agent else "missing"
                raise FleetError.unavailable(
                    f"Workspace '{workspace.name}' was built, but its agent is {state}.",
                    workspace_id=workspace.id,
                    agent_status=state,
                )
            if agent.lifecycle_state == models.START_ERROR:
                raise await self._start_failed(workspace, agent)
            if agent.status == "connected" and agent.lifecycle_state not in STARTING:
                return workspace
            await self._sleep(self._poll_s)

    async def destroy(self, workspace: models.Workspace, report: Progress) -> None:
        """Delete a workspace, canceling an active build. Raises 503 if that fails."""
        with suppress(NotFound):  # somebody else deleted it first
            await self._destroy(workspace, report)

    async def _destroy(self, workspace: models.Workspace, report: Progress) -> None:
        cleared: set[str] = set()
        while True:
            report(0, None, f"Deleting workspace '{workspace.name}'")
            try:
                build = await self._until_built(await self._client.delete_workspace(workspace.id))
            except Conflict:
                if workspace.latest_build.id in cleared:  # another build has begun since
                    workspace = await self._client.workspace_by_id(workspace.id)
                build = await self._cleared(workspace.latest_build, report)
                cleared.add(build.id)
            if build.status == "deleted":
                return
            if build.transition == "delete":
                raise await self._build_failed(workspace, build, "could not be deleted")

    async def _cleared(self, build: models.Build, report: Progress) -> models.Build:
        """An active build once it has ended; canceled, unless it is a deletion itself."""
        if build.transition != "delete":
            report(0, None, "Canceling the active build")
            # One that is over, canceled already, or not ours to cancel, just runs to its end.
            with suppress(Invalid, Conflict, Forbidden):
                await self._client.cancel(build.id)
        return await self._until_built(build)

    async def _until_built(
        self, build: models.Build, report: Progress | None = None
    ) -> models.Build:
        """A build once it has ended; its log is reported as progress if so asked."""
        seen: int | None = None
        lines = 0
        while True:
            build = await self._client.build(build.id)
            if report and (build.job.active or build.job.status == "succeeded"):
                for row in await self._log(build.id, seen):
                    seen, lines = row.id, lines + 1
                    report(lines, None, row.text)
            if not build.job.active:
                return build
            await self._sleep(self._poll_s)

    async def _log(self, build_id: str, after: int | None) -> list[models.BuildLog]:
        """New lines of a build's log; none if it cannot be read, since it is only progress."""
        with suppress(CoderError):
            return await self._client.build_logs(build_id, after)
        return []

    async def _start_failed(
        self, workspace: models.Workspace, agent: models.WorkspaceAgent
    ) -> FleetError:
        log: list[models.BuildLog] = []
        with suppress(CoderError):
            log = await self._client.agent_logs(agent.id)
        return FleetError.unavailable(
            f"Workspace '{workspace.name}' was built, but its startup script failed.",
            workspace_id=workspace.id,
            agent_status=agent.lifecycle_state,
            log=[row.text for row in log[-LAST_LINES:]],
        )

    async def _build_failed(
        self, workspace: models.Workspace, build: models.Build, what: str
    ) -> FleetError:
        log = [row.text for row in await self._log(build.id, None)]
        reason = build.job.error or f"its build ended as {build.status or build.job.status}"
        return FleetError.unavailable(
            f"Workspace '{workspace.name}' {what}: {reason}",
            workspace_id=workspace.id,
            build_id=build.id,
            log=log[-LAST_LINES:],
        )
