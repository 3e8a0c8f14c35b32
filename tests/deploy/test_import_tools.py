"""An agent at the other end: from nothing to an imported, deployed, edited and kept pack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.server import build_server
from tests.deploy.existing import furnish
from tests.deploy.lab import Lab
from tests.deploy.test_tools import call


@pytest.fixture
def lab(home: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    lab = furnish(home / "lab", "claude_user", "whole_team_project")
    lab.enter(monkeypatch)
    return lab


@pytest.fixture
async def client(lab: Lab) -> AsyncIterator[Client[Any]]:
    async with Client(build_server(Settings.read())) as client:
        yield client


async def test_from_nothing_to_a_deployed_pack_by_tool_calls_alone(
    client: Client[Any], lab: Lab
) -> None:
    lab.write("user/.claude/skills/tidy/.env", "KEY=x\n")
    before = lab.outside()
    missing = (await call(client, "plan"))["errors"][0]
    assert missing["details"]["next_actions"][0] == "import_config"

    preview = (await call(client, "import_config", dry_run=True))["data"]
    assert {row["id"] for row in preview["modules"]} >= {"instructions:user", "skill:tidy"}
    assert [row["key"] for row in preview["secrets"]] == ["", "mcpServers.x.env.KEY"]
    refused = (await call(client, "import_config"))["errors"][0]
    assert refused["code"] == "E_CONFIRM_REQUIRED"
    assert not (lab.repo / "agentpack.yaml").exists()

    done = (await call(client, "import_config", yes=True))["data"]
    assert done["applied"] and done["plan"] == {"create": 0, "delete": 0, "update": 0}
    assert "deploy_apply" in done["next_actions"][0]
    assert (await call(client, "plan"))["data"]["changes"] == []
    assert (await call(client, "deploy_apply", yes=True))["data"]["applied"]
    assert {path: lab.outside()[path] for path in before} == before
    assert (await call(client, "status"))["data"]["drift"] == []
    lab.write("user/.claude/skills/tidy/.env.local", "KEY=x\n")
    assert [row["kind"] for row in (await call(client, "status"))["data"]["drift"]] == ["extra"]
    await call(client, "import_config", yes=True)
    assert (await call(client, "status"))["data"]["drift"] == []

    (lab.project / "AGENTS.md").write_text("# Team\n- by hand\n")
    status = (await call(client, "status"))["data"]
    assert "keep_edits" in status["next_actions"][0]
    assert (await call(client, "keep_edits"))["errors"][0]["code"] == "E_CONFIRM_REQUIRED"
    kept = (await call(client, "keep_edits", yes=True, paths=["AGENTS.md"]))["data"]
    assert kept["applied"] and kept["conflicts"] == []
    assert (lab.project / "CLAUDE.md").read_text() == "# Team\n- by hand\n"
    assert (await call(client, "status"))["data"]["drift"] == []


async def test_the_two_tools_are_extras(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_AGENTPACK_NO_EXTRAS", "1")
    async with Client(build_server(Settings.read())) as client:
        names = {tool.name for tool in await client.list_tools()}
    assert "plan" in names and not {"import_config", "keep_edits"} & names
