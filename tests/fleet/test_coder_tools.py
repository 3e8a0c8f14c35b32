"""Every tool on a real Coder: replayed from recordings, and the same live."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any

import pytest

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.results import AgentList, TaskSummary
from fleet_agentpack.kit.results import jsonable
from tests.fleet.fakecoder import recorded
from tests.fleet.stage import PROJECT, Stage
from tests.fleet.waiting import until

OAUTH = "Implement user authentication with OAuth2. Include tests and documentation."
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")


async def refused(work: Any) -> dict[str, Any]:
    with pytest.raises(FleetError) as caught:
        await work
    return caught.value.payload()


@pytest.mark.cassettes("projects")
async def test_projects_are_the_templates_that_can_hold_agents(stage: Stage) -> None:
    projects = (await stage.fleet.projects()).projects
    names = [project.name for project in projects]
    assert PROJECT in names and "plain" not in names
    setup = next(project for project in projects if project.name == PROJECT)
    assert (setup.display_name, setup.template_name) == ("Setup Monorepo", PROJECT)
    assert setup.description == "Infrastructure and tooling monorepo"


@pytest.mark.cassettes("projects")
@pytest.mark.parametrize(
    "project", ["dataone-devcontainer", "DataOne-DevContainer", "dataone platform"]
)
async def test_roles_are_the_options_of_the_role_parameter(stage: Stage, project: str) -> None:
    roles = (await stage.fleet.roles(project)).roles
    assert [(role.name, role.display_name) for role in roles] == [
        ("coder", "Software Engineer"),
        ("operator", "Operations Engineer"),
    ]
    assert roles[0].description == "Writes code, implements features, fixes bugs"


@pytest.mark.cassettes("projects")
async def test_roles_of_an_unknown_project_are_404_and_of_a_plain_template_none(
    stage: Stage,
) -> None:
    error = await refused(stage.fleet.roles("no-such-project"))
    assert (error["error"], error["details"]["status"]) == ("not_found", 404)
    assert PROJECT in error["message"]
    assert (await stage.fleet.roles("plain")).roles == []


@pytest.mark.cassettes("create_agent")
async def test_create_waits_until_the_agent_is_ready_and_tells_how_the_build_goes(
    stage: Stage,
) -> None:
    told: list[str] = []
    made = await stage.create("papi", PROJECT, OAUTH, lambda done, total, text: told.append(text))
    agent = made.agent
    assert (agent.name, agent.status, agent.role) == ("papi", "idle", "coder")
    assert (agent.project, agent.spec) == (PROJECT, OAUTH)
    assert agent.current_task is None
    assert agent.metadata == {"fleet_mcp_agent_spec": OAUTH}
    assert TIME.match(agent.created_at) and TIME.match(agent.updated_at)
    assert "Planning the workspace" in told and "workspace: applying" in told
    assert "papi" in made.message


@pytest.mark.cassettes("projects", "create_build_fails")
async def test_create_says_what_failed_with_the_workspace_and_the_last_log_lines(
    stage: Stage,
) -> None:
    error = await refused(stage.create("bruno", "broken-build", "Keep the build green"))
    assert error["error"] == "unavailable"
    assert "image registry.example.test/dev:1 not found" in error["message"]
    assert "Error: image registry.example.test/dev:1 not found" in error["details"]["log"]
    assert len(error["details"]["workspace_id"]) == 36


@pytest.mark.cassettes("projects", "create_refused", "list_agents")
@pytest.mark.parametrize("name", ["sony", "SONY"])
async def test_create_with_a_taken_name_is_400_and_tells_its_state(stage: Stage, name: str) -> None:
    await stage.have("sony")
    if stage.cassette:  # Coder's answer for another running workspace: sony's was not recorded
        path = "/api/v2/users/me/workspace/alpha"
        key = next(key for key in stage.cassette.answers if "/".join(key[1]) == path)
        other = ("GET", (*key[1][:-1], name), (), "")
        stage.cassette.answers[other] = stage.cassette.answers[key]
    error = await refused(stage.fleet.create(name, PROJECT, "coder", "x"))
    assert (error["error"], error["details"]["status"]) == ("bad_request", 400)
    assert "already exists" in error["message"] and "is running" in error["message"]


@pytest.mark.cassettes("projects")
@pytest.mark.parametrize(
    ("order", "field"),
    [
        (("bad_name", PROJECT, "coder", "x"), "name"),
        (("-x", PROJECT, "coder", "x"), "name"),
        (("a--b", PROJECT, "coder", "x"), "name"),
        (("New", PROJECT, "coder", "x"), "name"),
        (("a" * 21, PROJECT, "coder", "x"), "name"),
        (("", PROJECT, "coder", "x"), "name"),
        (("papi\n", PROJECT, "coder", "x"), "name"),
        (("../etc", PROJECT, "coder", "x"), "name"),
        (("cara", "no-such-project", "coder", "x"), "project"),
        (("cara", " ", "coder", "x"), "project"),
        (("cara", PROJECT, "astronaut", "x"), "role"),
        (("cara", PROJECT, "coder", " \n "), "spec"),
        (("cara", PROJECT, "coder", "a\x00b"), "spec"),
        (("cara", PROJECT, "coder", "\ud800"), "spec"),
        (("cara", PROJECT, "coder", "x" * 100_001), "spec"),
    ],
)
async def test_create_checks_everything_before_it_posts(
    stage: Stage, order: tuple[str, str, str, str], field: str
) -> None:
    error = await refused(stage.fleet.create(*order))
    assert (error["error"], error["details"]["field"]) == ("bad_request", field)
    assert not stage.cassette or stage.cassette.sent("POST") == []


@pytest.mark.cassettes("projects")
async def test_create_in_a_template_without_the_role_parameter_is_400(stage: Stage) -> None:
    error = await refused(stage.fleet.create("cara", "plain", "coder", "x"))
    assert error["error"] == "bad_request"
    assert "agent_role" in error["message"]


@pytest.mark.cassettes("empty_fleet")
async def test_an_empty_fleet_is_an_empty_list(stage: Stage) -> None:
    if stage.live:
        pytest.skip("a live fleet is rarely empty")
    assert await stage.fleet.agents() == AgentList([], 0)


@pytest.mark.cassettes("list_agents")
async def test_list_tells_idle_busy_and_offline_in_one_request(stage: Stage) -> None:
    if stage.live:
        await stage.have("alpha")
        await stage.have("bravo-2")
        await stage.have("delta", "offline-devcontainer")
        await stage.have("echo", "broken-build")
        await stage.fleet.start("bravo-2", "work 20 Writing integration tests")
    listed = await stage.fleet.agents()
    rows = {row.name: (row.status, row.current_task) for row in listed.agents}
    assert rows["alpha"] == ("idle", None)
    assert rows["bravo-2"] == ("busy", "work 20 Writing integration tests")
    assert rows["delta"] == rows["echo"] == ("offline", None)
    assert listed.total_count == len(rows)
    if stage.cassette:
        assert len(rows) == 8
        assert stage.cassette.sent() == ["/api/v2/workspaces"]


@pytest.mark.cassettes("show_agent")
async def test_show_has_role_spec_status_and_the_pull_request(stage: Stage) -> None:
    await stage.have("papi", spec="Implement OAuth2 authentication")
    agent = (await stage.fleet.show("papi")).agent
    assert agent.status == "idle" and agent.current_task is None
    assert (agent.role, agent.project) == ("coder", PROJECT)
    assert agent.spec == agent.metadata["fleet_mcp_agent_spec"]
    assert agent.spec == "Implement OAuth2 authentication"
    if stage.cassette:
        assert agent.metadata == {
            "fleet_mcp_agent_spec": "Implement OAuth2 authentication",
            "fleet_mcp_pull_request_url": "https://github.com/org/repo/pull/123",
            "fleet_mcp_pull_request_status": "open",
            "fleet_mcp_pull_request_check_status": "passing",
        }
        workspace = recorded("show_agent", "/api/v2/users/me/workspace/papi")
        assert agent.created_at == workspace["created_at"][:19] + "Z"
        reported = workspace["latest_app_status"]["created_at"]
        assert agent.updated_at == reported[:19] + "Z"


@pytest.mark.cassettes("show_agent")
async def test_work_that_somebody_else_started_is_seen_and_kept_as_history(stage: Stage) -> None:
    await stage.have("papi")
    if stage.live:
        await stage.another().start("papi", "work 8 Writing integration tests")
    busy = await stage.until_status("papi", "busy")
    assert busy.current_task in ("work 8 Writing integration tests", None)
    if stage.live:
        await stage.until_status("papi", "idle")
    else:
        await stage.fleet.show("papi")
    history = await stage.fleet.history("papi")
    (task,) = history.tasks
    assert task.status == "completed" and task.source == "human"
    assert task.summary.startswith("work 8 Writing integration tests")
    assert task.agent_name == "papi" and TIME.match(task.completed_at or "")


@pytest.mark.cassettes("show_agent")
async def test_unknown_agents_are_404_for_every_tool(stage: Stage) -> None:
    fleet = stage.fleet
    for work in (
        fleet.show("nobody"),
        fleet.history("nobody"),
        fleet.start("nobody", "x"),
        fleet.stop("nobody"),
        fleet.delete("nobody"),
        fleet.show("../../users/me"),
        fleet.delete(""),
    ):
        assert (await refused(work))["details"]["status"] == 404


@pytest.mark.cassettes("not_an_agent")
async def test_a_workspace_that_is_no_agent_is_404_for_every_tool_and_nothing_is_touched(
    stage: Stage,
) -> None:
    fleet = stage.fleet
    async with stage.ordinary("my-dev-box") as still_there:
        for work in (
            fleet.show("my-dev-box"),
            fleet.history("my-dev-box"),
            fleet.start("my-dev-box", "x"),
            fleet.stop("my-dev-box"),
            fleet.delete("my-dev-box"),
        ):
            assert (await refused(work))["details"]["status"] == 404
        assert "my-dev-box" not in [row.name for row in (await fleet.agents()).agents]
        assert await still_there()
    if stage.cassette:
        assert {request.method for request in stage.cassette.requests} == {"GET"}
        assert not any("/apps/" in path for path in stage.cassette.sent())


@pytest.mark.cassettes("tasks")
async def test_tasks_start_conflict_complete_and_fail(stage: Stage) -> None:
    fleet = stage.fleet
    await stage.have("papi")
    started = await fleet.start("papi", "Fix authentication bug in login endpoint")
    task = started.task
    assert started.agent_status == "busy"
    assert (task.status, task.agent_name) == ("running", "papi")
    fields = {"id", "agent_name", "summary", "status", "created_at", "started_at"}
    assert set(jsonable(task)) == fields

    error = await refused(fleet.start("papi", "And another thing"))
    assert (error["error"], error["details"]["status"]) == ("conflict", 409)
    assert error["details"]["task_id"] == task.id

    done = await until_ended(stage, task.id)
    assert done.status == "completed" and done.source == "ai_controller"
    assert done.completed_at >= done.started_at

    # AgentAPI still says `running` for a moment: the start waits for it instead of refusing.
    if stage.cassette:  # the recording did not look at the workspace here
        stage.cassette.hold("GET", "/api/v2/users/me/workspace/papi")
    second = (await fleet.start("papi", "fail on purpose")).task
    failed = await until_ended(stage, second.id)
    assert failed.status == "failed"
    assert "fail on purpose" in failed.summary

    history = await fleet.history("papi", page=1, page_size=1)
    assert [row.id for row in history.tasks] == [second.id]
    assert (history.total_count, history.total_pages) == (2, 2)
    assert (await fleet.history("papi", page=2, page_size=1)).tasks[0].id == task.id


async def until_ended(stage: Stage, task_id: str) -> TaskSummary:
    for _ in range(100):
        rows = (await stage.fleet.history("papi")).tasks
        row = next(row for row in rows if row.id == task_id)
        if row.status != "running":
            return row
        await asyncio.sleep(0.3 if stage.live else 0)
    raise AssertionError(f"never ended: {row}")


@pytest.mark.cassettes("tasks")
async def test_a_second_controller_without_our_ledger_gets_409_too(stage: Stage) -> None:
    await stage.have("papi")
    await stage.fleet.start("papi", "Fix authentication bug in login endpoint")
    error = await refused(stage.another().start("papi", "And another thing"))
    assert error["details"]["status"] == 409


@pytest.mark.cassettes("stop_task")
async def test_stop_interrupts_and_waits_until_the_agent_is_idle(stage: Stage) -> None:
    await stage.have("papi")
    started = (await stage.fleet.start("papi", "work 60 Migrate the database")).task
    stopped = await stage.fleet.stop("papi")
    assert stopped.agent_status == "idle"
    assert stopped.task.id == started.id
    assert (stopped.task.status, stopped.task.source) == ("stopped", "ai_controller")
    for _ in range(3):  # later reports of the interrupted work change nothing
        (task,) = (await stage.fleet.history("papi")).tasks
        assert task.status == "stopped"
    error = await refused(stage.fleet.stop("papi"))
    assert (error["error"], error["details"]["status"]) == ("bad_request", 400)


@pytest.mark.cassettes("delete_agent")
async def test_delete_destroys_the_workspace(stage: Stage) -> None:
    await stage.have("papi")
    gone = await stage.fleet.delete("papi")
    assert gone.message == "Agent 'papi' deleted successfully"
    assert gone.deleted_agent.name == "papi"
    assert len(gone.deleted_agent.workspace_id) == 36
    assert (await refused(stage.fleet.show("papi")))["details"]["status"] == 404


@pytest.mark.cassettes("show_agent")
async def test_work_in_a_workspace_cannot_be_seen_so_its_deletion_is_risky(stage: Stage) -> None:
    await stage.have("papi")
    question = await stage.fleet.deletion("papi")
    assert question.risky and "cannot be seen from here" in question.summary


@pytest.mark.cassettes("delete_agent")
async def test_a_delete_that_the_infrastructure_refuses_is_503_with_its_reason(
    stage: Stage,
) -> None:
    await stage.have("stuck", "broken-delete")
    error = await refused(stage.fleet.delete("stuck"))
    assert error["details"]["status"] == 503
    assert "volume is in use" in error["message"]
    assert "Error: volume is in use" in error["details"]["log"]


@pytest.mark.cassettes("delete_while_building")
async def test_delete_cancels_an_active_build_waits_and_deletes(stage: Stage) -> None:
    if stage.live:
        creating = asyncio.create_task(
            stage.create("slowpoke", "slow-build", "Keep the build green")
        )

        async def building() -> bool:
            with contextlib.suppress(FleetError):
                await stage.fleet.show("slowpoke")
                return True
            return False

        await until(building)
        creating.cancel()
        stage.made.append("slowpoke")
    told: list[str] = []
    gone = await stage.fleet.delete("slowpoke", lambda done, total, text: told.append(text))
    assert gone.deleted_agent.name == "slowpoke"
    assert "Canceling the active build" in told
    if stage.cassette:
        assert stage.cassette.sent("POST")[0] == stage.cassette.sent("POST")[1]
        assert len(stage.cassette.sent("PATCH")) == 1


@pytest.mark.cassettes("list_agents")
@pytest.mark.parametrize("name", ["charlie", "delta", "echo", "foxtrot"])
async def test_start_and_stop_on_an_offline_agent_are_400(stage: Stage, name: str) -> None:
    if stage.live:
        await stage.have(name, "offline-devcontainer")
    for work in (stage.fleet.start(name, "x"), stage.fleet.stop(name)):
        error = await refused(work)
        assert (error["error"], error["details"]["status"]) == ("bad_request", 400)
        assert "offline" in error["message"]


@pytest.mark.cassettes("list_agents")
async def test_names_match_in_any_case(stage: Stage) -> None:
    await stage.have("alpha")
    assert (await stage.fleet.history("ALPHA")).total_count == 0
    error = await refused(stage.fleet.stop("ALPHA"))
    assert "'alpha' is not busy" in error["message"]


@pytest.mark.cassettes("list_agents")
async def test_an_empty_task_and_a_bad_page_are_400_before_anything_is_asked(
    stage: Stage,
) -> None:
    for work in (
        stage.fleet.start("alpha", " \n"),
        stage.fleet.start("alpha", "\x00"),
        stage.fleet.history("alpha", page=0),
        stage.fleet.history("alpha", page=-1),
    ):
        assert (await refused(work))["details"]["status"] == 400
    assert not stage.cassette or stage.cassette.requests == []


@pytest.mark.cassettes("list_agents")
@pytest.mark.parametrize(("asked", "given"), [(0, 1), (-5, 1), (101, 100), (10**30, 100)])
async def test_page_sizes_are_clamped_and_a_page_past_the_end_is_empty(
    stage: Stage, asked: int, given: int
) -> None:
    await stage.have("alpha")
    page = await stage.fleet.history("alpha", page=10**30, page_size=asked)
    assert page.tasks == [] and page.page_size == given
    assert (page.total_count, page.total_pages, page.page) == (0, 0, 10**30)
