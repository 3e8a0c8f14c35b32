"""The nine tools of seed 003."""

from typing import TYPE_CHECKING, Annotated, Any

from fastmcp.dependencies import Depends
from pydantic import Field

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.call import Call, CurrentCall
from fleet_agentpack.wire.provider import DESTROYS_REMOTE, READS_REMOTE, WRITES_REMOTE, DomainTools

if TYPE_CHECKING:
    from fleet_agentpack.fleet.service import FleetService


def open_service(settings: Settings) -> "FleetService":
    """The fleet as configured; tasks started through it were started by an AI controller."""
    from fleet_agentpack.fleet.engine import open_fleet

    return open_fleet(settings, source="ai_controller")


mcp = DomainTools(
    "fleet",
    server_name="fleet-mcp",
    instructions="fleet: run coding agents in workspaces of their own. list_agents, create_agent,"
    " start_agent_task; show_agent tells how the work goes.",
    error=FleetError,
    open_service=open_service,
)


@mcp.tool(annotations=WRITES_REMOTE)
async def create_agent(
    *,
    fleet: "FleetService" = Depends(mcp.service),
    call: Call = CurrentCall(),
    name: Annotated[str, Field(description="1-20 letters, digits, single hyphens")],
    project: Annotated[str, Field(description="From list_agent_projects")],
    role: Annotated[str, Field(description="From list_agent_roles")] = "coder",
    spec: Annotated[str, Field(description="Objective, context and deliverables")],
) -> Any:
    """Create a coding agent in its own workspace and wait until it is ready. Names come from list_agent_projects and list_agent_roles; give it work with start_agent_task."""  # noqa: E501
    return await fleet.create(name, project, role, spec, call.report)


@mcp.tool(annotations=READS_REMOTE)
async def list_agents(
    fleet: "FleetService" = Depends(mcp.service),
) -> Any:
    """List all agents with status (busy, idle, offline) and current task; call first to get names. Then show_agent for details or start_agent_task on an idle one."""  # noqa: E501
    return await fleet.agents()


@mcp.tool(annotations=READS_REMOTE)
async def show_agent(*, fleet: "FleetService" = Depends(mcp.service), agent_name: str) -> Any:
    """Show one agent in detail (status, role, spec, current task, pull request), also to watch a task. When it is idle again, show_agent_task_history tells how the task ended."""  # noqa: E501
    return await fleet.show(agent_name)


@mcp.tool(annotations=READS_REMOTE)
async def show_agent_task_history(
    *,
    fleet: "FleetService" = Depends(mcp.service),
    agent_name: str,
    page: int = 1,
    page_size: Annotated[int, Field(description="At most 100")] = 20,
) -> Any:
    """Show an agent's tasks, newest first, each with its outcome; use it once the agent is idle. Follow up with start_agent_task."""  # noqa: E501
    return await fleet.history(agent_name, page, page_size)


@mcp.tool(annotations=DESTROYS_REMOTE)
async def delete_agent(
    *, fleet: "FleetService" = Depends(mcp.service), call: Call = CurrentCall(), agent_name: str
) -> Any:
    """Delete an agent that is no longer needed and destroy its workspace, even while it is busy. Read the message: it names what was kept."""  # noqa: E501
    return await fleet.delete(agent_name, call.report)


@mcp.tool(annotations=WRITES_REMOTE)
async def start_agent_task(
    *, fleet: "FleetService" = Depends(mcp.service), agent_name: str, task_description: str
) -> Any:
    """Give an idle agent a task; it works on after this call returns. Watch it with show_agent, interrupt it with stop_agent_task."""  # noqa: E501
    return await fleet.start(agent_name, task_description)


@mcp.tool(annotations=DESTROYS_REMOTE)
async def stop_agent_task(*, fleet: "FleetService" = Depends(mcp.service), agent_name: str) -> Any:
    """Interrupt the task that a busy agent is working on, to correct or replace it. Then start_agent_task gives it another."""  # noqa: E501
    return await fleet.stop(agent_name)


@mcp.tool(annotations=READS_REMOTE)
async def list_agent_roles(*, fleet: "FleetService" = Depends(mcp.service), project: str) -> Any:
    """List the roles that agents of a project can have, with what each does. Pass one to create_agent."""  # noqa: E501
    return await fleet.roles(project)


@mcp.tool(annotations=READS_REMOTE)
async def list_agent_projects(
    fleet: "FleetService" = Depends(mcp.service),
) -> Any:
    """List the projects that agents can be created for. Then list_agent_roles, or create_agent."""
    return await fleet.projects()
