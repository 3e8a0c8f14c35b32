"""Turns a Coder workspace into a snapshot of an agent; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime

from fleet_agentpack.fleet.coder import models
from fleet_agentpack.fleet.coder.listing import ListedWorkspace
from fleet_agentpack.fleet.models import NEEDS_INPUT, AgentSnapshot, ListedAgent, StatusReport

AGENT_APPS = ("claude-code", "ccw", "agentapi")
PULL_REQUEST = re.compile(r"^https?://.+/(?:pull|pull-requests|merge_requests)/\d+")
START_FAILED = "start_error: the workspace's startup script failed"
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
    newest = reports[-1] if reports else None
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
        metadata=_told_by(reports),
        reports=tuple(reports),
        reported_at=newest.at if newest else None,
        heard_at=agent.last_connected_at if agent else None,
        built_at=build.created_at,
        last_report=_report(report) if report else None,
        attention=_attention(agent, newest),
        is_shared=True,
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
    return StatusReport(
        row.id, state, row.message, row.created_at, row.uri, row.needs_user_attention
    )


def _told_by(reports: Sequence[StatusReport]) -> dict[str, str]:
    """What the reports' links say; the agent's own metadata, where it has any, says more."""
    links = [report.uri for report in reports if report.uri]
    requests = [link for link in links if PULL_REQUEST.search(link)]
    return {
        **({"fleet_mcp_uri": links[-1]} if links else {}),
        **({"fleet_mcp_pull_request_url": requests[-1]} if requests else {}),
    }


def _attention(agent: models.WorkspaceAgent | None, newest: StatusReport | None) -> str:
    """Why a person should look at the agent; empty if there is no reason."""
    if agent and agent.status == "connected" and agent.lifecycle_state == models.START_ERROR:
        return START_FAILED
    return NEEDS_INPUT if newest and asks(newest) else ""


def asks(report: StatusReport) -> bool:
    """Whether an agent waits for an answer: it says so, or its last message is a question."""
    is_question = report.message.rstrip().endswith("?") and report.state in ("idle", "complete")
    return report.needs_input or is_question


def _connected(agent: models.AgentState | None) -> bool:
    return agent is not None and agent.connected


def _state(build: models.Build, agent: models.WorkspaceAgent | None) -> str:
    if build.status != "running" or _connected(agent):
        return build.status or "in an unknown state"
    if agent is None:
        return "without an agent"
    if agent.status == "connected" and agent.lifecycle_state == models.START_ERROR:
        return "running, but its startup script failed"
    return f"running, but its agent is {agent.status or 'unknown'}"
