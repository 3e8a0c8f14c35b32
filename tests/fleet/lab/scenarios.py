"""What the cassettes show, one function each: the conversations that `pytest --record` records."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from tests.fleet.lab.tape import (
    SPEC,
    Tape,
    agent_is,
    agents,
    is_status,
    job_is,
    lifecycle_is,
    said,
)
from tests.fleet.stage import PROJECT

OAUTH = "Implement user authentication with OAuth2. Include tests and documentation."
NOBODY = "00000000-0000-4000-8000-000000000000"
OTHER_TOKEN = f"{'a' * 10}-{'b' * 22}"  # well-formed, and nobody's
OURS = "owner:me param:agent_role"
FIRST_TASK = "Your specification:\nKeep the build green\n\nwork 1 Tidy up"
ENDED = ("succeeded", "failed", "canceled")


async def discovery(t: Tape) -> None:
    """Who am I, what server is this, what an absent feature and a bad token look like"""
    await t.ask("GET", "/api/v2/buildinfo", token=None)
    await t.ask("GET", "/api/v2/users/me")
    await t.ask("GET", "/api/v2/tasks", params={"q": "owner:me"})
    await t.ask("GET", "/api/v2/nonsense")
    for token in (None, "not-a-token", OTHER_TOKEN):
        await t.ask("GET", "/api/v2/users/me", token=token)
    await t.ask("GET", "/api/v2/workspaces", params=page("owner:me"), token=OTHER_TOKEN)
    await t.ask("GET", "/api/v2/deployment/config")


async def projects(t: Tape) -> None:
    """Templates, and the roles of each: rich parameters of the active version"""
    found = (await t.ask("GET", "/api/v2/templates")).json()
    for one in found:
        version = f"/api/v2/templateversions/{one['active_version_id']}"
        await t.template(one["name"], keep=True)
        await t.ask("GET", "/api/v2/templates", params={"q": f"exact_name:{one['name']}"})
        await t.ask("GET", version)
        await t.ask("GET", f"{version}/rich-parameters")
        await t.ask("GET", f"{version}/presets")
    await t.template(PROJECT.upper(), keep=True)
    await t.template("no-such-project", keep=True)
    await t.ask("GET", f"/api/v2/templateversions/{NOBODY}/rich-parameters")


async def empty_fleet(t: Tape) -> None:
    """No agents at all"""
    await t.ask("GET", "/api/v2/workspaces", params=page("owner:me"))
    await t.ask("GET", "/api/v2/workspaces", params=page(OURS))


async def create_agent(t: Tape) -> None:
    """A create that works: every state until the agent is connected, the build's log"""
    await t.ask("GET", "/api/v2/templates")
    template = await t.template(PROJECT, keep=True)
    version = f"/api/v2/templateversions/{template['active_version_id']}"
    await t.ask("GET", f"{version}/rich-parameters")
    await t.ask("GET", "/api/v2/users/me/workspace/papi")
    made = await t.create("papi", spec=OAUTH, keep=True)
    build = f"/api/v2/workspacebuilds/{made['latest_build']['id']}"
    await t.poll(build, job_is("succeeded"), every=0.05)
    logs = (await t.ask("GET", f"{build}/logs")).json()
    for row in logs:
        await t.ask("GET", f"{build}/logs", params={"after": row["id"]})
    await t.poll(f"/api/v2/workspaces/{made['id']}", said("idle"))
    found = await t.look("papi")
    await t.metadata(agents(found)[0]["id"])
    await t.remove("papi")


async def create_refused(t: Tape) -> None:
    """Creates that Coder refuses, and an unknown parameter, which it silently drops"""
    await t.ready("sony")
    template = await t.template(PROJECT, keep=True)

    async def post(
        name: str, values: dict[str, str] | None = None, template_id: str | None = None
    ) -> Any:
        given = {"agent_role": "coder", "agent_spec": "x"} if values is None else values
        body = {
            "name": name,
            "template_id": template_id or template["id"],
            "rich_parameter_values": [{"name": k, "value": v} for k, v in given.items()],
        }
        return await t.ask("POST", "/api/v2/users/me/workspaces", body)

    for name in ("sony", "SONY", "bad_name", "-x", "new", "a" * 33):
        await post(name)
    await post("cara", {"agent_role": "astronaut", "agent_spec": "x"})
    await post("cara", {"agent_role": "coder"})
    await post("cara", template_id=NOBODY)
    values = {"agent_role": "coder", "agent_spec": "x", "no_such_parameter": "lost"}
    made = (await post("dropped", values)).json()
    build = f"/api/v2/workspacebuilds/{made['latest_build']['id']}"
    await t.poll(build, job_is("succeeded"), keep=False)
    await t.ask("GET", f"{build}/parameters")
    await t.remove("dropped")
    await t.remove("sony")


async def create_build_fails(t: Tape) -> None:
    """A create whose build fails: states, log, how it looks afterwards; deleting it"""
    made = await t.create("bruno", "broken-build", keep=True)
    build = f"/api/v2/workspacebuilds/{made['latest_build']['id']}"
    await t.poll(build, job_is("failed"), every=0.05)
    await t.ask("GET", f"{build}/logs")
    await t.look("bruno")
    await t.ask("GET", "/api/v2/workspaces", params=page("owner:me"))
    await t.remove("bruno", keep=True)


async def delete_agent(t: Tape) -> None:
    """An ordinary delete; one of nobody; one that the infrastructure refuses"""
    made, _ = await t.ready("papi")
    await t.look("papi")
    await destroy(t, made["id"], "succeeded")
    await t.ask("GET", f"/api/v2/workspaces/{made['id']}")
    await t.ask("GET", "/api/v2/users/me/workspace/papi")
    await t.ask("GET", "/api/v2/users/me/workspace/nobody")
    stuck, _ = await t.ready("stuck", "broken-delete")
    await t.look("stuck")
    build = await destroy(t, stuck["id"], "failed")
    await t.ask("GET", f"{build}/logs")
    await t.ask("GET", "/api/v2/users/me/workspace/stuck")


async def delete_while_building(t: Tape) -> None:
    """Deleting during a build that never ends: 409, cancel, wait, delete, 410"""
    made = await t.create("slowpoke", "slow-build", keep=True)
    build = f"/api/v2/workspacebuilds/{made['latest_build']['id']}"
    await t.poll(build, job_is("running"), every=0.05)
    await t.look("slowpoke")
    path = f"/api/v2/workspaces/{made['id']}"
    await t.ask("POST", f"{path}/builds", {"transition": "delete"})
    await t.ask("PATCH", f"{build}/cancel")
    await t.poll(build, job_is(*ENDED))
    await destroy(t, made["id"], "succeeded")
    await t.ask("GET", path)
    await t.ask("GET", "/api/v2/users/me/workspace/slowpoke")


async def show_agent(t: Tape) -> None:
    """One agent with its pull request in the metadata, then the same while it works"""
    _, app = await t.ready("papi", spec="Implement OAuth2 authentication")
    folder = t.lab.workspaces / "papi"
    (folder / "pull_request_url").write_text("https://github.com/org/repo/pull/123")
    (folder / "pull_request_status").write_text("open")
    (folder / "pull_request_check_status").write_text("passing")
    found = await t.look("papi")
    await t.metadata(agents(found)[0]["id"], '"value":"passing"')
    await t.ask("GET", f"{app}/status")
    path = "/api/v2/users/me/workspace/papi"
    await t.say(app, "work 8 Writing integration tests", keep=False)
    await t.poll(path, said("working"), keep=False)
    await t.ask("GET", path)
    await t.ask("GET", f"{app}/status")
    await t.ask("GET", f"{app}/messages")
    await t.ask("GET", "/api/v2/users/me/workspace/nobody")
    await t.poll(path, said("complete"), keep=False)
    await t.ask("GET", path)
    await t.remove("papi")


async def tasks(t: Tape) -> None:
    """Tasks through AgentAPI: started, refused while busy, finished, failed"""
    _, app = await t.ready("papi")
    path = "/api/v2/users/me/workspace/papi"
    await t.look("papi")
    await t.ask("GET", f"{app}/status")
    await t.say(app, "Fix authentication bug in login endpoint")
    await t.ask("GET", f"{app}/status")
    await t.say(app, "And another thing")
    await t.ask("GET", path)
    await t.poll(path, said("working"), keep=False)
    await t.ask("GET", path)
    await t.poll(path, said("complete"), keep=False)
    await t.ask("GET", path)
    await t.poll(f"{app}/status", is_status("stable"))
    await t.ask("GET", f"{app}/messages")
    await t.say(app, "fail on purpose")
    await t.poll(path, said("working"), keep=False)
    await t.ask("GET", path)
    await t.poll(path, said("failure"), keep=False)
    await t.ask("GET", path)
    await t.poll(f"{app}/status", is_status("stable"))
    await t.say(app, "")
    await t.say(app, "x", "nonsense")
    await t.remove("papi")


async def stop_task(t: Tape) -> None:
    """Interrupting: ESC as a raw message, until AgentAPI is stable; ESC when idle"""
    _, app = await t.ready("papi")
    path = "/api/v2/users/me/workspace/papi"
    await t.look("papi")
    await t.ask("GET", f"{app}/status")
    await t.say(app, "work 60 Migrate the database")
    await t.poll(path, said("working"))
    await t.ask("GET", f"{app}/status")
    await t.say(app, "\x1b", "raw")
    await t.poll(f"{app}/status", is_status("stable"))
    await t.poll(path, said("idle"))
    await t.say(app, "\x1b", "raw")
    await t.ask("GET", f"{app}/messages")
    await t.remove("papi")


async def unreachable_agents(t: Tape) -> None:
    """The proxy's HTML errors: no such app, @me, signed out, crashed, never connected, stopped"""
    _, app = await t.ready("papi")
    for place in ("/@me/papi.main", "/@fleet/papi", "/@fleet/nobody.main"):
        await t.ask("GET", f"{place}/apps/claude-code/status")
    await t.ask("GET", "/@fleet/papi.main/apps/no-such-app/status")
    for token in (None, OTHER_TOKEN, t.lab.owner_token):
        await t.ask("GET", f"{app}/status", token=token)
    started = t.lab.started("papi")
    os.killpg(started.api.pid, signal.SIGKILL)
    await t.poll(f"{app}/status", lambda answer: answer.is_error, keep=False)
    await t.ask("GET", f"{app}/status")
    await t.say(app, "hello")
    os.killpg(started.agent.pid, signal.SIGKILL)
    await t.poll("/api/v2/users/me/workspace/papi", agent_is("disconnected"), keep=False)
    await t.look("papi")
    await t.ask("GET", f"{app}/status")
    await t.remove("papi")
    await t.create("delta", "offline-devcontainer")
    await t.poll("/api/v2/users/me/workspace/delta", agent_is("timeout"))
    await t.look("delta")
    await t.ask("GET", "/@fleet/delta.main/apps/claude-code/status")
    await t.remove("delta")


async def list_agents(t: Tape) -> None:
    """A fleet of eight: idle, busy, offline, failed, stopped, building; paging and filters"""
    for name in ("alpha", "bravo", "charlie"):
        await t.ready(name, spec=f"Look after {name}")
    await t.create("delta", "offline-devcontainer")
    await t.create("echo", "broken-build")
    await t.create("foxtrot", "slow-build")
    _, app = await t.ready("bravo-2")
    await stop(t, "charlie")
    await t.say(app, "work 20 Writing integration tests", keep=False)
    await t.poll("/api/v2/users/me/workspace/bravo-2", said("working"), keep=False)
    await t.poll("/api/v2/users/me/workspace/delta", agent_is("timeout"), keep=False)
    for params in (page("owner:me"), page(OURS), page("owner:me", offset=100)):
        await t.ask("GET", "/api/v2/workspaces", params=params)
    refused = page("owner:me include_agent_metadata:fleet_mcp_agent_spec")
    await t.ask("GET", "/api/v2/workspaces", params=refused)
    names = ("alpha", "bravo-2", "charlie", "delta", "echo", "foxtrot")
    for name in names:
        found = await t.look(name)
        if name in ("alpha", "bravo-2"):
            await t.metadata(agents(found)[0]["id"])
        await t.ask("GET", f"/@fleet/{name}.main/apps/claude-code/status")
    await t.ask("GET", "/api/v2/users/me/workspace/ALPHA")
    found = (await t.ask("GET", "/api/v2/users/me/workspace/foxtrot", keep=False)).json()
    build = f"/api/v2/workspacebuilds/{found['latest_build']['id']}"
    await t.ask("PATCH", f"{build}/cancel", keep=False)
    await t.poll(build, job_is(*ENDED), keep=False)
    for name in (*names, "bravo"):
        await t.remove(name)


async def not_an_agent(t: Tape) -> None:
    """A person's ordinary workspace beside one agent: no role parameter, left out of the list"""
    template = await t.template("plain")
    body = {"name": "my-dev-box", "template_id": template["id"]}
    await t.ask("POST", "/api/v2/users/me/workspaces", body, keep=False)
    await t.ready("papi")
    path = "/api/v2/users/me/workspace/my-dev-box"
    await t.poll(path, agent_is("connected"), keep=False)
    await t.look("my-dev-box")
    await t.look("papi")
    await t.ask("GET", "/api/v2/workspaces", params=page("owner:me"))
    await t.ask("GET", "/api/v2/workspaces", params=page(OURS))
    await t.remove("my-dev-box")
    await t.remove("papi")


async def as_they_are(t: Tape) -> None:
    """Templates without roles: presets, required parameters, a startup that fails, a stop"""
    found = {one["name"]: one for one in (await t.ask("GET", "/api/v2/templates")).json()}
    version = f"/api/v2/templateversions/{found['go-dev']['active_version_id']}"
    await t.ask("GET", f"{version}/rich-parameters")
    presets = {one["Name"]: one for one in (await t.ask("GET", f"{version}/presets")).json()}
    broken = f"/api/v2/templateversions/{found['broken-startup']['active_version_id']}"
    for part in ("rich-parameters", "presets"):
        await t.ask("GET", f"{broken}/{part}")
    refused = {"name": "papi", "template_id": found["go-dev"]["id"], "rich_parameter_values": []}
    await t.ask("POST", "/api/v2/users/me/workspaces", refused)
    given = {**refused, "template_version_preset_id": presets["Large"]["ID"]}
    made = (await t.ask("POST", "/api/v2/users/me/workspaces", given)).json()
    await built(t, made["latest_build"]["id"])
    place = f"/api/v2/workspaces/{made['id']}"
    await t.poll("/api/v2/users/me/workspace/papi", said("idle"), keep=False)
    await t.ask("GET", place)
    await t.look("papi")
    for query in (OURS, "owner:me template:go-dev", "owner:me template:broken-startup"):
        await t.ask("GET", "/api/v2/workspaces", params=page(query))
    app = "/@fleet/papi.main/apps/claude-code"
    await t.poll(f"{app}/status", is_status("stable"), keep=False)
    await stop(t, "papi")
    await t.look("papi")
    again = (await t.ask("POST", f"{place}/builds", {"transition": "start"})).json()
    await built(t, again["id"])
    await t.poll(place, lifecycle_is("ready"))
    await t.poll(f"{app}/status", is_status("stable"))
    await t.ask("GET", f"{app}/messages")
    await t.say(app, FIRST_TASK)
    await t.poll("/api/v2/users/me/workspace/papi", said("complete"), keep=False)
    await t.look("papi")
    given = {**refused, "name": "sony", "template_id": found["broken-startup"]["id"]}
    broke = (await t.ask("POST", "/api/v2/users/me/workspaces", given)).json()
    await built(t, broke["latest_build"]["id"])
    place = f"/api/v2/workspaces/{broke['id']}"
    ended = (await t.poll(place, lifecycle_is("start_error"), keep=False)).json()
    await t.ask("GET", place)
    await t.ask("GET", f"/api/v2/workspaceagents/{agents(ended)[0]['id']}/logs")
    await t.look("sony")
    for name in ("papi", "sony"):
        await t.remove(name)


async def rate_limited(t: Tape) -> None:
    """More than 512 requests a minute to one path"""
    for _ in range(600):
        path = "/api/v2/users/me/workspace/nobody"
        if (await t.ask("GET", path, keep=False)).status_code == 429:
            await t.ask("GET", path)
            return
    raise AssertionError("never limited")


def page(query: str, offset: int = 0) -> dict[str, Any]:
    """A list as our client asks for it."""
    return {"q": query, "limit": 100, "offset": offset}


async def built(t: Tape, build_id: str) -> None:
    """A build until it has succeeded, and its log."""
    build = f"/api/v2/workspacebuilds/{build_id}"
    await t.poll(build, job_is("succeeded"), keep=False)
    await t.ask("GET", build)
    await t.ask("GET", f"{build}/logs")


async def destroy(t: Tape, workspace_id: str, status: str) -> str:
    """Delete a workspace on the record; returns where its build is."""
    path = f"/api/v2/workspaces/{workspace_id}/builds"
    build = (await t.ask("POST", path, {"transition": "delete"})).json()
    place = f"/api/v2/workspacebuilds/{build['id']}"
    await t.poll(place, job_is(status), every=0.05)
    return place


async def stop(t: Tape, name: str) -> None:
    """Stop a workspace, off the record."""
    found = (await t.ask("GET", f"/api/v2/users/me/workspace/{name}", keep=False)).json()
    path = f"/api/v2/workspaces/{found['id']}/builds"
    build = (await t.ask("POST", path, {"transition": "stop"}, keep=False)).json()
    await t.poll(f"/api/v2/workspacebuilds/{build['id']}", job_is("succeeded"), keep=False)


Scenario = Callable[[Tape], Awaitable[None]]

# An empty fleet comes first and `delete_agent`, which leaves one that cannot be deleted, last but
# for `list_agents` and `not_an_agent`, which show it.
SCENARIOS: list[Scenario] = [
    discovery,
    projects,
    empty_fleet,
    create_agent,
    create_refused,
    create_build_fails,
    delete_while_building,
    show_agent,
    tasks,
    stop_task,
    unreachable_agents,
    delete_agent,
    list_agents,
    not_an_agent,
    as_they_are,
]

__all__ = ["SCENARIOS", "SPEC", "rate_limited"]
