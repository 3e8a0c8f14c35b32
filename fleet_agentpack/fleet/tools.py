"""The fleet's tools: agents, their tasks and work, the projects and roles to choose from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from fastmcp.dependencies import Depends
from pydantic import Field

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.approval import Approval, CurrentApproval, Unanswered
from fleet_agentpack.wire.call import Call, CurrentCall
from fleet_agentpack.wire.provider import (
    DESTROYS_REMOTE,
    EXTRA,
    READS_REMOTE,
    WRITES_REMOTE,
    DomainTools,
)
from fleet_agentpack.wire.resources import bounded_text, told

if TYPE_CHECKING:
    from fleet_agentpack.fleet import results
    from fleet_agentpack.fleet.service import FleetService


def open_service(settings: Settings) -> "FleetService":
    """The fleet as configured; tasks started through it were started by an AI controller."""
    from fleet_agentpack.fleet.engine import open_fleet

    return open_fleet(settings, source="ai_controller")


mcp = DomainTools(
    "fleet",
    server_name="fleet-mcp",
    instructions="fleet: run coding agents in workspaces of their own."
    " [Call {list_agents, create_agent, start_agent_task}.] [{show_agent} shows progress.]",
    error=FleetError,
    open_service=open_service,
)


@mcp.tool(annotations=WRITES_REMOTE)
async def create_agent(
    *,
    fleet: "FleetService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    name: Annotated[str, Field(description="1-20 letters, digits, single hyphens")],
    project: Annotated[str, Field(description="From {list_agent_projects}")],
    role: Annotated[str, Field(description="From {list_agent_roles}")] = "coder",
    spec: Annotated[str, Field(description="Objective, context and deliverables")],
) -> "results.AgentCreated":
    """Create a coding agent in its own workspace and wait until it is ready.

    [Names are in {list_agent_projects and list_agent_roles}[; {start_agent_task} gives it work].]
    """
    return await fleet.create(name, project, role, spec, call.report)


@mcp.tool(annotations=READS_REMOTE)
async def list_agents(fleet: "FleetService" = Depends(mcp.service)) -> "results.AgentList":
    """List all agents with status (busy, idle, offline) and current task; call it first to get
    names. [Then call {show_agent} for details[, or {start_agent_task} on an idle agent].]
    """
    return await fleet.agents()


@mcp.tool(annotations=READS_REMOTE)
async def show_agent(
    *, fleet: "FleetService" = Depends(mcp.service), agent_name: str
) -> "results.AgentShown":
    """Show one agent in detail (status, role, spec, current task, pull request), also to watch a
    task. [Once it is idle, {show_agent_task_history} tells how the task ended.]
    """
    return await fleet.show(agent_name)


@mcp.tool(annotations=READS_REMOTE)
async def show_agent_task_history(
    *,
    fleet: "FleetService" = Depends(mcp.service),
    agent_name: str,
    page: int = 1,
    page_size: Annotated[int, Field(description="At most 100")] = 20,
) -> "results.TaskHistory":
    """Show an agent's tasks with their outcomes, newest first; call it once the agent is idle.

    [Follow up with {start_agent_task}.]
    """
    return await fleet.history(agent_name, page, page_size)


@mcp.tool(annotations=DESTROYS_REMOTE)
async def delete_agent(
    *,
    fleet: "FleetService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    approval: Approval = CurrentApproval(),
    agent_name: str,
) -> "results.AgentDeleted | Unanswered":
    """Delete an agent that is no longer needed and destroy its workspace, even while it is busy.

    The message says what was kept.
    """
    return await approval.carry_out(
        lambda: fleet.deletion(agent_name),
        lambda approved: fleet.delete(agent_name, call.report, approved),
    )


@mcp.tool(annotations=WRITES_REMOTE)
async def start_agent_task(
    *,
    fleet: "FleetService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    agent_name: str,
    task_description: str,
) -> "results.TaskChanged":
    """Give an idle agent a task; the agent keeps working after this call returns.

    [Watch it with {show_agent}[, interrupt it with {stop_agent_task}].]
    """
    return await fleet.start(agent_name, task_description, call.report)


@mcp.tool(annotations=DESTROYS_REMOTE)
async def stop_agent_task(
    *, fleet: "FleetService" = Depends(mcp.service), agent_name: str
) -> "results.TaskChanged":
    """Interrupt a busy agent's task, to correct or replace it.

    [Then give it another with {start_agent_task}.]
    """
    return await fleet.stop(agent_name)


@mcp.tool(annotations=READS_REMOTE)
async def list_agent_roles(
    *, fleet: "FleetService" = Depends(mcp.service), project: str
) -> "results.RoleList":
    """List the roles that a project's agents can have, with what each does.

    [Pass one to {create_agent}.]
    """
    return await fleet.roles(project)


@mcp.tool(annotations=READS_REMOTE)
async def list_agent_projects(
    fleet: "FleetService" = Depends(mcp.service),
) -> "results.ProjectList":
    """List the projects that agents can be created for.

    [Call {list_agent_roles or create_agent} next.]
    """
    return await fleet.projects()


@mcp.tool(annotations=READS_REMOTE, tags={EXTRA})
async def wait_for_agents(
    *,
    fleet: "FleetService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    agent_names: Annotated[list[str], Field(description="Default: all busy ones")] = [],  # noqa: B006
    any: bool = False,
    timeout_s: Annotated[int, Field(ge=1, le=240)] = 120,
) -> "results.AwaitedAgents":
    """Wait until agents, or any of them, are no longer busy. [Then call {show_agent_work}.]"""
    from fleet_agentpack.fleet.awaiting import wait_for

    return await wait_for(fleet, agent_names, call.report, any_one=any, timeout_s=timeout_s)


@mcp.tool(annotations=READS_REMOTE, tags={EXTRA})
async def show_agent_work(
    *, fleet: "FleetService" = Depends(mcp.service), agent_name: str
) -> "results.AgentWork":
    """Show what an agent has made: branch, diff, last messages, whole result."""
    return await fleet.work(agent_name)


@mcp.tool(annotations=DESTROYS_REMOTE, tags={EXTRA})
async def merge_agent_work(
    *,
    fleet: "FleetService" = Depends(mcp.service),
    approval: Approval = CurrentApproval(),
    agent_name: str,
    into: str | None = None,
    squash: bool = False,
    yes: Literal[True],  # noqa: ARG001 - checked before this is called
) -> "results.WorkMerged | Unanswered":
    """Merge an idle agent's work into a branch of the project, all of it or nothing.

    [Call {show_agent_work} first.]
    """
    return await approval.carry_out(
        lambda: fleet.finished.merging(agent_name, into, squash),
        lambda approved: fleet.finished.merge(agent_name, into, squash, approved),
    )


@mcp.collection("fleet://agents")
async def agents(fleet: "FleetService", _session: str | None) -> object:
    """Every agent with its status and its task; busy ones first where not all fit on a page."""
    return await fleet.agents()


@mcp.resource("fleet://agents/{name}", mime_type="application/json")
async def agent(name: str, fleet: "FleetService" = Depends(mcp.service)) -> str:
    """One agent in detail."""
    try:
        return bounded_text(await fleet.show(name), mcp.place_of("show_agent"))
    except FleetError as error:
        raise told(error) from error


@mcp.resource("fleet://agents/{name}/log", mime_type="application/json")
async def agent_log(name: str, fleet: "FleetService" = Depends(mcp.service)) -> str:
    """What an agent said and did."""
    try:
        return bounded_text(await fleet.transcript(name), mcp.place_of("log"))
    except FleetError as error:
        raise told(error) from error


@mcp.resource("fleet://agents/{name}/diff", mime_type="text/x-diff")
async def agent_diff(name: str, fleet: "FleetService" = Depends(mcp.service)) -> str:
    """What an agent has changed."""
    try:
        return (await fleet.work(name)).diff
    except FleetError as error:
        raise told(error) from error


@mcp.resource("fleet://agents/{name}/result", mime_type="text/markdown")
async def agent_result(name: str, fleet: "FleetService" = Depends(mcp.service)) -> str:
    """The whole result of an agent's last task."""
    try:
        return (await fleet.work(name)).result or ""
    except FleetError as error:
        raise told(error) from error


@mcp.resource("fleet://history/{workspace_id}", mime_type="application/json")
async def agent_past(workspace_id: str, fleet: "FleetService" = Depends(mcp.service)) -> str:
    """Every task of an agent with its whole result, also of an agent that is gone."""
    try:
        return bounded_text(await fleet.past(workspace_id), mcp.place_of("history"))
    except FleetError as error:
        raise told(error) from error


@mcp.resource("fleet://projects/{project}/roles/{role}", mime_type="application/json")
async def project_role(
    project: str, role: str, fleet: "FleetService" = Depends(mcp.service)
) -> str:
    """A role that an agent of a project can have."""
    try:
        return bounded_text(await fleet.role(project, role), mcp.place_of("list_agent_roles"))
    except FleetError as error:
        raise told(error) from error


async def what_agents_do(fleet: "FleetService", address: str) -> object:
    """Differs once the resource at an address of agents does."""
    name, _, part = address.removeprefix("fleet://agents").strip("/").partition("/")
    if not name:
        return await fleet.agents()
    if part == "log":
        return await fleet.transcript(name)
    return await fleet.work(name) if part else await fleet.show(name)


mcp.watched["fleet://agents"] = what_agents_do


@mcp.completes("fleet://agents/{name}", "name")
async def agent_names(fleet: "FleetService", _given: Mapping[str, str]) -> list[str]:
    """The agents' names."""
    return [row.name for row in (await fleet.agents()).agents]


@mcp.completes("fleet://projects/{project}/roles/{role}", "project")
async def project_names(fleet: "FleetService", _given: Mapping[str, str]) -> list[str]:
    """The projects' names."""
    return [row.name for row in (await fleet.projects()).projects]


@mcp.completes("fleet://projects/{project}/roles/{role}", "role")
async def role_names(fleet: "FleetService", given: Mapping[str, str]) -> list[str]:
    """The roles of the project that was given."""
    return [row.name for row in (await fleet.roles(given.get("project", ""))).roles]
