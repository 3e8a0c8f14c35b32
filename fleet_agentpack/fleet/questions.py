"""What a person is asked before an agent is deleted: whether work would be lost with it."""

from __future__ import annotations

from collections.abc import Sequence

from fleet_agentpack.fleet.models import AgentSnapshot, Task
from fleet_agentpack.kit.approval import Group, Question, digest_of


def about_deletion(
    agent: AgentSnapshot, task: Task | None, unsaved: Sequence[str] | None
) -> Question:
    """The question whether to delete an agent; `unsaved` is None where nobody can tell."""
    told = [f"Delete agent {agent.name} of project {agent.project} and its workspace."]
    if task:
        told.append(f"It is working on a task: {task.summary}.")
    if unsaved is None:
        told.append("Whether all its work was committed and pushed cannot be seen from here.")
    groups = [Group("Agent", [agent.name])]
    if unsaved:
        groups.append(Group("Changes that are not committed", unsaved))
    # A working agent changes files all the time: that it works is what was agreed to.
    state = [task.id] if task else unsaved
    return Question(
        " ".join(told),
        groups,
        "Delete this agent",
        bool(task or unsaved is None or unsaved),
        digest_of(agent.workspace_id, state),
    )
