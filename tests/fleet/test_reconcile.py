"""Lining tasks up with reports: by example, and by simulating agents that report late."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fleet_agentpack.fleet.models import AgentSnapshot, StatusReport, Task
from fleet_agentpack.fleet.reconcile import CLAIM_S, REBUILT, UNCONFIRMED, episodes, reconcile

START = datetime(2026, 1, 1, tzinfo=UTC)
THERE = timedelta(hours=-10)  # Coder's clock is far off ours, and nothing may depend on it


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def report(number: int, state: str, second: float, message: str = "") -> StatusReport:
    return StatusReport(f"report-{number}", state, message or state, at(second) + THERE)


def seen(reports: list[StatusReport], now: float, **more: object) -> AgentSnapshot:
    values = {
        "workspace_id": "ws",
        "name": "papi",
        "project": "setup",
        "created_at": START,
        "updated_at": START,
        "taken_at": at(now),
        "build": "build-1",
        "alive": True,
        "online": True,
        "state": "running",
        "handle": None,
        "reports": tuple(reports),
        "reported_at": reports[-1].at if reports else None,
        **more,
    }
    return AgentSnapshot(**values)  # type: ignore[arg-type]


def task(second: float, reports: list[StatusReport], **more: object) -> Task:
    values = {
        "id": f"task-{second}",
        "workspace_id": "ws",
        "agent_name": "papi",
        "description": "ours",
        "status": "running",
        "source": "ai_controller",
        "created_at": at(second),
        "started_at": at(second),
        "build": "build-1",
        "reported_before": reports[-1].at if reports else None,
        **more,
    }
    return Task(**values)  # type: ignore[arg-type]


def settle(tasks: list[Task], view: AgentSnapshot) -> list[Task]:
    changed = {task.id: task for task in reconcile(tasks, view)}
    kept = [changed.pop(task.id, task) for task in tasks]
    return [*kept, *changed.values()]


READY = [report(0, "idle", 0)]


def test_a_task_ends_as_the_agent_reports() -> None:
    for state, status in (("complete", "completed"), ("failure", "failed"), ("idle", "completed")):
        reports = [*READY, report(1, "working", 11), report(2, state, 20, "word")]
        (ended,) = settle([task(10, READY)], seen(reports, 30))
        assert (ended.status, ended.episode) == (status, "report-1")
        assert ended.outcome == (None if state == "idle" else "word")


def test_a_stopped_task_stays_stopped_whatever_is_reported_later() -> None:
    for state in ("complete", "failure", "idle"):
        reports = [*READY, report(1, "working", 11), report(2, state, 20, "word")]
        stopped = task(10, READY, status="stopped", completed_at=at(15), episode="report-1")
        assert settle([stopped], seen(reports, 30)) == [stopped]


def test_a_pause_after_a_stop_was_asked_for_is_a_stop() -> None:
    reports = [*READY, report(1, "working", 11), report(2, "idle", 12)]
    (ended,) = settle([task(10, READY, stop_requested=True)], seen(reports, 30))
    assert ended.status == "stopped"


def test_a_late_end_of_the_work_before_does_not_end_the_new_task() -> None:
    before = [*READY, report(1, "working", 5)]
    late = [*before, report(2, "complete", 9), report(3, "idle", 10)]
    first, second = settle([task(10, before)], seen(late, 30))
    assert (first.status, first.episode) == ("running", None)
    assert (second.id, second.source, second.status) == ("report-1", "agent", "completed")


def test_the_pause_after_an_end_opens_and_closes_nothing() -> None:
    reports = [*READY, report(1, "working", 1), report(2, "complete", 2), report(3, "idle", 3)]
    assert len(episodes(reports)) == 1
    assert episodes([*READY, report(1, "idle", 1)]) == ()


def test_an_end_that_is_told_after_the_pause_counts() -> None:
    reports = [*READY, report(1, "working", 1), report(2, "idle", 2), report(3, "failure", 3)]
    (episode,) = episodes(reports)
    assert episode.ended == "failed"


def test_work_too_short_to_be_reported_ends_when_the_agent_is_stable() -> None:
    ours = task(10, READY)
    assert settle([ours], seen(READY, 30))[0].status == "running"  # nobody asked the agent
    assert settle([ours], seen(READY, 30, activity="stable"))[0].status == "completed"
    (alone,) = settle([ours], seen([*READY, report(1, "complete", 11)], 30))
    assert alone.status == "completed"


def test_a_look_from_before_the_start_says_nothing_about_the_task() -> None:
    ours = task(10, READY)
    assert reconcile([ours], seen(READY, 9, activity="stable")) == []
    assert reconcile([ours], seen(READY, 9, alive=False)) == []


def test_reported_work_is_not_over_just_because_the_screen_is_still() -> None:
    reports = [*READY, report(1, "working", 11)]
    (ours,) = settle([task(10, READY)], seen(reports, 30, activity="stable"))
    assert ours.status == "running"


def test_a_rebuild_ends_the_task_with_the_last_report_that_outlived_it() -> None:
    ours = task(10, READY)
    rebuilt = seen([], 30, build="build-2")
    assert settle([ours], rebuilt)[0].status == "failed"
    assert settle([ours], rebuilt)[0].outcome == REBUILT
    done = replace(rebuilt, last_report=report(5, "complete", 20, "All done"))
    assert settle([ours], done)[0].status == "completed"
    assert settle([ours], done)[0].outcome == "All done"
    old = replace(rebuilt, last_report=READY[0])
    assert settle([ours], old)[0].status == "failed"


def test_a_claim_that_nobody_confirmed_expires() -> None:
    claim = task(10, READY, status="pending", started_at=None)
    stable = seen(READY, 11, activity="stable")
    assert reconcile([claim], stable) == []
    later = seen(READY, 11 + CLAIM_S, activity="stable")
    (lost,) = settle([claim], later)
    assert (lost.status, lost.outcome) == ("failed", UNCONFIRMED)
    (found,) = settle([claim], replace(later, activity="running"))
    assert found.status == "running"


def test_a_start_in_doubt_is_settled_by_the_next_look() -> None:
    doubtful = task(10, READY, status="pending", started_at=at(10.5))
    assert settle([doubtful], seen(READY, 11, activity="stable"))[0].status == "failed"
    assert settle([doubtful], seen(READY, 11, activity="running"))[0].status == "running"


ENDS = {"complete": "completed", "failure": "failed", "idle": "completed"}


@given(
    works=st.lists(
        st.tuples(st.booleans(), st.sampled_from(sorted(ENDS)), st.integers(0, 2)), max_size=8
    ),
    looks=st.sets(st.integers(0, 60), max_size=12),
)
def test_every_piece_of_work_becomes_exactly_one_task_whenever_one_looks(
    works: list[tuple[bool, str, int]], looks: set[int]
) -> None:
    """Work by us and by others, with progress reports between, seen at any moments."""
    reports, tasks, clock, number = list(READY), [], 1, 1
    for ours, end, progress in works:
        tasks = settle(tasks, seen(reports, clock))
        assert not any(known.open for known in tasks)
        if ours:
            tasks.append(task(clock, reports))
        for state in ("working",) * (1 + progress) + (end,):
            clock += 1
            if clock in looks:
                tasks = settle(tasks, seen(reports, clock))
                assert sum(known.open for known in tasks) <= 1
            reports.append(report(number, state, clock))
            number += 1
        clock += 1
    view = seen(reports, clock)
    tasks = settle(tasks, view)
    assert reconcile(tasks, view) == []
    in_order = sorted(tasks, key=lambda known: known.episode or "")
    by_episode = {known.episode: known for known in in_order}
    assert len(by_episode) == len(tasks) == len(works)
    expected = [("ai_controller" if ours else "agent", ENDS[end]) for ours, end, _ in works]
    opened = [by_episode[episode.key] for episode in episodes(reports)]
    assert [(known.source, known.status) for known in opened] == expected
