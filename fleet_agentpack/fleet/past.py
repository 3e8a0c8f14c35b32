"""What the ledger still has of an agent, also when the agent is gone."""

from __future__ import annotations

from datetime import datetime

from fleet_agentpack.fleet import results
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.models import OUTCOME_SHOWN, Task
from fleet_agentpack.fleet.records import AgentRecords

MOST_TASKS = 100_000


def address_of(workspace_id: str) -> str:
    """The resource that has an agent's whole history."""
    return f"fleet://history/{workspace_id}"


def past_of(
    ledger: Ledger, records: AgentRecords, workspace_id: str, now: datetime
) -> results.Past:
    """Everything that the ledger has of an agent. Raises 404 when it has nothing, or no longer."""
    deleted_at = records.deleted_at(workspace_id)
    tasks, total = ledger.page(workspace_id, 0, MOST_TASKS)
    if not tasks or (deleted_at and records.is_long_ago(deleted_at, now)):
        raise FleetError.not_found(
            f"There is no history of '{workspace_id[:80]}', or no longer.",
            workspace_id=workspace_id[:80],
        )
    rows = [results.describe(results.PastTask, task, result=task.outcome) for task in tasks]
    told = results.moment(deleted_at) if deleted_at else None
    return results.Past(workspace_id, tasks[0].agent_name, told, rows, total)


def where_the_rest_is(workspace_id: str, tasks: list[Task]) -> tuple[str, ...]:
    """A warning if the summaries of these tasks do not hold their whole results."""
    if any(len(task.outcome or "") > OUTCOME_SHOWN for task in tasks):
        return (f"Long results are cut; {address_of(workspace_id)} has them whole.",)
    return ()
