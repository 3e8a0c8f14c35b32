"""Coder deployments as they are: templates without roles, presets, stopped workspaces, 403s."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleet_agentpack.config import TemplateTable
from fleet_agentpack.fleet.coder.orders import CoderNames
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.service import FleetService
from tests.fleet.fakecoder import FakeCoder, fleet_of, recorded
from tests.fleet.stage import Stage, service

OLD = "/api/v2/templates"


def template(name: str) -> dict[str, Any]:
    row: dict[str, Any] = dict(recorded("projects", OLD)[0])
    return {**row, "id": f"id-{name}", "name": name, "active_version_id": f"v-{name}"}


def preset(name: str, **values: str) -> dict[str, Any]:
    rows = [{"Name": key, "Value": value} for key, value in values.items()]
    return {"ID": f"preset-{name}", "Name": name, "Parameters": rows, "Description": "Ready"}


@dataclass
class Deployment(FakeCoder):
    """A Coder whose templates were not made for agents."""

    asked: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    presets: dict[str, list[dict[str, Any]] | None] = field(default_factory=dict)
    closed: tuple[str, ...] = ()
    posted: list[dict[str, Any]] = field(default_factory=list)
    given: dict[str, dict[str, str]] = field(default_factory=dict)  # by build

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == OLD:
            return httpx.Response(200, json=[template(name) for name in self.asked])
        if "/templateversions/" in path:
            name = path.split("/")[4].removeprefix("v-")
            if name in self.closed:
                return httpx.Response(403, json={"message": "Forbidden."})
            rows = self.asked[name] if path.endswith("/rich-parameters") else self.presets.get(name)
            kind = {"content-type": "application/json"}
            return httpx.Response(200, headers=kind, content=json.dumps(rows))
        if path == "/api/v2/users/me/workspaces":
            return self._make(json.loads(request.content))
        if path == "/api/v2/workspaces":
            wanted = request.url.params["q"].rpartition(":")[2]
            rows = [row for row in self.workspaces if self._fits(row, wanted)]
            return httpx.Response(200, json={"workspaces": rows, "count": len(rows)})
        if path.startswith("/api/v2/workspaces/") and path.endswith("/builds"):
            return self._start(path.split("/")[4])
        if path.startswith("/api/v2/workspaces/"):
            row = next(row for row in self.workspaces if row["id"] == path.split("/")[4])
            return httpx.Response(200, json=row)
        if path.endswith("/logs"):
            return httpx.Response(200, json=[])
        if path.endswith("/parameters"):
            values = self.given[path.split("/")[4]]
            return httpx.Response(200, json=[{"name": k, "value": v} for k, v in values.items()])
        if path.startswith("/api/v2/workspacebuilds/"):
            builds = [row["latest_build"] for row in self.workspaces]
            build = next(one for one in builds if one["id"] == path.split("/")[4])
            return httpx.Response(200, json=build)
        return super().answer(request)

    def _make(self, body: dict[str, Any]) -> httpx.Response:
        self.posted.append(body)
        made = {**fleet_of(len(self.workspaces) + 1)[-1], "name": body["name"]}
        made["template_name"] = body["template_id"].removeprefix("id-")
        values = {row["name"]: row["value"] for row in body["rich_parameter_values"]}
        for one in self.presets.get(made["template_name"]) or []:
            if one["ID"] == body.get("template_version_preset_id"):
                values |= {row["Name"]: row["Value"] for row in one["Parameters"]}
        self.given[made["latest_build"]["id"]] = values
        self.workspaces.append(made)
        return httpx.Response(201, json=made)

    def _start(self, workspace_id: str) -> httpx.Response:
        row = next(row for row in self.workspaces if row["id"] == workspace_id)
        old = row["latest_build"]["id"]
        row["latest_build"] = {**fleet_of(9)[8]["latest_build"], "transition": "start"}
        self.given[row["latest_build"]["id"]] = self.given[old]
        return httpx.Response(201, json=row["latest_build"])

    def _fits(self, row: dict[str, Any], wanted: str) -> bool:
        return row["template_name"] == wanted or wanted in self.given[row["latest_build"]["id"]]


def parameter(name: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "required": required, "options": []}


def on(coder: Deployment, folder: Path, start_stopped: bool = False, **tables: Any) -> FleetService:
    names = CoderNames(templates=tables, start_stopped=start_stopped)
    return service(folder / "fleet.db", transport=coder, names=names)


async def refused(work: Any) -> str:
    with pytest.raises(FleetError) as caught:
        await work
    assert caught.value.kind == "bad_request"
    return str(caught.value)


async def test_a_template_without_roles_is_used_as_it_is_and_the_first_task_tells_the_rest(
    tmp_path: Path,
) -> None:
    coder = Deployment([], asked={"dev": [parameter("region", required=True)]})
    fleet = on(coder, tmp_path)
    assert "[fleet.coder.templates.dev]" in await refused(fleet.create("a", "dev", "coder", "x"))
    assert (await fleet.projects()).projects == []
    await fleet.close()

    fleet = on(coder, tmp_path, dev=TemplateTable())
    assert "also asks for region" in await refused(fleet.create("a", "dev", "coder", "x"))
    await fleet.close()

    table = TemplateTable(parameters={"region": "eu"})
    fleet = on(coder, tmp_path, dev=table)
    assert [one.name for one in (await fleet.projects()).projects] == ["dev"]
    assert (await fleet.roles("dev")).roles[0].name == "coder"
    made = (await fleet.create("papi", "dev", "coder", "Keep it green")).agent
    assert (made.role, made.spec, made.status) == ("coder", "Keep it green", "idle")
    assert coder.posted[-1]["rich_parameter_values"] == [{"name": "region", "value": "eu"}]
    await fleet.start("papi", "Fix the build")
    text = coder.messages[-1]["content"]
    assert "software engineer" in text and "Keep it green" in text
    assert text.endswith("\n\nFix the build")
    await fleet.stop("papi")
    await fleet.start("papi", "And again")
    assert coder.messages[-1]["content"] == "And again"
    assert [row.name for row in (await fleet.agents()).agents] == ["papi"]
    assert (await fleet.show("papi")).agent.spec == "Keep it green"
    await fleet.close()


async def test_a_workspace_of_a_configured_template_that_we_did_not_make_is_no_agent(
    tmp_path: Path,
) -> None:
    coder = Deployment([], asked={"dev": []})
    fleet = on(coder, tmp_path, dev=TemplateTable())
    await fleet.create("papi", "dev", "coder", "x")
    coder._make({"name": "mine", "template_id": "id-dev", "rich_parameter_values": []})
    assert [row.name for row in (await fleet.agents()).agents] == ["papi"]
    for work in (fleet.show("mine"), fleet.delete("mine"), fleet.start("mine", "x")):
        with pytest.raises(FleetError) as caught:
            await work
        assert caught.value.kind == "not_found"
    assert len(coder.workspaces) == 2
    await fleet.close()


async def test_presets_are_roles_and_are_asked_for_by_id(tmp_path: Path) -> None:
    presets = {"dev": [preset("coder", region="eu", size="L"), preset("operator", region="us")]}
    asked = {"dev": [parameter("region", required=True), parameter("size"), parameter("spec")]}
    coder = Deployment([], asked=asked, presets=presets)  # type: ignore[arg-type]
    fleet = on(coder, tmp_path, dev=TemplateTable())
    assert [one.name for one in (await fleet.roles("dev")).roles] == ["coder", "operator"]
    await fleet.create("papi", "dev", "operator", "Fly")
    posted = coder.posted[-1]
    assert posted["template_version_preset_id"] == "preset-operator"
    assert posted["rich_parameter_values"] == [{"name": "spec", "value": "Fly"}]
    assert "choose from coder, operator" in await refused(fleet.create("b", "dev", "x", "y"))
    await fleet.close()

    table = TemplateTable(presets={"coder": "operator"})
    fleet = on(coder, tmp_path, dev=table)
    await fleet.create("sony", "dev", "coder", "Fly")
    assert coder.posted[-1]["template_version_preset_id"] == "preset-operator"
    await fleet.close()
    fleet = on(coder, tmp_path, dev=TemplateTable(preset="none"))
    assert "no preset 'none'" in await refused(fleet.create("c", "dev", "coder", "y"))
    await fleet.close()


async def test_a_prebuilt_workspace_is_found_by_the_preset_that_sets_the_same_values(
    tmp_path: Path,
) -> None:
    roles = {**parameter("agent_role"), "options": [{"value": "coder"}, {"value": "operator"}]}
    asked = {"dev": [roles, parameter("agent_spec"), parameter("region")]}
    presets = {"dev": [preset("x", agent_role="operator"), preset("y", agent_role="coder")]}
    coder = Deployment([], asked=asked, presets=presets)  # type: ignore[arg-type]
    fleet = on(coder, tmp_path, dev=TemplateTable(parameters={"region": "eu"}))
    await fleet.create("papi", "dev", "coder", "Fly")
    assert coder.posted[-1]["template_version_preset_id"] == "preset-y"
    assert (await fleet.show("papi")).agent.role == "coder"
    other = service(tmp_path / "other.db", transport=coder)  # its build tells that it is an agent
    assert [row.name for row in (await other.agents()).agents] == ["papi"]
    await other.close()
    await fleet.close()
    wrong = TemplateTable(parameters={"regoin": "eu"})
    fleet = on(coder, tmp_path, dev=wrong)
    assert "no parameter regoin" in await refused(fleet.create("d", "dev", "coder", "y"))
    await fleet.close()


async def test_a_template_that_is_closed_to_us_does_not_fail_the_list(tmp_path: Path) -> None:
    asked = {"open": [parameter("agent_role"), parameter("spec")], "secret": []}
    coder = Deployment([], asked=asked, closed=("secret",))
    fleet = on(coder, tmp_path)
    found = await fleet.projects()
    assert [one.name for one in found.projects] == ["open"]
    assert "secret" in str(found.warnings) and "403" in str(found.warnings)
    await fleet.close()


async def test_a_stopped_workspace_is_started_for_a_task_only_when_that_is_configured(
    tmp_path: Path,
) -> None:
    asked = {"dev": [parameter("agent_role"), parameter("spec")]}
    coder = Deployment([], asked=asked)
    fleet = on(coder, tmp_path)
    await fleet.create("papi", "dev", "coder", "Fly")
    build = coder.workspaces[0]["latest_build"]
    build |= {"status": "stopped", "transition": "stop", "resources": []}
    assert "is stopped" in await refused(fleet.start("papi", "Up"))
    await fleet.close()
    fleet = on(coder, tmp_path, start_stopped=True)
    heard: list[str] = []
    await fleet.start("papi", "Up", lambda _done, _total, text: heard.append(text))
    assert heard[0] == "Starting workspace 'papi'"
    assert coder.messages[-1]["content"] == "Up"
    assert (await fleet.agents()).agents[0].status == "busy"
    await fleet.close()


async def test_a_workspace_that_somebody_else_just_started_is_waited_for(tmp_path: Path) -> None:
    coder = Deployment([], asked={"dev": [parameter("agent_role"), parameter("spec")]})
    fleet = on(coder, tmp_path, start_stopped=True)
    await fleet.create("papi", "dev", "coder", "Fly")
    row = coder.workspaces[0]
    up = row["latest_build"]
    down = {**up, "status": "stopped", "transition": "stop", "resources": []}
    begun = {**up, "status": "starting", "job": {**up["job"], "status": "running"}}
    begun["resources"] = []

    def refuse(request: httpx.Request) -> Any:
        if request.method == "POST" and request.url.path.endswith("/builds"):
            row["latest_build"] = begun
            return httpx.Response(409, json={"message": "A workspace build is already active."})
        if request.method == "GET" and "/workspacebuilds/" in request.url.path:
            row["latest_build"] = up  # by the time that we look, it is done
        return None

    coder.trouble = refuse
    for seen in (down, begun):  # somebody was quicker; somebody began before we looked
        row["latest_build"], coder.busy = seen, False
        assert (await fleet.start("papi", "Up")).agent_status == "busy"
        assert coder.messages[-1]["content"] == "Up"
        await fleet.stop("papi")
    row["latest_build"] = {**begun, "transition": "delete", "status": "deleting"}
    assert "is deleting" in await refused(fleet.start("papi", "Up"))
    await fleet.close()


@pytest.mark.cassettes("as_they_are")
async def test_a_real_template_made_for_people_is_used_with_its_preset(stage: Stage) -> None:
    tables = {"go-dev": TemplateTable(), "broken-startup": TemplateTable()}
    fleet = stage.another(CoderNames(templates=tables, start_stopped=True))
    roles = [role.name for role in (await fleet.roles("go-dev")).roles]
    assert roles == ["Large", "Small"]
    made = (await fleet.create("papi", "go-dev", "Large", "Keep the build green")).agent
    assert (made.role, made.status) == ("Large", "idle")
    assert [row.name for row in (await fleet.agents()).agents] == ["papi"]
    assert (await fleet.history("papi")).total_count == 0
    await stage.stop_workspace("papi")
    heard: list[str] = []
    await fleet.start("papi", "work 1 Tidy up", lambda _done, _total, text: heard.append(text))
    assert heard[0] == "Starting workspace 'papi'"
    with pytest.raises(FleetError, match="startup script failed") as caught:
        await fleet.create("sony", "broken-startup", "coder", "Keep the build green")
    assert any("npm: command not found" in line for line in caught.value.details["log"])
    broken = (await fleet.show("sony")).agent
    assert broken.status == "offline"
    assert broken.metadata["fleet_mcp_attention"].startswith("start_error")
    if stage.live:
        for name in ("papi", "sony"):
            await fleet.delete(name)
