"""Completion of the arguments of prompts and templates, in memory and on stdio, in both eras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp_types import PromptReference, ResourceTemplateReference

from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.completion import matching
from fleet_agentpack.wire.server import build_server
from tests.rig import Stdio, modern_meta

ERAS = ("legacy", "auto")
ROLES = "fleet://projects/{project}/roles/{role}"
COMMANDS = "climpt://commands/{c1}/{c2}/{c3}"


def template(uri: str) -> ResourceTemplateReference:
    return ResourceTemplateReference(type="ref/resource", uri=uri)


async def completed(client: Client[Any], ref: Any, name: str, typed: str = "", **given: str) -> Any:
    argument = {"name": name, "value": typed}
    return await client.complete(ref, argument, given or None)


@pytest.fixture
def climpt_project(work: Path) -> None:
    commands = [
        {"c1": c1, "c2": c2, "c3": c3, "description": "x"}
        for c1, c2, c3 in (
            ("git", "create", "branch"), ("git", "create", "tag"), ("docs", "check", "links")
        )
    ]  # fmt: skip
    folder = work / ".agent/climpt"
    folder.mkdir(parents=True)
    (folder / "registry.json").write_text(
        json.dumps({"version": "1.0.0", "tools": {"availableConfigs": [], "commands": commands}})
    )


@pytest.mark.usefixtures("climpt_project")
@pytest.mark.parametrize("mode", ERAS)
async def test_each_argument_has_its_values(work: Path, mode: Any) -> None:
    agents = work / ".fractary/agents/triage"
    agents.mkdir(parents=True)
    (agents / "agent.yaml").write_text("name: triage\ntype: agent\nversion: 1.0.0\n")
    (work.parent / "api/.git").mkdir(parents=True)
    config = work.parent / "config.toml"
    config.write_text(f'[fleet.projects.api]\npath = "{work.parent / "api"}"\n')
    settings = Settings.read(
        {"HOME": str(work.parent), "FLEET_AGENTPACK_CONFIG": str(config)}, work
    )
    async with Client(build_server(settings), mode=mode) as client:

        async def values(uri: str, name: str, typed: str = "", **given: str) -> list[str]:
            return (await completed(client, template(uri), name, typed, **given)).values

        assert await values(ROLES, "project") == ["api"]
        roles = await values(ROLES, "role", project="api")
        assert "coder" in roles and len(roles) == 3
        assert await values(ROLES, "role", project="nowhere") == []
        assert await values("fleet://agents/{name}", "name") == []
        assert await values("agentpack://snapshots/{id}", "id") == []
        assert await values("forge://agents/{name*}", "name", "tri") == ["triage"]
        assert await values("forge://agents/{name*}", "name", "zzz") == []
        assert await values(COMMANDS, "c1") == ["git", "docs"]
        assert await values(COMMANDS, "c2", c1="git") == ["create"]
        assert await values(COMMANDS, "c3", "BR", c1="git", c2="create") == ["branch"]
        assert await values("nothing://{x}", "x") == []
        fork = PromptReference(type="ref/prompt", name="forge_resolve_fork")
        assert (await completed(client, fork, "name")).values == []


def test_the_beginning_counts_before_the_middle_and_at_most_100_are_given() -> None:
    assert matching(["refund", "fund", "funding", "fund"], "FUND").values == [
        "fund", "funding", "refund"
    ]  # fmt: skip
    many = matching([f"a{n}" for n in range(250)], "a")
    assert (len(many.values), many.total, many.has_more) == (100, 250, True)


@pytest.mark.parametrize("modern", [False, True])
def test_the_front_and_the_server_say_the_same_of_what_they_can(modern: bool) -> None:
    """The front advertises completions, the server behind it answers; nobody promises logs."""
    meta = {"_meta": modern_meta()} if modern else {}
    with Stdio() as server:
        told = server.ask("server/discover", **meta)["result"] if modern else server.hello()
        assert told["capabilities"]["completions"] == {}
        assert "logging" not in told["capabilities"]
        ref = {"type": "ref/resource", "uri": "agentpack://snapshots/{id}"}
        argument = {"name": "id", "value": ""}
        answer = server.ask("completion/complete", ref=ref, argument=argument, **meta)
        assert answer["result"]["completion"]["values"] == []
        refused = server.ask("logging/setLevel", level="info", **meta)
        assert refused["error"]["code"] == -32601
