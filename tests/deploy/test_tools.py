"""The six tools and two resources, through a real client in memory and a real process."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from fleet_agentpack.kit.tree_watch import open_tree_watch
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.server import build_server
from tests.deploy.lab import Lab, files, tree
from tests.rig import Stdio

REPO = {
    "type": "string",
    "description": "Path to the agentpack config repo (default: $AGENTPACK_HOME/repo).",
}
TARGET = {
    "type": "string",
    "default": "all",
    "enum": ["all", "codex", "claude_code", "cursor", "vscode"],
}
MACHINE = {
    "type": "string",
    "description": "Machine id for machine overlays. Omit to auto-detect.",
}
YES = {"const": True, "description": "Required explicit approval for mutating operations."}
PROFILE = {"type": "string", "default": "default"}
DRY_RUN = {"type": "boolean", "default": False}
READ = {"repo": REPO, "profile": PROFILE, "target": TARGET, "machine": MACHINE, "dry_run": DRY_RUN}
ONLY = {
    "type": "array",
    "items": {"type": "string", "enum": ["missing", "modified", "extra"]},
}
EXTRAS = ("import_config", "keep_edits", "snapshots")
SCHEMAS: dict[str, dict[str, Any]] = {
    "plan": {"properties": READ},
    "diff": {"properties": READ},
    "status": {"properties": {**READ, "only": ONLY}},
    "doctor": {"properties": {"repo": REPO, "target": TARGET}},
    "deploy_apply": {
        "required": ["yes"],
        "properties": {
            **READ,
            "adopt": {
                "type": "boolean",
                "default": False,
                "description": "Allow overwriting existing unmanaged files (adopt updates).",
            },
            "dry_run": {
                **DRY_RUN,
                "description": "Force dry-run behavior (do not apply even if this tool is the"
                " apply variant).",
            },
            "yes": YES,
        },
    },
    "rollback": {
        "required": ["to", "yes"],
        "properties": {
            "repo": REPO,
            "to": {"type": "string", "description": "Snapshot id to rollback to."},
            "yes": YES,
        },
    },
}


@pytest.fixture
def lab(home: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    lab = Lab(home / "lab")
    lab.furnish()
    lab.enter(monkeypatch)
    return lab


@pytest.fixture
async def client(lab: Lab) -> AsyncIterator[Client[Any]]:
    async with Client(build_server(Settings.read())) as client:
        yield client


async def call(client: Client[Any], name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments, raise_on_error=False)
    data = result.structured_content
    assert json.loads(result.content[0].text) == data
    assert result.is_error is (not data["ok"])
    return data


async def test_schemas_are_the_contracts(client: Client[Any]) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    assert [name for name in tools if name not in EXTRAS] == list(SCHEMAS)
    for name, schema in SCHEMAS.items():
        expected = {"type": "object", "additionalProperties": False, **schema}
        assert tools[name].input_schema == expected, name
        assert tools[name].annotations.read_only_hint is (name not in ("deploy_apply", "rollback"))


async def test_plan_apply_status_rollback(client: Client[Any], lab: Lab) -> None:
    assert (await call(client, "doctor"))["command"] == "doctor"
    assert (await call(client, "plan"))["data"]["summary"]["create"] == 16
    dry = await call(client, "deploy_apply", yes=True, dry_run=True)
    assert dry["data"]["applied"] is False and files(lab.outside()) == {}
    applied = await call(client, "deploy_apply", yes=True)
    assert (applied["command"], applied["command_id"]) == ("deploy", "deploy --apply")
    first = applied["data"]["snapshot_id"]
    status = await call(client, "status", only=["missing", "modified"])
    assert status["data"]["drift"] == []
    lab.source("modules/prompts/hello.md", "two\n")
    assert (await call(client, "diff"))["data"]["summary"]["update"] == 2
    await call(client, "deploy_apply", yes=True)
    back = await call(client, "rollback", to=first, yes=True)
    assert back["data"]["rolled_back_to"] == first
    assert (lab.user / ".codex/prompts/hello.md").read_text() == "Say hello.\n"


@pytest.mark.parametrize("yes", [None, False, "true", 1, "yes", [True]])
async def test_nothing_happens_without_yes(client: Client[Any], lab: Lab, yes: Any) -> None:
    before = tree(lab.root)
    for tool, command in (("deploy_apply", "deploy"), ("rollback", "rollback")):
        for more in ({}, {"to": "x"}, {"target": "mars"}):
            arguments = {**more} if yes is None else {"yes": yes, **more}
            answer = await call(client, tool, **arguments)
            assert answer["errors"][0]["code"] == "E_CONFIRM_REQUIRED"
            assert answer["command"] == command
            assert answer["errors"][0]["details"]["reason_code"] == "confirm_required"
            assert answer["errors"][0]["details"]["next_actions"] == ["retry_with_yes"]
    assert tree(lab.root) == before


async def test_bad_arguments(client: Client[Any]) -> None:
    for arguments, code in [
        ({"target": "mars"}, "E_TARGET_UNSUPPORTED"),
        ({"target": 5}, "E_TARGET_UNSUPPORTED"),
        ({"profile": 5}, "E_INVALID_ARGUMENTS"),
        ({"junk": 1}, "E_INVALID_ARGUMENTS"),
        ({"dry_run": "true"}, "E_INVALID_ARGUMENTS"),
        ({"profile": "nope"}, "E_UNEXPECTED"),
        ({"repo": "/nowhere"}, "E_CONFIG_MISSING"),
    ]:
        answer = await call(client, "plan", **arguments)
        (error,) = answer["errors"]
        assert (answer["command"], error["code"]) == ("plan", code)
        assert error["message"] and error["details"]["next_actions"]
        assert error["details"]["reason_code"]
    answer = await call(client, "rollback", yes=True)
    assert answer["errors"][0]["code"] == "E_INVALID_ARGUMENTS"
    answer = await call(client, "deploy_apply", yes=True, target="mars")
    assert answer["errors"][0]["code"] == "E_TARGET_UNSUPPORTED"
    assert answer["command_id"] == "deploy --apply"


async def test_progress_while_applying(lab: Lab) -> None:
    seen: list[tuple[float, float | None]] = []

    async def on_progress(done: float, total: float | None, _text: str | None) -> None:
        seen.append((done, total))

    async with Client(build_server(Settings.read()), progress_handler=on_progress) as client:
        await call(client, "deploy_apply", yes=True)
    assert len(seen) > 10
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert all(total is not None and done <= total for done, total in seen)


async def test_snapshots_as_resources(client: Client[Any]) -> None:
    first = (await call(client, "deploy_apply", yes=True))["data"]["snapshot_id"]
    (listed,) = await client.read_resource("agentpack://snapshots")
    rows = json.loads(listed.text)["data"]["snapshots"]
    assert [(row["id"], row["kind"], row["files"]) for row in rows] == [(first, "deploy", 16)]
    (one,) = await client.read_resource(f"agentpack://snapshots/{first}")
    assert json.loads(one.text)["data"]["snapshot"]["id"] == first
    (none,) = await client.read_resource("agentpack://snapshots/nope")
    assert json.loads(none.text)["errors"][0]["details"]["snapshots"] == [first]


def test_over_stdio_with_two_servers_at_once(lab: Lab) -> None:
    with Stdio(cwd=lab.project) as one, Stdio(cwd=lab.project) as other:
        for server in (one, other):
            server.hello()
        numbers = [
            (server, server.send("tools/call", name="deploy_apply", arguments={"yes": True}))
            for server in (one, other)
        ]
        answers = [server.wait(number)["result"] for server, number in numbers]
        applied = [answer["structuredContent"]["data"]["applied"] for answer in answers]
        assert sorted(applied) == [False, True]
        status = one.call("status")["structuredContent"]
        assert status["data"]["drift"] == [] and status["warnings"] == []
        assert one.bad_lines == other.bad_lines == []
    assert os.path.exists(lab.user / ".codex/AGENTS.md")


def test_over_stdio_a_change_is_seen_by_the_next_plan(lab: Lab) -> None:
    def changes(tool: str) -> list[str]:
        return [row["path"] for row in server.call(tool)["structuredContent"]["data"]["changes"]]

    with Stdio(cwd=lab.project) as server:
        server.hello()
        server.call("deploy_apply", yes=True)
        assert changes("plan") == changes("plan") == changes("diff") == []
        if _is_notified(lab.project):
            assert _watches(server.process.pid) > 20
        lab.source("modules/skills/tidy/more.md", "More.\n")
        assert {os.path.basename(path) for path in changes("plan")} == {"more.md"}
        server.call("deploy_apply", yes=True)
        assert changes("plan") == []
        outputs = list(lab.user.rglob("more.md"))
        outputs[0].unlink()
        assert changes("diff") == changes("plan") == [str(outputs[0])]
        assert server.close() == 0


def _is_notified(directory: Path) -> bool:
    """Whether changes are notified here; in a container they may not be."""
    watch = open_tree_watch()
    if watch is None:
        return False
    watch.into(str(directory))
    sure = watch.is_sure()
    watch.close()
    return sure


def _watches(process: int) -> int:
    """How many files and directories a process is notified of."""
    infos = Path(f"/proc/{process}/fdinfo").iterdir()
    return sum(info.read_text().count("inotify wd") for info in infos)
