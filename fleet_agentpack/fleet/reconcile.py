"""Matches the ledger's tasks with what agents report about themselves; pure, writes nothing.

A report has a state (`working`, `idle`, `complete`, `failure`); a stretch of work from `working` to
its end is an episode. The clocks of two machines differ, so our own tasks find their episode by
order, on the engine's clock: the first episode that opened after the newest report known when the
task was started. An episode without a task of ours is a task that somebody else started.

Not every stretch of work has a reported end. One is over, too, when work is reported again after
another task was started or after a stop, and when the agent itself is still and has not reported
anything for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from fleet_agentpack.fleet.models import AgentSnapshot, Episode, StatusReport, Task, TaskStatus

# A claim that was neither confirmed nor released within this time belongs to a process that died.
CLAIM_S = 60.0
# A program whose screen is still for longer than this, and that reports nothing, is not working.
QUIET_S = 30.0
LATE_S = 60.0  # from the end of a task to the last report of its work
REBUILT = "The workspace was stopped or rebuilt before the task ended."
UNCONFIRMED = "The agent never confirmed the task."
_ENDINGS: dict[str, Literal["completed", "failed"]] = {"complete": "completed", "failure": "failed"}


def episodes(
    reports: Iterable[StatusReport], borders: Sequence[datetime] = ()
) -> tuple[Episode, ...]:
    """The stretches of work in reports given oldest first; none goes on beyond a border."""
    found: list[Episode] = []
    newest: datetime | None = None
    for report in reports:
        last = found[-1] if found else None
        if report.state == "working":
            crossed = newest and any(newest <= border < report.at for border in borders)
            if last and last.ended is None and not crossed:
                found[-1] = replace(last, progress=report.message or last.progress)
            else:
                if last and last.ended is None:
                    found[-1] = replace(last, ended="idle", closed_at=newest)
                found.append(Episode(report.id, report.at, report.message, report.message))
        elif last and (last.ended is None or (last.ended == "idle" and report.state in _ENDINGS)):
            # After `idle`: the pause was noticed before the agent reported.
            found[-1] = _closed(last, report)
        elif report.state in _ENDINGS:
            alone = Episode(report.id, report.at, report.message, opening_seen=False)
            found.append(_closed(alone, report))
        newest = report.at
    return tuple(found)


def _closed(episode: Episode, report: StatusReport) -> Episode:
    ended = _ENDINGS.get(report.state)
    outcome = report.message if ended else None
    return replace(episode, ended=ended or "idle", closed_at=report.at, outcome=outcome)


def reconcile(tasks: Sequence[Task], agent: AgentSnapshot) -> list[Task]:
    """The tasks to add or change so that the ledger agrees with a snapshot of an agent."""
    kept = {task.id: task for task in tasks}
    known = {task.episode or task.id: task for task in tasks}
    followed: set[str] = set()
    floor: datetime | None = None
    for episode in _worked(tasks, agent):
        task = known.get(episode.key) or _waiting(kept.values(), episode, agent, floor)
        if task is None:
            if episode.opening_seen:
                kept[episode.key] = _follow(_foreign(episode, agent), episode, agent)
            continue
        floor = max(floor, task.created_at) if floor else task.created_at
        followed.add(task.id)
        kept[task.id] = _follow(task, episode, agent)
    for task in tasks:
        if task.open and task.id not in followed:
            kept[task.id] = _unreported(task, agent)
    before = {task.id: task for task in tasks}
    return [task for task in kept.values() if before.get(task.id) != task]


def _worked(tasks: Sequence[Task], agent: AgentSnapshot) -> Sequence[Episode]:
    """The agent's stretches of work, as far as its reports and our own tasks tell them apart."""
    if not agent.reports:
        return agent.episodes
    times = (at for task in tasks for at in (task.reported_before, task.reported_until))
    found = episodes(agent.reports, [at for at in times if at])
    if found and found[-1].ended is None and _is_quiet(agent):
        return (*found[:-1], replace(found[-1], ended="idle", closed_at=agent.reported_at))
    return found


def _is_quiet(agent: AgentSnapshot) -> bool:
    """Whether the agent's program is still, and nothing was reported for a while."""
    if agent.activity != "stable" or agent.heard_at is None or agent.reported_at is None:
        return False
    return agent.heard_at - agent.reported_at >= timedelta(seconds=QUIET_S)


def _waiting(
    tasks: Iterable[Task], episode: Episode, agent: AgentSnapshot, floor: datetime | None
) -> Task | None:
    """The task started last among those that this episode can belong to."""
    candidates = [
        task
        for task in tasks
        if task.episode is None
        and task.build == agent.build
        and (floor is None or task.created_at > floor)
        and (task.reported_before is None or task.reported_before < episode.opened_at)
        and not _is_long_over(task, episode)
    ]
    return max(candidates, key=lambda task: task.created_at, default=None)


def _is_long_over(task: Task, episode: Episode) -> bool:
    until = task.reported_until
    late = timedelta(seconds=LATE_S)
    return not task.open and until is not None and episode.opened_at > until + late


def _foreign(episode: Episode, agent: AgentSnapshot) -> Task:
    return Task(
        id=episode.key,
        workspace_id=agent.workspace_id,
        agent_name=agent.name,
        description=episode.text,
        status="running",
        source="agent",
        created_at=episode.opened_at,
        build=agent.build,
    )


def _follow(task: Task, episode: Episode, agent: AgentSnapshot) -> Task:
    """The task with the state of its episode; a task that was stopped stays stopped."""
    attached = replace(task, episode=episode.key)
    if task.status == "stopped":
        return attached
    if task.open:
        attached = replace(attached, progress=episode.progress or None)
    if task.id == episode.key:
        attached = replace(attached, description=episode.text or episode.progress)
    started = replace(attached, started_at=task.started_at or episode.opened_at)
    if episode.ended is None:
        return replace(started, status="running") if task.open else attached
    status: TaskStatus = "failed" if episode.ended == "failed" else "completed"
    if task.stop_requested and episode.ended == "idle":
        status = "stopped"
    if task.reported_until is not None and episode.ended == "idle":
        return attached  # it was over before that was reported
    ended = started.ended(status, episode.closed_at or episode.opened_at, episode.outcome or None)
    is_silent = episode.ended == "idle" and task.open and _is_quiet(agent)
    until = agent.clock if is_silent else task.reported_until
    return replace(ended, cost_usd=episode.cost_usd, reported_until=until)


def _unreported(task: Task, agent: AgentSnapshot) -> Task:
    """An open task that the agent did not report on."""
    began = task.started_at or task.created_at
    if began >= agent.taken_at:  # started after the snapshot, which cannot know it
        return task
    if task.build != agent.build or not agent.alive:
        return _cut_off(task, agent)
    if task.status == "pending":
        in_doubt = task.started_at is not None
        expired = agent.taken_at - task.created_at > timedelta(seconds=CLAIM_S)
        if not (in_doubt or expired) or agent.activity is None:
            return task
        if agent.activity == "running":
            return replace(task, status="running", started_at=task.created_at)
        return task.ended("failed", agent.taken_at, UNCONFIRMED)
    if task.episode is None and agent.activity == "stable":
        # An agent that has accepted a message is `running` at once: `stable` means that it is done.
        return replace(task.ended(_completed(task), agent.taken_at), reported_until=agent.clock)
    return task


def _cut_off(task: Task, agent: AgentSnapshot) -> Task:
    """A task whose build is gone, ended by the last report that outlived the build, if any."""
    report = agent.last_report
    if (
        report is None
        or report.state == "working"
        or (task.reported_before is not None and report.at <= task.reported_before)
    ):
        return task.ended("failed", agent.taken_at, REBUILT)
    status = "failed" if report.state == "failure" else _completed(task)
    return task.ended(status, report.at, report.message or None)


def _completed(task: Task) -> TaskStatus:
    """How a task ended that ended well: stopped, if that was asked for."""
    return "stopped" if task.stop_requested else "completed"
