"""Turns a Coder workspace into a snapshot of an agent; pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from fleet_agentpack.fleet.coder import models
from fleet_agentpack.fleet.coder.listing import ListedWorkspace
from fleet_agentpack.fleet.models import AgentSnapshot, ListedAgent, StatusReport
from fleet_agentpack.fleet.reconcile import episodes

AGENT_APPS = ("claude-code", "ccw", "agentapi")
KNOWN_STATES = ("working", "idle", "complete", "failure")


def listed_agent(row: ListedWorkspace, snapshot: Callable[[], AgentSnapshot]) -> ListedAgent:
    """An agent as far as a page of workspaces tells."""
    build, agent = row.latest_build, row.agent
    return ListedAgent(
        row.id,
        row.name,
        build.status == "running" and _connected(agent),
        (build.id, build.status, bytes(row.latest_app_status), bytes(agent.apps) if agent else b""),
        snapshot,
    )


def snapshot(
    workspace: models.Workspace, project: str, taken_at: datetime, app_slug: str | None
) -> AgentSnapshot:
    """An agent as far as its workspace tells."""
    build, agent = workspace.latest_build, workspace.agent()
    reports = _reports(workspace, agent_app(agent, app_slug)) if build.transition == "start" else []
    report = workspace.latest_app_status
    updated = [workspace.updated_at, build.updated_at, *([report.created_at] if report else [])]
    return AgentSnapshot(
        workspace_id=workspace.id,
        name=workspace.name,
        project=project,
        created_at=workspace.created_at,
        updated_at=max(updated),
        taken_at=taken_at,
        build=build.id,
        alive=build.status == "running",
        online=build.status == "running" and _connected(agent),
        state=_state(build, agent),
        handle=workspace,
        episodes=episodes(reports),
        reported_at=reports[-1].at if reports else None,
        last_report=_report(report) if report else None,
    )


def agent_app(agent: models.WorkspaceAgent | None, slug: str | None) -> models.App | None:
    """The app behind which AgentAPI runs: configured, usual, or the only one that reports."""
    apps = (agent.apps if agent else None) or []
    for wanted in [slug] if slug else AGENT_APPS:
        for app in apps:
            if app.slug == wanted:
                return app
    reporting = [app for app in apps if app.statuses]
    return reporting[0] if not slug and len(reporting) == 1 else None


def _reports(workspace: models.Workspace, app: models.App | None) -> list[StatusReport]:
    """What the app reported in this build, oldest first.

    Either of Coder's `latest_app_status` and the app's own list can be ahead of the other.
    """
    rows = {row.id: row for row in (app.statuses if app else None) or []}
    latest, since = workspace.latest_app_status, workspace.latest_build.created_at
    if latest and app and latest.app_id == app.id and latest.created_at > since:
        rows.setdefault(latest.id, latest)
    return [_report(row) for row in sorted(rows.values(), key=lambda row: row.created_at)]


def _report(row: models.AppStatus) -> StatusReport:
    state = row.state if row.state in KNOWN_STATES else "idle"
    return StatusReport(row.id, state, row.message, row.created_at)


def _connected(agent: models.AgentState | None) -> bool:
    return agent is not None and agent.connected


def _state(build: models.Build, agent: models.WorkspaceAgent | None) -> str:
    if build.status != "running" or _connected(agent):
        return build.status or "in an unknown state"
    return f"running, but its agent is {agent.status or 'unknown'}" if agent else "without an agent"
