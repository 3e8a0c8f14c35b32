"""The fleet on a Coder in memory: how many requests, which troubles, and races."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleet_agentpack.fleet.coder.backend import Timeouts
from fleet_agentpack.fleet.coder.orders import CoderNames
from fleet_agentpack.fleet.coder.transport import Limits
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.results import AgentSummary
from fleet_agentpack.fleet.service import FleetService
from tests.fleet.fakecoder import FakeCoder, fleet_of, recorded
from tests.fleet.stage import HOST, service
from tests.fleet.waiting import until

LIMITS = Limits(deadline_s=0.6, backoff_s=0.001)


@pytest.fixture
def coder() -> FakeCoder:
    return FakeCoder(fleet_of(3))


@pytest.fixture
async def fleet(coder: FakeCoder, tmp_path: Path) -> Any:
    made = on(coder, tmp_path / "fleet.db")
    yield made
    await made.close()


def on(coder: FakeCoder, ledger: Path, **more: Any) -> FleetService:
    return service(ledger, transport=coder, limits=LIMITS, **more)


async def refused(work: Any) -> dict[str, Any]:
    with pytest.raises(FleetError) as caught:
        await work
    return caught.value.payload()


@pytest.mark.parametrize(
    ("size", "requests"), [(0, 1), (1, 1), (100, 1), (101, 2), (250, 3), (1000, 10)]
)
async def test_list_costs_one_request_per_hundred_agents(
    tmp_path: Path, size: int, requests: int
) -> None:
    coder = FakeCoder(fleet_of(size), delay_s=0.005)
    fleet = on(coder, tmp_path / "fleet.db")
    assert (await fleet.agents()).total_count == size
    assert len(coder.requests) == requests
    assert coder.most_at_once == min(5, max(1, requests - 1))  # the first tells how many others
    await fleet.close()


async def test_a_page_that_fails_fails_the_list_and_gives_the_others_up(tmp_path: Path) -> None:
    coder = FakeCoder(fleet_of(1000), delay_s=0.01)
    coder.trouble = lambda request: expired(request) if "offset=300" in str(request.url) else None
    fleet = on(coder, tmp_path / "fleet.db")
    assert "session token" in (await refused(fleet.agents()))["message"]
    await until(lambda: coder.at_once == 0)
    await fleet.close()


async def test_a_list_tells_news_of_an_agent_and_leaves_the_others_unread(
    fleet: FleetService, coder: FakeCoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.agents()
    adjusted: list[str] = []
    adjust = Ledger.adjust

    def noting(ledger: Ledger, workspace_id: str, *more: Any) -> Any:
        adjusted.append(workspace_id)
        return adjust(ledger, workspace_id, *more)

    monkeypatch.setattr(Ledger, "adjust", noting)
    await fleet.agents()
    assert adjusted == []
    coder.report("agent-1", "working", "Sweeping", "2026-11-16T09:20:00Z")
    rows = {row.name: row for row in (await fleet.agents()).agents}
    assert rows["agent-1"] == AgentSummary("agent-1", "busy", "Sweeping")
    assert rows["agent-0"].status == "idle"
    assert adjusted == [coder.workspaces[1]["id"]]
    coder.workspaces[1]["latest_build"] |= {"transition": "stop", "status": "stopped"}
    assert (await fleet.agents()).agents[1].status == "offline"
    assert (await fleet.history("agent-1")).tasks[0].status == "failed"


@pytest.mark.parametrize("size", [1, 300])
async def test_show_costs_at_most_four_requests_and_none_waits_without_need(
    tmp_path: Path, size: int
) -> None:
    coder = FakeCoder(fleet_of(size), delay_s=0.02)
    fleet = on(coder, tmp_path / "fleet.db")
    await fleet.agents()
    coder.requests.clear()
    await fleet.show("agent-0")
    asked = [request.url.path.rsplit("/", 1)[1] for request in coder.requests]
    assert asked[0] == "agent-0"
    assert sorted(asked[1:]) == ["parameters", "status", "watch-metadata"]
    assert coder.most_at_once == 3  # all that the workspace has to be known for
    coder.requests.clear()
    await fleet.show("agent-0")
    assert len(coder.requests) == 3  # a build's parameters never change
    await fleet.close()


async def test_show_of_a_workspace_not_seen_before_asks_what_it_is_first(
    fleet: FleetService, coder: FakeCoder
) -> None:
    await fleet.show("agent-0")
    asked = [request.url.path.rsplit("/", 1)[1] for request in coder.requests]
    assert asked[:2] == ["agent-0", "parameters"]
    assert sorted(asked[2:]) == ["status", "watch-metadata"]


async def test_show_of_a_stranger_is_404_whatever_else_was_asked_answers(
    fleet: FleetService, coder: FakeCoder
) -> None:
    await fleet.agents()
    coder.parameters = {"region": "eu"}  # rebuilt as an ordinary workspace
    for answer, attempts in ((httpx.Response(500), 1), (hang, 1), (httpx.ReadError("cut"), 3)):
        coder.requests.clear()

        async def asked_inside(expected: int = 2 * attempts) -> None:
            await until(lambda: sum(map(is_inside, coder.requests)) == expected)

        def inside(request: httpx.Request, answer: Any = answer, first: Any = asked_inside) -> Any:
            if request.url.path.endswith("/parameters"):
                return first()  # what the workspace is comes last
            return (answer(request) if callable(answer) else answer) if is_inside(request) else None

        coder.trouble = inside
        async with asyncio.timeout(10):  # less than Coder is waited for
            assert (await refused(fleet.show("agent-0")))["error"] == "not_found"
        assert {request.method for request in coder.requests} == {"GET"}


def is_inside(request: httpx.Request) -> bool:
    return request.url.path.endswith(("/status", "/watch-metadata"))


async def test_show_of_an_offline_agent_asks_nothing_inside_it(
    fleet: FleetService, coder: FakeCoder
) -> None:
    coder.workspaces[0]["latest_build"]["status"] = "stopped"
    assert (await fleet.show("agent-0")).agent.status == "offline"
    assert len(coder.requests) == 2


def hang(_: httpx.Request) -> Any:
    return asyncio.Event().wait()


def expired(request: httpx.Request) -> httpx.Response:
    if request.url.path.startswith("/@"):  # to an app, as if a person had come
        return httpx.Response(303, headers={"location": f"{HOST}/login?message=signed+out"})
    return httpx.Response(401, json=UNAUTHORIZED)


UNAUTHORIZED = {
    "message": "You are signed out or your session has expired.",
    "detail": 'API key expired at "2026-01-01T00:00:00Z".',
}
HTML = httpx.Response(200, headers={"content-type": "text/html"}, text="<html>Sign in</html>")
HALF = httpx.Response(200, headers={"content-type": "application/json"}, text='{"workspaces": [')
LIMITED = httpx.Response(429, headers={"retry-after": "60"}, json={"message": "rate limited"})

TROUBLES: dict[str, tuple[Callable[[httpx.Request], Any], str]] = {
    "gone": (lambda _: httpx.ConnectError("connection refused"), "cannot be reached"),
    "cut off": (lambda _: httpx.RemoteProtocolError("server disconnected"), "connection"),
    "slow": (hang, "did not answer in time"),
    "half an answer": (lambda _: HALF, "invalid answer"),
    "html": (lambda _: HTML, "not JSON"),
    "rate limit": (lambda _: LIMITED, "limits the rate"),
    "expired token": (expired, "does not accept the session token"),
    "bad gateway": (lambda _: httpx.Response(502, text="<html>"), "502"),
    "redirect": (lambda _: httpx.Response(302, headers={"location": "/sso"}), "redirect"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("tool", ["agents", "show", "start", "delete", "projects"])
async def test_trouble_with_coder_is_a_503_that_names_it_and_the_next_call_works(
    fleet: FleetService, coder: FakeCoder, trouble: str, tool: str
) -> None:
    def call() -> Any:
        if tool in ("agents", "projects"):
            return getattr(fleet, tool)()
        arguments = ["agent-0", "x"] if tool == "start" else ["agent-0"]
        return getattr(fleet, tool)(*arguments)

    coder.trouble, words = TROUBLES[trouble]
    started = asyncio.get_running_loop().time()
    error = await refused(call())
    assert (error["error"], error["details"]["status"]) == ("unavailable", 503)
    assert words in error["message"]
    assert asyncio.get_running_loop().time() - started < 5
    coder.trouble = None
    assert (await fleet.agents()).total_count == 3


@pytest.mark.parametrize("part", ["/parameters", "/status", "/message"])
async def test_a_token_that_expires_midway_is_a_503_and_starts_nothing(
    fleet: FleetService, coder: FakeCoder, part: str
) -> None:
    coder.trouble = lambda request: expired(request) if request.url.path.endswith(part) else None
    error = await refused(fleet.start("agent-0", "x"))
    assert error["details"]["status"] == 503 and "session token" in error["message"]
    coder.trouble = None
    assert coder.messages == []
    assert (await fleet.history("agent-0")).total_count == 0
    assert (await fleet.start("agent-0", "again")).agent_status == "busy"


async def test_show_does_without_metadata_and_agentapi_and_warns(
    fleet: FleetService, coder: FakeCoder
) -> None:
    coder.trouble = lambda request: (
        httpx.Response(502, text="<title>502 - Bad Gateway</title>")
        if request.url.path.endswith(("/status", "/watch-metadata"))
        else None
    )
    shown = await fleet.show("agent-0")
    assert shown.agent.status == "idle"
    assert len(shown.warnings) == 2 and "Bad Gateway" in shown.warnings[1]
    error = await refused(fleet.start("agent-0", "x"))
    assert error["details"]["status"] == 503 and "AgentAPI" in error["message"]


async def test_two_controllers_with_one_ledger_start_at_once_one_wins(
    coder: FakeCoder, tmp_path: Path
) -> None:
    coder.delay_s = 0.01
    fleets = [on(coder, tmp_path / "fleet.db") for _ in range(5)]
    results = await asyncio.gather(
        *(fleet.start("agent-0", f"task {n}") for n, fleet in enumerate(fleets)),
        return_exceptions=True,
    )
    lost = [result for result in results if isinstance(result, FleetError)]
    assert len(lost) == 4 and {error.kind for error in lost} == {"conflict"}
    assert len(coder.messages) == 1
    assert (await fleets[0].history("agent-0")).total_count == 1
    for fleet in fleets:
        await fleet.close()


async def test_two_controllers_with_ledgers_of_their_own_start_at_once_one_wins(
    coder: FakeCoder, tmp_path: Path
) -> None:
    fleets = [on(coder, tmp_path / f"fleet-{n}.db") for n in range(4)]
    for fleet in fleets:
        await fleet.agents()
    coder.delay_s = 0.01
    results = await asyncio.gather(
        *(fleet.start("agent-0", "task") for fleet in fleets), return_exceptions=True
    )
    lost = [result for result in results if isinstance(result, FleetError)]
    assert len(lost) == 3 and {error.kind for error in lost} == {"conflict"}
    assert len(coder.messages) == 1
    totals = [(await fleet.history("agent-0")).total_count for fleet in fleets]
    assert sorted(totals) == [0, 0, 0, 1]
    for fleet in fleets:
        await fleet.close()


async def test_a_start_right_after_a_start_is_409_and_right_after_the_end_works(
    fleet: FleetService, coder: FakeCoder
) -> None:
    await fleet.start("agent-0", "one")
    assert (await refused(fleet.start("agent-0", "two")))["details"]["status"] == 409
    coder.report("agent-0", "working", "one", "2027-01-01T00:00:00Z")
    coder.report("agent-0", "complete", "done", "2027-01-01T00:00:01Z")

    async def settle(_: float) -> None:
        coder.busy = False  # AgentAPI notices a moment later

    fleet._sleep = settle
    assert (await fleet.start("agent-0", "two")).agent_status == "busy"
    statuses = [row.status for row in (await fleet.history("agent-0")).tasks]
    assert statuses == ["running", "completed"]


async def test_an_agent_that_was_just_made_is_given_a_moment_to_settle(
    fleet: FleetService, coder: FakeCoder
) -> None:
    app = coder.workspaces[0]["latest_build"]["resources"][0]["agents"][0]["apps"][0]
    app["statuses"], coder.workspaces[0]["latest_app_status"] = None, None
    coder.busy = True

    async def settle(_: float) -> None:
        coder.busy = False

    fleet._sleep = settle
    assert (await fleet.start("agent-0", "one")).agent_status == "busy"


async def test_states_that_a_later_coder_may_have_are_taken_for_the_safe_ones(
    fleet: FleetService, coder: FakeCoder
) -> None:
    coder.workspaces[0]["latest_build"]["status"] = "hibernating"
    coder.report("agent-1", "pondering", "?", "2027-01-01T00:00:00Z")
    agent = coder.workspaces[2]["latest_build"]["resources"][0]["agents"][0]
    agent["status"] = "dreaming"
    rows = (await fleet.agents()).agents
    assert [row.status for row in rows] == ["offline", "idle", "offline"]


async def test_an_agent_that_never_settles_is_409_after_five_seconds(
    fleet: FleetService, coder: FakeCoder
) -> None:
    await fleet.start("agent-0", "one")
    coder.report("agent-0", "working", "one", "2027-01-01T00:00:00Z")
    coder.report("agent-0", "complete", "done", "2027-01-01T00:00:01Z")
    waited: list[float] = []
    now = fleet._now

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    fleet._sleep = sleep
    fleet._now = lambda: now() + timedelta_s(sum(waited))
    assert (await refused(fleet.start("agent-0", "two")))["details"]["status"] == 409
    assert 4.9 < sum(waited) < 5.5


def timedelta_s(seconds: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=seconds)


async def test_a_message_without_an_answer_counts_as_sent_when_the_agent_is_at_work(
    fleet: FleetService, coder: FakeCoder
) -> None:
    def lose_the_answer(request: httpx.Request) -> Any:
        if request.url.path.endswith("/message"):
            coder.answer(request)
            return httpx.ReadTimeout("lost")
        return None

    coder.trouble = lose_the_answer
    assert (await fleet.start("agent-0", "one")).agent_status == "busy"
    assert len(coder.messages) == 1
    assert (await fleet.history("agent-0")).total_count == 1


async def test_a_message_that_got_lost_is_503_and_leaves_no_task(
    fleet: FleetService, coder: FakeCoder
) -> None:
    coder.trouble = lambda request: (
        httpx.ReadTimeout("lost") if request.url.path.endswith("/message") else None
    )
    error = await refused(fleet.start("agent-0", "one"))
    assert error["details"]["status"] == 503
    coder.trouble = None
    assert (await fleet.history("agent-0")).total_count == 0
    assert (await fleet.start("agent-0", "two")).agent_status == "busy"


@pytest.mark.parametrize("arrived", [True, False])
async def test_a_start_of_which_nobody_knows_is_settled_by_the_next_look(
    fleet: FleetService, coder: FakeCoder, arrived: bool
) -> None:
    gone = False

    def vanish(request: httpx.Request) -> Any:
        nonlocal gone
        if request.url.path.endswith("/message"):
            gone = True
            if arrived:
                coder.answer(request)
        return httpx.ReadTimeout("gone") if gone else None

    coder.trouble = vanish
    error = await refused(fleet.start("agent-0", "one"))
    assert error["details"]["status"] == 503 and "not known" in error["message"]
    coder.trouble = None
    shown = (await fleet.show("agent-0")).agent
    assert shown.status == ("busy" if arrived else "idle")
    (row,) = (await fleet.history("agent-0")).tasks
    assert row.status == ("running" if arrived else "failed")


async def test_a_cancelled_start_leaves_no_half_made_entry(
    fleet: FleetService, coder: FakeCoder
) -> None:
    sending, answered = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        sending.set()
        await answered.wait()

    coder.trouble = lambda r: hold() if r.url.path.endswith("/message") else None
    start = asyncio.create_task(fleet.start("agent-0", "one"))
    await sending.wait()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    answered.set()

    async def confirmed() -> bool:
        (row,) = (await fleet.history("agent-0")).tasks
        return row.status == "running"

    await until(confirmed)
    assert len(coder.messages) == 1


async def test_stop_of_work_that_nobody_knows_is_404(fleet: FleetService, coder: FakeCoder) -> None:
    coder.busy = True
    error = await refused(fleet.stop("agent-0"))
    assert (error["error"], error["details"]["status"]) == ("not_found", 404)
    assert (await fleet.show("agent-0")).agent.status == "busy"


async def test_stop_ends_work_that_somebody_else_started(
    fleet: FleetService, coder: FakeCoder
) -> None:
    coder.report("agent-0", "working", "theirs", "2027-01-01T00:00:00Z")
    coder.busy = True
    stopped = await fleet.stop("agent-0")
    assert (stopped.task.status, stopped.task.source) == ("stopped", "agent")
    assert (await fleet.agents()).agents[0].status == "idle"


async def test_an_agent_that_ignores_the_interrupt_is_503_and_stays_busy(
    coder: FakeCoder, tmp_path: Path
) -> None:
    fleet = on(coder, tmp_path / "fleet.db", timeouts=Timeouts(stop_s=0.1))
    await fleet.start("agent-0", "one")
    coder.trouble = lambda request: (
        httpx.Response(200, json={"ok": True})
        if request.url.path.endswith("/message") and b"raw" in request.content
        else None
    )
    error = await refused(fleet.stop("agent-0"))
    assert error["details"]["status"] == 503 and "still working" in error["message"]
    assert (await fleet.history("agent-0")).tasks[0].status == "running"
    await fleet.close()


async def test_a_task_whose_workspace_was_rebuilt_has_failed_and_stays_in_the_history(
    fleet: FleetService, coder: FakeCoder
) -> None:
    await fleet.start("agent-0", "one")
    rebuilt = fleet_of(1)[0]
    rebuilt["latest_build"]["id"] = "another build"
    rebuilt["latest_app_status"] = None
    coder.workspaces[0], coder.busy = rebuilt, False
    (row,) = (await fleet.history("agent-0")).tasks
    assert row.status == "failed" and "rebuilt" in row.summary
    await fleet.start("agent-0", "two")
    assert (await fleet.history("agent-0")).total_count == 2


async def test_configured_names_are_used(coder: FakeCoder, tmp_path: Path) -> None:
    names = CoderNames(
        role_parameter="persona",
        spec_parameter="mission",
        app_slug="claude-code",
        projects={"Setup": "setup-devcontainer"},
    )
    fleet = on(coder, tmp_path / "fleet.db", names=names)
    coder.parameters = {"persona": "coder", "mission": "Fly"}
    agent = (await fleet.show("agent-0")).agent
    assert (agent.role, agent.spec, agent.project) == ("coder", "Fly", "Setup")
    await fleet.agents()
    assert coder.requests[-1].url.params["q"] == "owner:me param:persona"
    await fleet.close()


async def test_a_long_spec_comes_from_the_parameters_not_from_the_cut_metadata(
    fleet: FleetService, coder: FakeCoder
) -> None:
    coder.parameters["agent_spec"] = "x" * 50_000
    agent = (await fleet.show("agent-0")).agent
    assert len(agent.spec) == len(agent.metadata["fleet_mcp_agent_spec"]) == 50_000


async def test_a_create_whose_answer_got_lost_is_looked_for_and_not_repeated(
    coder: FakeCoder, tmp_path: Path
) -> None:
    values = {"agent_role": "coder", "agent_spec": "Keep the build green"}
    made = {**fleet_of(4)[3], "name": "papi"}

    def lost(request: httpx.Request) -> Any:
        path = request.url.path
        if path == "/api/v2/templates":
            return httpx.Response(200, json=recorded("projects", path))
        if path.endswith("/rich-parameters"):
            return httpx.Response(200, json=recorded("projects", path))
        if path == "/api/v2/users/me/workspaces":
            coder.workspaces.append(made)
            return httpx.ReadTimeout("lost")
        if path.endswith("/logs"):
            return httpx.Response(200, json=[])
        if path.startswith("/api/v2/workspacebuilds/") and not path.endswith("/parameters"):
            return httpx.Response(200, json=made["latest_build"])
        if path.startswith("/api/v2/workspaces/"):
            return httpx.Response(200, json=made)
        return None

    coder.trouble, coder.parameters = lost, values
    fleet = on(coder, tmp_path / "fleet.db")
    agent = (await fleet.create("papi", "setup-devcontainer", "coder", values["agent_spec"])).agent
    assert (agent.name, agent.status) == ("papi", "idle")
    posts = [request for request in coder.requests if request.method == "POST"]
    assert len(posts) == 1
    await fleet.close()


async def test_a_create_that_takes_too_long_is_503_and_the_build_goes_on(
    coder: FakeCoder, tmp_path: Path
) -> None:
    made = {**fleet_of(4)[3], "name": "papi"}
    made["latest_build"] = {**made["latest_build"], "status": "starting", "resources": []}
    made["latest_build"]["job"] = {"status": "running"}

    def building(request: httpx.Request) -> Any:
        path = request.url.path
        if path == "/api/v2/templates" or path.endswith("/rich-parameters"):
            return httpx.Response(200, json=recorded("projects", path))
        if path == "/api/v2/users/me/workspaces":
            coder.workspaces.append(made)
            return httpx.Response(201, json=made)
        if path.endswith("/logs"):
            return httpx.Response(200, json=[])
        if path.startswith("/api/v2/workspacebuilds/") and not path.endswith("/parameters"):
            return httpx.Response(200, json=made["latest_build"])
        return None

    coder.trouble = building
    fleet = on(coder, tmp_path / "fleet.db", create_timeout_s=0.2)
    error = await refused(fleet.create("papi", "setup-devcontainer", "coder", "x"))
    assert error["details"] == {"status": 503, "agent": "papi"}
    assert "still being built" in error["message"] and "show_agent" in error["message"]
    rows = {row.name: row.status for row in (await fleet.agents()).agents}
    assert rows["papi"] == "offline"
    again = await refused(fleet.create("Papi", "setup-devcontainer", "coder", "x"))
    assert again["error"] == "bad_request" and "is being built" in again["message"]
    await fleet.close()
