"""Lines the ledger's tasks up with what agents report of themselves; pure, decides and writes
nothing.

A report is a word of the agent (`working`, `idle`, `complete`, `failure`); a stretch of work from
`working` to its end is an episode. Our own tasks find their episode by order, on the engine's own
clock, since clocks of two machines differ: the first episode that opened after the newest report
known when the task was started. An episode that is nobody's is a task that others started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from fleet_agentpack.fleet.models import Episode, Report, Sighting, Task, TaskStatus

# A start that was neither confirmed nor taken back within this time belongs to a process that died.
CLAIM_S = 60.0
REBUILT = "The workspace was stopped or rebuilt before the task ended."
UNCONFIRMED = "The agent never confirmed the task."


def episodes(reports: Iterable[Report]) -> tuple[Episode, ...]:
    """The stretches of work in reports given oldest first."""
    found: list[Episode] = []
    for report in reports:
        last = found[-1] if found else None
        working = last if last and last.ended is None else None
        if report.state == "working":
            if working:
                found[-1] = replace(working, text=report.message or working.text)
            else:
                found.append(Episode(report.id, report.at, report.message))
        elif working:
            found[-1] = _closed(working, report)
        elif report.state in ("complete", "failure"):
            if last and last.ended == "idle":  # the reporter saw the pause before the agent spoke
                found[-1] = _closed(last, report)
            else:
                alone = Episode(report.id, report.at, report.message, opening_seen=False)
                found.append(_closed(alone, report))
    return tuple(found)


def _closed(episode: Episode, report: Report) -> Episode:
    if report.state == "complete":
        return replace(episode, ended="completed", closed_at=report.at, outcome=report.message)
    if report.state == "failure":
        return replace(episode, ended="failed", closed_at=report.at, outcome=report.message)
    return replace(episode, ended="idle", closed_at=report.at)


def reconcile(tasks: Sequence[Task], seen: Sighting) -> list[Task]:
    """The tasks that must be added or changed so that the ledger says what was seen."""
    kept = {task.id: task for task in tasks}
    known = {task.episode or task.id: task for task in tasks}
    followed: set[str] = set()
    floor: datetime | None = None
    for episode in seen.episodes:
        task = known.get(episode.key) or _waiting(kept.values(), episode, seen, floor)
        if task is None:
            if episode.opening_seen:
                kept[episode.key] = _follow(_foreign(episode, seen), episode)
            continue
        floor = max(floor, task.created_at) if floor else task.created_at
        followed.add(task.id)
        kept[task.id] = _follow(task, episode)
    for task in tasks:
        if task.open and task.id not in followed:
            kept[task.id] = _unreported(task, seen)
    before = {task.id: task for task in tasks}
    return [task for task in kept.values() if before.get(task.id) != task]


def _waiting(
    tasks: Iterable[Task], episode: Episode, seen: Sighting, floor: datetime | None
) -> Task | None:
    """The task that was started last of those this episode can be the work of."""
    candidates = [
        task
        for task in tasks
        if task.episode is None
        and task.build == seen.build
        and (floor is None or task.created_at > floor)
        and (task.reported_before is None or task.reported_before < episode.opened_at)
    ]
    return max(candidates, key=lambda task: task.created_at, default=None)


def _foreign(episode: Episode, seen: Sighting) -> Task:
    return Task(
        id=episode.key,
        workspace_id=seen.workspace_id,
        agent_name=seen.name,
        description=episode.text,
        status="running",
        source="agent",
        created_at=episode.opened_at,
        started_at=episode.opened_at,
        build=seen.build,
        episode=episode.key,
    )


def _follow(task: Task, episode: Episode) -> Task:
    """The task as its episode has it; a task that was stopped stays stopped."""
    attached = replace(task, episode=episode.key)
    if task.id == episode.key:
        attached = replace(attached, description=episode.text)
    if task.status == "stopped":
        return attached
    if episode.ended is None:
        if not task.open:
            return attached
        return replace(attached, status="running", started_at=task.started_at or episode.opened_at)
    status: TaskStatus = "failed" if episode.ended == "failed" else "completed"
    if task.stop_requested and episode.ended == "idle":
        status = "stopped"
    started = task.started_at or episode.opened_at
    return replace(
        attached,
        status=status,
        started_at=started,
        completed_at=max(started, episode.closed_at or started),
        outcome=episode.outcome or None,
        cost_usd=episode.cost_usd,
    )


def _unreported(task: Task, seen: Sighting) -> Task:
    """An open task of which the agent says nothing."""
    began = task.started_at or task.created_at
    if began >= seen.looked_at:  # started after this look: the look knows nothing of it
        return task
    if task.build != seen.build or not seen.alive:
        return _cut_off(task, seen)
    if task.status == "pending":
        in_doubt = task.started_at is not None
        expired = seen.looked_at - task.created_at > timedelta(seconds=CLAIM_S)
        if not (in_doubt or expired) or seen.activity is None:
            return task
        if seen.activity == "running":
            return replace(task, status="running", started_at=task.created_at)
        return _ended(task, "failed", seen.looked_at, UNCONFIRMED)
    if task.episode is None and seen.activity == "stable":
        # An agent that has accepted a message is `running` at once: stable means it is done.
        return _ended(task, "completed", seen.looked_at, None)
    return task


def _cut_off(task: Task, seen: Sighting) -> Task:
    """A task whose build is gone, with the last word that outlived it, if there is one."""
    word = seen.last_word
    spoke = word and (task.reported_before is None or word.at > task.reported_before)
    if not word or not spoke or word.state == "working":
        return _ended(task, "failed", seen.looked_at, REBUILT)
    status: TaskStatus = "failed" if word.state == "failure" else "completed"
    return _ended(task, status, word.at, word.message or None)


def _ended(task: Task, status: TaskStatus, at: datetime, outcome: str | None) -> Task:
    return replace(
        task,
        status="stopped" if task.stop_requested and status == "completed" else status,
        started_at=task.started_at or task.created_at,
        completed_at=max(at, task.started_at or at),
        outcome=outcome,
    )
