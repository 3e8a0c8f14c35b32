"""How agents and the refusals about them are put; pure."""

from __future__ import annotations

from datetime import datetime

from fleet_agentpack.fleet import results
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.models import NEEDS_INPUT, AgentSnapshot, ListedAgent, Task, shorten
from fleet_agentpack.fleet.reconcile import CLAIM_S
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.results import UNKNOWN

LAST_OUTCOME = 300  # characters of the last outcome in an agent's metadata


def summary_of(agent: ListedAgent, task: Task | None, attention: str) -> results.AgentSummary:
    """An agent in the list of all agents."""
    kind = results.WaitingAgent if attention == NEEDS_INPUT else results.AgentSummary
    if task is None or not agent.online:
        return kind(agent.name, "idle" if agent.online else "offline", None)
    return results.AgentSummary(agent.name, "busy", task.activity)


def detail_of(
    agent: AgentSnapshot,
    status: results.AgentStatus,
    task: Task | None,
    last: Task | None = None,
    spent: float | None = None,
) -> results.AgentDetail:
    """An agent in full: what its engine says, and what the ledger adds."""
    current = task.activity if task and status == "busy" else None
    metadata = {
        **_known(agent, status, last, spent),
        **agent.metadata,
        "fleet_mcp_agent_spec": agent.spec,
    }
    return results.describe(
        results.AgentDetail, agent, status=status, current_task=current, metadata=metadata
    )


def _known(
    agent: AgentSnapshot, status: results.AgentStatus, last: Task | None, spent: float | None
) -> dict[str, str]:
    """What is known without the agent's own metadata."""
    known = {}
    if last is not None and not last.open:
        known["fleet_mcp_last_outcome"] = outcome_of(last)
    if spent is not None:
        known["fleet_mcp_cost_usd"] = f"{spent:.4f}"
    if agent.attention and status != "busy":
        known["fleet_mcp_attention"] = agent.attention
    return known


def attention_of(agent: AgentSnapshot) -> str:
    """Why a person should look at an agent, by its engine's or its own word."""
    return agent.attention or agent.metadata.get("fleet_mcp_attention", "")


def outcome_of(task: Task) -> str:
    """How a task ended, on one line."""
    told = f": {shorten(task.outcome, LAST_OUTCOME)}" if task.outcome else ""
    return f"{task.status}{told}"


def overview_of(
    agent: ListedAgent,
    task: Task | None,
    last: Task | None,
    spent: float | None,
    attention: str,
    now: datetime,
) -> results.OverviewRow:
    """An agent as a person at a terminal wants to see it."""
    status = status_of(agent.online, task is not None)
    is_busy = task is not None and status == "busy"
    began = task and (task.started_at or task.created_at)
    return results.OverviewRow(
        agent.name,
        status,
        _doing(task) if task and is_busy else "",
        max(0, int((now - began).total_seconds())) if began and is_busy else None,
        spent,
        outcome_of(last) if last and not last.open else "",
        "" if is_busy else attention,
    )


def _doing(task: Task) -> str:
    return f"pending: {task.activity}" if task.status == "pending" else task.activity


def row_of(task: Task, *, is_shared: bool) -> results.TaskSummary:
    """A task in a history; marked if it is over and the agent's own reports do not have it."""
    only_here = is_shared and task.episode is None and not task.open
    return results.describe(
        results.TaskSummary,
        task,
        cost_usd=UNKNOWN if task.cost_usd is None else task.cost_usd,
        known_only_here=True if only_here else UNKNOWN,
    )


def status_of(online: bool, working: bool) -> results.AgentStatus:
    """The contract's three states."""
    return "offline" if not online else "busy" if working else "idle"


def busy_with(agent: AgentSnapshot, task: Task) -> FleetError:
    """409 for an agent that has a task."""
    if task.id == agent.queued:
        return FleetError.conflict(
            f"Agent '{agent.name}' has a task that waits for its turn: {task.summary}.",
            Action("stop_agent_task", {"agent_name": agent.name}, "To free it, call {}.", "{}"),
            agent_name=agent.name,
            task_id=task.id,
        )
    if task.status == "pending":
        return FleetError.conflict(
            f"Agent '{agent.name}' is being given a task: {task.summary}. If the sender died, the"
            f" agent is free again within {CLAIM_S:g} s.",
            Action("stop_agent_task", {"agent_name": agent.name}, "To free it now, call {}.", "{}"),
            agent_name=agent.name,
            task_id=task.id,
        )
    return FleetError.busy(agent.name, task.summary, task_id=task.id)


def online(agent: AgentSnapshot) -> AgentSnapshot:
    """The agent, if it is online. Raises 400."""
    if not agent.online:
        raise FleetError.bad_request(
            f"Agent '{agent.name}' is offline (its workspace is {agent.state}). Start its workspace"
            " again, or delete the agent and create a new one.",
            agent_name=agent.name,
            workspace_state=agent.state,
        )
    return agent
