"""What an agent has made, seen from outside its directory."""

from __future__ import annotations

from tests.fleet.local_fleet import LocalFleet, git


async def test_the_work_of_an_agent_is_its_commits_its_files_and_its_words(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    await local.work("papi", "write notes.txt all is well")
    work = await local.fleet.work("papi")
    assert (work.branch, work.ahead) == ("agent/papi", 1)
    assert work.base == git(local.project, "rev-parse", "HEAD")
    assert [(row.path, row.added, row.removed) for row in work.files] == [("notes.txt", 1, 0)]
    assert "+all is well" in work.diff
    assert work.result == "Did: write notes.txt all is well"
    last = [(line.who, line.text) for line in work.messages][-2:]
    assert last == [("said", "Did: write notes.txt all is well"), ("ended", "$0.2500")]


async def test_a_long_result_is_kept_whole_and_only_its_summary_is_short(local: LocalFleet) -> None:
    await local.create("papi")
    row = await local.work("papi", "sh seq 2000")
    whole = "0: " + "\n".join(str(number) for number in range(1, 2001)) + "\n"
    assert "\n" not in row.summary and len(row.summary) < 1000
    assert (await local.fleet.work("papi")).result == whole
    gone = (await local.fleet.show("papi")).agent.workspace_id
    await local.fleet.delete("papi")
    assert (await local.fleet.past(gone)).tasks[0].result == whole
