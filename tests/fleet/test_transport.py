"""Talking to a Coder that misbehaves: retries, deadlines, credentials. No recordings needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from traceback import format_exception
from typing import Any

import httpx
import pytest

from fleet_agentpack.fleet.coder import errors
from fleet_agentpack.fleet.coder.backend import CoderBackend
from fleet_agentpack.fleet.coder.client import CoderClient
from fleet_agentpack.fleet.coder.errors import unavailable
from fleet_agentpack.fleet.coder.orders import CoderNames
from fleet_agentpack.fleet.coder.transport import Connection, Limits
from fleet_agentpack.kit.secret import Secret
from tests.fleet.stage import HOST, TOKEN, at_once

JSON = {"content-type": "application/json"}
Step = Callable[[], httpx.Response] | httpx.Response | Exception


class Script(httpx.AsyncBaseTransport):
    """Answers in turn; stays on the last."""

    def __init__(self, *steps: Step) -> None:
        self.steps, self.requests = list(steps), list[httpx.Request]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        step = self.steps[min(len(self.requests), len(self.steps) - 1)]
        self.requests.append(request)
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step


def ok() -> httpx.Response:
    return httpx.Response(200, headers=JSON, content=b"[]")


def status(code: int, body: Any = None, **headers: str) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(code, headers=headers, json=body or {"message": "no"})


def connection(*steps: Step, sleep: Any = at_once, **limits: float) -> tuple[Connection, Script]:
    script = Script(*steps)
    made = Connection(HOST, Secret(TOKEN), limits=Limits(**limits), sleep=sleep, transport=script)
    return made, script


@pytest.mark.parametrize(
    ("method", "trouble", "attempts"),
    [
        ("GET", httpx.ConnectError("refused"), 2),
        ("POST", httpx.ConnectError("refused"), 2),
        ("POST", httpx.ConnectTimeout("slow"), 2),
        ("GET", httpx.ReadTimeout("slow"), 2),
        ("GET", httpx.RemoteProtocolError("cut"), 2),
        ("GET", status(502), 2),
        ("GET", status(503), 2),
        ("GET", status(504), 2),
        ("GET", status(429, **{"retry-after": "1"}), 2),
        ("POST", status(429, **{"retry-after": "1"}), 2),
        ("POST", httpx.ReadTimeout("slow"), 1),
        ("POST", httpx.RemoteProtocolError("cut"), 1),
        ("POST", status(502), 1),
        ("PATCH", status(503), 1),
        ("GET", status(500), 1),
        ("GET", status(404), 1),
        ("GET", status(429, **{"retry-after": "60"}), 1),
    ],
)
async def test_requests_are_repeated_only_where_that_is_safe(
    method: str, trouble: Step, attempts: int
) -> None:
    made, script = connection(trouble, ok)
    if attempts == 2:
        assert await made.request(method, "/api/v2/x") == b"[]"
    else:
        with pytest.raises(errors.CoderError):
            await made.request(method, "/api/v2/x")
    assert len(script.requests) == attempts
    await made.close()


async def test_three_attempts_then_the_error_with_growing_pauses_between() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    made, script = connection(status(503), sleep=sleep)
    with pytest.raises(errors.Broken) as caught:
        await made.request("GET", "/api/v2/x")
    assert caught.value.status == 503
    assert len(script.requests) == 3
    assert 0.1 <= pauses[0] <= 0.2 and 0.2 <= pauses[1] <= 0.4
    await made.close()


async def test_retry_after_is_honoured() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    made, _ = connection(status(429, **{"retry-after": "3"}), ok, sleep=sleep)
    await made.request("GET", "/api/v2/x")
    assert pauses == [3]
    await made.close()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (status(401), errors.Unauthorized),
        (status(403), errors.Forbidden),
        (status(404), errors.NotFound),
        (status(404, {"message": "Route not found."}), errors.RouteMissing),
        (status(409), errors.Conflict),
        (status(410), errors.NotFound),
        (status(412), errors.Conflict),
        (status(400), errors.Invalid),
        (status(425), errors.Invalid),
        (status(429, **{"retry-after": "60"}), errors.RateLimited),
        (status(500), errors.Broken),
        (status(303, location=f"{HOST}/login?x"), errors.Unauthorized),
        (status(302, location="https://sso.example.test/"), errors.Broken),
        (httpx.ReadError("cut off"), errors.Unreachable),
        (httpx.ConnectError("no such host"), errors.NotConnected),
        (httpx.ReadTimeout("slow"), errors.TimedOut),
    ],
)
async def test_every_failure_has_its_class(answer: Step, kind: type[errors.CoderError]) -> None:
    made, script = connection(answer)
    with pytest.raises(errors.CoderError) as caught:
        await made.request("GET", "/api/v2/x")
    assert type(caught.value) is kind
    assert {str(request.url) for request in script.requests} == {f"{HOST}/api/v2/x"}
    await made.close()


@pytest.mark.parametrize(
    "body",
    [
        b"<!doctype html><title>Sign in</title>",
        b'{"workspaces": [{"id": "0',
        b'{"workspaces": [{"id": 5}]}',
        b"{}",
        b"[]",
        b"",
        b"null",
        b'{"workspaces": [{"id": "0", "name": "\xff", "latest_build": {"id": "1"}}]}',
        b'{"workspaces": [], "new": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
async def test_an_answer_that_is_half_or_not_coder_s_is_broken(body: bytes) -> None:
    kind = "text/html" if b"html" in body else "application/json"
    answer = httpx.Response(200, headers={"content-type": kind}, content=body)
    made, _ = connection(answer)
    with pytest.raises(errors.Broken):
        await CoderClient(made).workspaces("owner:me")
    await made.close()


NO_ERROR_OF_CODER_S = [
    b"[" * 200_000,
    b'{"a":' * 100_000,
    b'{"message": "no", "validations": 5, "errors": true}',
    b'{"validations": [5, null, {"field": ["x"], "detail": {"y": 1}}], "errors": ["x"]}',
    b'{"message": {"a": "' + b"x " * 5_000_000 + b'"}}',
    b"<title>" + b" " * 100_000,
    b"<title>x</title>" + b"<p>" * 30_000,
    b"\xff\xfe\x00\x00\x00",
    b"",
]


@pytest.mark.parametrize("body", NO_ERROR_OF_CODER_S)
async def test_an_error_s_body_may_be_anything(body: bytes) -> None:
    for code, kind in ((400, errors.Invalid), (529, errors.Broken)):
        made, _ = connection(httpx.Response(code, headers=JSON, content=body))
        with pytest.raises(errors.CoderError) as caught:
            await made.request("POST", "/api/v2/x")
        assert type(caught.value) is kind
        assert len(str(caught.value)) < 2_000
        await made.close()


async def test_the_reason_on_a_page_of_coder_s_is_told_as_people_read_it() -> None:
    page = "<title>404 - Application\n\t</title><p>Agent state is &#34;timeout&#34;</p>"
    made, _ = connection(httpx.Response(404, text=page))
    with pytest.raises(errors.NotFound, match='404 - Application Agent state is "timeout"'):
        await made.request("GET", "/@fleet/papi.main/apps/claude-code/status")
    await made.close()


async def test_a_401_from_inside_a_workspace_says_nothing_about_our_token() -> None:
    made, _ = connection(status(401))
    with pytest.raises(errors.Broken):
        await made.request("GET", "/@fleet/papi.main/apps/claude-code/status")
    await made.close()


async def test_a_page_that_is_too_large_is_asked_for_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fleet_agentpack.fleet.coder import transport

    fleet = [
        {"id": str(number), "name": f"w{number}", "latest_build": {"id": "b"}}
        for number in range(130)
    ]
    fleet[7] |= {"all that its apps reported": "x" * 60_000}

    class Pages(Script):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            start, size = (int(request.url.params[key]) for key in ("offset", "limit"))
            rows = fleet[start : start + size]
            return httpx.Response(200, json={"workspaces": rows, "count": len(fleet)})

    monkeypatch.setattr(transport, "LARGEST_ANSWER", 61_000)
    pages = Pages()
    client = CoderClient(Connection(HOST, Secret(TOKEN), sleep=at_once, transport=pages))
    found = [row.id for page in await client.workspaces("owner:me") for row in page.rows]
    assert found == [str(number) for number in range(130)]
    monkeypatch.setattr(transport, "LARGEST_ANSWER", 60_000)
    with pytest.raises(errors.TooLarge, match="more than 60,000 bytes"):
        await client.workspaces("owner:me")
    await client.close()


async def test_null_lists_unknown_fields_and_unknown_states_are_accepted() -> None:
    moment = "2026-08-10T09:15:02.123456789Z"
    workspace = {
        "id": "1",
        "name": "papi",
        "created_at": moment,
        "updated_at": "0001-01-01T00:00:00Z",
        "new_field": {"a": 1},
        "latest_app_status": None,
        "latest_build": {
            "id": "2",
            "created_at": moment,
            "updated_at": moment,
            "status": "hibernating",
            "job": {"status": "pondering"},
            "resources": None,
        },
    }
    page = httpx.Response(200, headers=JSON, json={"workspaces": [workspace], "count": 1})
    made, _ = connection(page)
    (page,) = await CoderClient(made).workspaces("owner:me")
    assert page.rows[0].agent is None
    found = CoderClient(made).in_full(page, "1")
    assert found.agent() is None and not found.latest_build.job.active
    empty, _ = connection(httpx.Response(200, headers=JSON, json={"workspaces": None, "count": 0}))
    assert [page.rows for page in await CoderClient(empty).workspaces("owner:me")] == [[]]
    await made.close()
    await empty.close()


async def test_the_whole_call_has_a_deadline_even_when_bytes_keep_coming() -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    answer = httpx.Response(200, headers=JSON, content=drip())
    made, _ = connection(answer, deadline_s=0.2)
    started = asyncio.get_running_loop().time()
    with pytest.raises(errors.TimedOut):
        await made.request("GET", "/api/v2/x")
    assert asyncio.get_running_loop().time() - started < 2
    await made.close()


async def test_the_token_is_a_header_for_the_api_and_a_cookie_for_apps() -> None:
    made, script = connection(ok)
    await made.request("GET", "/api/v2/x")
    await made.request("GET", "/@fleet/papi.main/apps/claude-code/status")
    api, app = script.requests
    assert api.headers["coder-session-token"] == TOKEN and "cookie" not in api.headers
    assert app.headers["cookie"] == f"coder_session_token={TOKEN}"
    assert TOKEN not in str([v for k, v in app.headers.items() if k != "cookie"])
    assert "authorization" not in app.headers and "coder-session-token" not in app.headers
    await made.close()


async def test_cookies_that_coder_sets_are_not_kept() -> None:
    setting = httpx.Response(
        200, headers={**JSON, "set-cookie": "coder_session_token=other; Path=/"}, content=b"[]"
    )
    made, script = connection(setting, ok)
    await made.request("GET", "/api/v2/x")
    await made.request("GET", "/api/v2/x")
    assert "cookie" not in script.requests[1].headers
    await made.close()


async def test_the_token_is_in_no_error_no_repr_and_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {
        "message": f"{'x' * 490} {TOKEN}",
        "detail": TOKEN,
        "validations": [{"field": TOKEN, "detail": TOKEN}],
    }
    everywhere = {"retry-after": TOKEN, "x-coder-request-id": TOKEN, "location": TOKEN}
    page = f"<title>{TOKEN}</title><p>{TOKEN}</p>"
    answers = (
        status(400, echo),
        status(500, echo),
        httpx.ReadError("x"),
        httpx.Response(429, headers=everywhere, json=echo),
        httpx.Response(302, headers=everywhere),
        httpx.Response(502, headers=everywhere, text=page),
        httpx.Response(200, headers={"content-type": "text/html"}, text=page),
    )
    for answer in answers:
        made, _ = connection(answer)
        with pytest.raises(errors.CoderError) as caught:
            await made.request("POST", "/api/v2/x", body={})
        told = str(caught.value) + repr(caught.value) + repr(made) + repr(vars(made))
        told += repr(unavailable(caught.value).payload()) + "".join(format_exception(caught.value))
        assert TOKEN[:12] not in told
        await made.close()
    assert TOKEN not in caplog.text


async def test_pages_are_asked_for_until_all_are_there_each_agent_once() -> None:
    moment = "2026-08-10T09:15:02Z"
    build = {"id": "b", "created_at": moment, "updated_at": moment, "job": {}}

    def row(number: int) -> dict[str, Any]:
        moments = {"created_at": moment, "updated_at": moment}
        return {"id": str(number), "name": f"w{number}", "latest_build": build, **moments}

    def page(start: int, end: int, count: int) -> httpx.Response:
        rows = [row(number) for number in range(start, end)]
        return httpx.Response(200, headers=JSON, json={"workspaces": rows, "count": count})

    # A workspace that is deleted between two requests moves the others by one.
    made, script = connection(page(0, 100, 250), page(99, 199, 250), page(199, 249, 249))
    fleet = await CoderBackend(CoderClient(made), CoderNames()).agents()
    assert len({one.name for one in fleet}) == len(fleet) == 249
    assert [request.url.params["offset"] for request in script.requests] == ["0", "100", "200"]
    exact, script = connection(page(0, 100, 100))
    (page_of_all,) = await CoderClient(exact).workspaces("owner:me")
    assert len(page_of_all.rows) == 100
    assert len(script.requests) == 1
    await made.close()
    await exact.close()


async def test_the_older_create_route_is_used_where_the_new_one_is_missing() -> None:
    from fleet_agentpack.fleet.coder.models import Template

    missing = status(404, {"message": "Route not found."})
    refused = status(409, {"message": "taken"})
    made, script = connection(missing, refused, refused)
    client = CoderClient(made)
    template = Template(id="t", name="setup", organization_name="acme")
    for _ in range(2):
        with pytest.raises(errors.Conflict):
            await client.create_workspace("papi", template, {})
    older = "/api/v2/organizations/acme/members/me/workspaces"
    asked = [request.url.path for request in script.requests]
    assert asked == ["/api/v2/users/me/workspaces", older, older]  # tried once, then remembered
    await made.close()


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        ("event: ping\n\n", errors.Broken),
        ('event: error\ndata: {"message":"x"}\n\n', errors.Broken),
        ("event: data\ndata: [{\n\n", errors.Broken),
        ("event: ping\n\n" * 100_000, errors.TooLarge),
    ],
)
async def test_a_metadata_stream_without_data_is_broken(
    stream: str, kind: type[errors.CoderError]
) -> None:
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, text=stream)
    made, _ = connection(answer)
    with pytest.raises(kind):
        await CoderClient(made).metadata("agent")
    await made.close()
