"""What only a live Coder can show: no pause between create and start, and two controllers."""

from __future__ import annotations

import pytest

from fleet_agentpack.fleet.awaiting import wait_for
from fleet_agentpack.fleet.service import quiet
from tests.fleet.stage import PROJECT, Stage

LIVE = pytest.mark.parametrize(
    "stage", [pytest.param("live", marks=[pytest.mark.live, pytest.mark.slow])], indirect=True
)


@LIVE
async def test_a_task_right_after_create_is_taken_twenty_times_of_twenty(stage: Stage) -> None:
    for number in range(20):
        name = f"at-once-{number}"
        await stage.create(name, PROJECT, "Keep the build green")
        assert (await stage.fleet.start(name, "work 1 Do it")).agent_status == "busy"
        (task,) = (await stage.fleet.history(name)).tasks
        assert task.source == "ai_controller"
        await stage.fleet.delete(name)


@LIVE
async def test_two_controllers_see_the_same(stage: Stage) -> None:
    await stage.have("papi")
    other = stage.another()
    await stage.fleet.start("papi", "work 4 Write the tests")
    mine = (await stage.until_status("papi", "busy")).current_task
    theirs = (await other.show("papi")).agent
    assert theirs.status == "busy" and mine is not None
    found = await wait_for(other, ["papi"], quiet, any_one=False, timeout_s=60)
    assert [row.status for row in found.done] == ["idle"]
    for fleet in (stage.fleet, other):
        agent = (await fleet.show("papi")).agent
        assert (agent.status, agent.current_task) == ("idle", None)
    (ours,) = (await stage.fleet.history("papi")).tasks
    (seen,) = (await other.history("papi")).tasks
    assert (ours.source, ours.status) == ("ai_controller", "completed")
    assert (seen.source, seen.status) == ("human", "completed")
    assert seen.completed_at == ours.completed_at
    work = await other.work("papi")
    assert work.messages and work.result
