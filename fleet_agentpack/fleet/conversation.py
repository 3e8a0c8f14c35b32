"""What a conversation with an agent tells: who gave a task, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from fleet_agentpack.fleet.backend import Tasks
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.models import AgentSnapshot, Message, Task

MESSAGE_LAG_S = 10.0  # from a message to the first report of the work it started


async def said_by(backend: Tasks, agent: AgentSnapshot) -> tuple[list[Message], tuple[str, ...]]:
    """What was said, oldest first; a warning if the agent cannot be asked."""
    if not agent.online:
        return [], (f"Agent '{agent.name}' is offline: what it said cannot be read.",)
    try:
        return await backend.messages(agent), ()
    except FleetError as error:
        return [], (str(error),)


async def was_addressed(backend: Tasks, agent: AgentSnapshot) -> bool:
    """Whether anybody has said anything to an agent yet."""
    said, _ = await said_by(backend, agent)
    return any(message.who == "user" for message in said)


def given_by_people(tasks: Sequence[Task], said: Sequence[Message]) -> list[Task]:
    """Those of the tasks that somebody typed, so labelled."""
    asked = [message.at for message in said if message.who == "user" and message.at]
    lag = timedelta(seconds=MESSAGE_LAG_S)
    return [
        replace(task, source="human")
        for task in tasks
        if task.was_found
        and task.source == "agent"
        and any(at <= task.created_at <= at + lag for at in asked)
    ]


def result_of(task: Task | None, said: Sequence[Message]) -> str | None:
    """The result of the last task: what the agent said after it was asked, else its report."""
    if task is None or task.open:
        return None
    asked = max((n for n, message in enumerate(said) if message.who == "user"), default=None)
    answer = [] if asked is None else [one.text for one in said[asked + 1 :] if one.text]
    return answer[-1] if answer else task.outcome
