"""The eighteen tools, the resources and the prompts, through a real MCP client."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from fleet_agentpack.forge.errors import COMMANDS
from fleet_agentpack.forge.tools import open_service
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.server import build_server
from tests.forge import tree
from tests.forge.registry import Site

PREFIX = "fractary_forge_"
ROW = {"name", "version", "description", "tags", "source", "path"}
VERDICT = {"valid", "path", "errors", "warnings", "schema_version"}

# Tool → arguments that succeed on the realistic tree, and the fields that the contract gives it.
CALLS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "agent_list": ({}, {"agents", "total", "limit", "offset"}),
    "agent_info": (
        {"name": "acme:triage"},
        {
            *ROW,
            "author",
            "license",
            "tools",
            "extends",
            "prompt",
            "dependencies",
        },
    ),
    "agent_validate": ({"name": "reviewer", "strict": True}, VERDICT),
    "tool_list": ({"source": "local"}, {"tools", "total", "limit", "offset"}),
    "tool_info": (
        {"name": "ticket-read"},
        {*ROW, "author", "license", "inputSchema", "outputSchema"},
    ),
    "tool_validate": ({"path": ".fractary/tools/lint.yaml"}, VERDICT),
    "plugin_list": ({"outdated": False}, {"plugins", "total"}),
    "plugin_info": (
        {"plugin": "@acme/helper"},
        {
            "name",
            "version",
            "description",
            "author",
            "license",
            "repository",
            "keywords",
            "components",
            "dependencies",
            "installed",
        },
    ),
    "plugin_search": ({"query": "helper"}, {"results", "total", "query"}),
    "config_get": ({"key": "registries.0.url"}, {"key", "value", "exists"}),
    "config_show": ({"format": "yaml"}, {"config", "sources", "yaml"}),
    "config_registry_list": ({}, {"registries"}),
    "cache_stats": ({}, {"manifests", "downloads", "totalSize", "location"}),
    "cache_clear": ({"olderThan": 10_000}, {"success", "cleared"}),
    "fork_list": ({}, {"forks", "total"}),
    "fork_info": (
        {"name": "my-triage"},
        {
            "name",
            "type",
            "path",
            "upstream",
            "localVersion",
            "createdAt",
            "hasUpstreamUpdate",
        },
    ),
    "fork_diff": (
        {"name": "my-triage"},
        {"name", "upstreamVersion", "localVersion", "differences", "summary", "unified"},
    ),
    "fork_check": ({}, {"updates", "total", "hasUpdates"}),
}


@pytest.fixture
async def client(
    home: Path, work: Path, site: Site, configure: Callable[..., None]
) -> AsyncIterator[Client[Any]]:
    """A client of the forge alone, over the realistic tree and a loopback registry."""
    tree.build(work, home)
    entry = site.put_plugin(tree.plugin_manifest("@acme/helper", "1.3.0"))
    configure({"name": "main", "url": site.put_registry(entry), "priority": 1})
    settings = dataclasses.replace(Settings.read(), only=("forge",))
    async with Client(build_server(settings)) as client:
        yield client


async def call(client: Client[Any], tool: str, **arguments: Any) -> Any:
    return await client.call_tool(PREFIX + tool, arguments, raise_on_error=False)


async def test_there_are_eighteen_tools_and_one_of_them_writes(client: Client[Any]) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    assert set(tools) == {PREFIX + name for name in CALLS}
    writers = [name for name, tool in tools.items() if not tool.annotations.read_only_hint]
    assert writers == [f"{PREFIX}cache_clear"]
    for tool in tools.values():
        assert tool.input_schema["additionalProperties"] is False


async def test_descriptions_say_what_comes_next(client: Client[Any]) -> None:
    tools = {tool.name: tool.description or "" for tool in await client.list_tools()}
    for name, description in tools.items():
        assert len(description) < 200, name
        assert "\n" not in description
        named = set(re.findall(r"fractary_forge_\w+", description))
        assert named <= set(tools) - {name}, name
        what_next = r"Call fractary_forge_|call it again|fleet-agentpack forge (install|merge) NAME"
        assert re.search(what_next, description), name


@pytest.mark.parametrize("tool", CALLS)
async def test_each_tool_answers_in_the_contracts_fields(client: Client[Any], tool: str) -> None:
    arguments, fields = CALLS[tool]
    result = await call(client, tool, **arguments)
    assert result.is_error is False, result.structured_content
    extra = set(result.structured_content) - fields
    assert fields <= set(result.structured_content)
    assert extra <= {"warnings"}
    assert json.loads(result.content[0].text) == result.structured_content
    if tool.endswith(("agent_list", "tool_list")):
        for row in result.structured_content[tool.split("_")[0] + "s"]:
            assert set(row) <= {*ROW, "format"}


def snapshot(root: Path, without: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in [root, *root.rglob("*")]:
        if path == without or without in path.parents:
            continue
        status = path.lstat()
        found[str(path)] = (status.st_mtime_ns, status.st_size, status.st_mode)
    return found


async def test_read_tools_write_nothing_but_the_cache(client: Client[Any], home: Path) -> None:
    cache = home / ".fractary/cache"
    cache.mkdir(parents=True)
    before = snapshot(home, cache)
    for tool, (arguments, _) in CALLS.items():
        if tool != "cache_clear":
            await call(client, tool, **arguments)
            await call(client, tool, **{**arguments, "name": "../nope"})
    await call(client, "plugin_info", plugin="@acme/helper", remote=True)
    await call(client, "plugin_list", outdated=True)
    await client.read_resource("forge://agents/reviewer")
    await client.get_prompt("forge_resolve_fork", {"name": "my-triage"})
    assert snapshot(home, cache) == before
    assert any(cache.rglob("*.json"))


async def test_bad_arguments_are_validation_errors(client: Client[Any]) -> None:
    for tool, arguments in (
        ("agent_list", {"limit": 0}),
        ("agent_list", {"limit": 1001}),
        ("agent_list", {"offset": -1}),
        ("tool_list", {"limit": "5"}),
        ("agent_list", {"source": "moon"}),
        ("agent_info", {}),
        ("agent_info", {"name": 5}),
        ("config_show", {"includeDefaults": "true"}),
        ("cache_clear", {"olderThan": 1.5}),
        ("cache_clear", {"olderThan": -1}),
        ("fork_list", {"extra": 1}),
        ("agent_validate", {"path": "a", "name": "b"}),
    ):
        result = await call(client, tool, **arguments)
        assert result.is_error, (tool, arguments)
        payload = result.structured_content
        assert set(payload) == {"error", "code", "message", "details", "suggestions"}
        assert payload["error"] is True
        assert payload["code"] == "VALIDATION_ERROR"


async def test_suggestions_name_only_tools_that_exist(client: Client[Any]) -> None:
    known = {tool.name for tool in await client.list_tools()}
    assert known == set(COMMANDS)
    payloads = [
        (await call(client, tool, **arguments)).structured_content
        for tool, arguments in (
            ("agent_info", {"name": "nobody"}),
            ("agent_info", {"name": "../x"}),
            ("agent_info", {"name": "broken"}),
            ("tool_info", {"name": "nobody"}),
            ("plugin_info", {"plugin": "@no/body"}),
            ("plugin_info", {"plugin": "@no/body", "remote": True}),
            ("fork_info", {"name": "nobody"}),
            ("fork_diff", {"name": "reviewer"}),
            ("agent_validate", {"path": "/etc/passwd"}),
            ("tool_validate", {"path": "gone.yaml"}),
            ("config_get", {"key": ""}),
            ("cache_clear", {"olderThan": -1}),
            ("agent_validate", {"path": "a\x00b"}),
            ("agent_info", {"name": "reviewer", "version": "^9.0.0"}),
            ("agent_info", {"name": "reviewer", "source": "stockyard"}),
            ("plugin_info", {"plugin": "@acme/helper", "version": "^9.0.0"}),
        )
    ]
    assert all(payload["error"] for payload in payloads)
    for payload in payloads:
        assert payload["suggestions"]
        for name in re.findall(r"fractary_forge_\w+", json.dumps(payload["suggestions"])):
            assert name in known, payload


async def test_resources_give_the_text_of_definitions(client: Client[Any], work: Path) -> None:
    templates = {template.uri_template for template in await client.list_resource_templates()}
    assert templates == {
        "forge://agents/{name*}",
        "forge://tools/{name*}",
        "forge://plugins/{name*}",
        "forge://agents{?page}",
        "forge://tools{?page}",
        "forge://plugins{?page}",
        "forge://answers/{tool}/{id}{?page}",
    }
    agent = (await client.read_resource("forge://agents/acme:triage"))[0]
    assert agent.text == (work / ".fractary/agents/acme:triage/agent.md").read_text()
    assert agent.mime_type == "text/markdown"
    tool = (await client.read_resource("forge://tools/ticket-read"))[0]
    assert tool.mime_type == "application/yaml"
    plugin = (await client.read_resource("forge://plugins/@acme/helper"))[0]
    assert json.loads(plugin.text)["name"] == "@acme/helper"
    scoped = (await client.read_resource("forge://agents/@acme/helper/helper-agent"))[0]
    assert "helper-agent" in scoped.text


@pytest.mark.parametrize(
    "uri",
    [
        "forge://agents/nobody",
        "forge://agents/broken-name%2F..%2F..%2Fx",
        "forge://agents/..%2F..%2Fetc",
        "forge://plugins/@acme/unknown",
        "forge://tools/a*",
    ],
)
async def test_a_resource_that_is_not_there_says_so(client: Client[Any], uri: str) -> None:
    with pytest.raises(MCPError) as caught:
        await client.read_resource(uri)
    assert "Traceback" not in str(caught.value)
    assert re.search(r"No agent|not installed|cannot be the name|not found", str(caught.value))
    assert caught.value.error.code == INVALID_PARAMS


async def test_prompts_carry_the_state_of_things(client: Client[Any]) -> None:
    prompts = {prompt.name: prompt for prompt in await client.list_prompts()}
    assert set(prompts) == {
        "forge_search_plugins",
        "forge_setup_configuration",
        "forge_resolve_fork",
    }

    async def text(prompt: str, **arguments: str) -> str:
        result = await client.get_prompt(prompt, arguments)
        return str(result.messages[0].content.text)

    known = {tool.name for tool in await client.list_tools()}
    texts = [
        await text("forge_search_plugins", task="release notes"),
        await text("forge_setup_configuration"),
        await text("forge_resolve_fork", name="my-triage"),
    ]
    assert "release notes" in texts[0]
    assert '"main"' in texts[1]
    assert '"path": "description"' in texts[2]
    for each in texts:
        assert set(re.findall(r"fractary_forge_\w+", each)) <= known
    for name, arguments in (("forge_search_plugins", {}), ("forge_resolve_fork", {"name": "x"})):
        with pytest.raises(MCPError) as caught:
            await client.get_prompt(name, arguments)
        assert re.search("needs the argument|No fork", str(caught.value))


async def test_read_only_leaves_out_the_clearing_tool(home: Path) -> None:
    settings = dataclasses.replace(Settings.read(), only=("forge",), read_only=True)
    async with Client(build_server(settings)) as client:
        names = {tool.name for tool in await client.list_tools()}
    assert len(names) == 17
    assert f"{PREFIX}cache_clear" not in names


async def test_progress_is_reported_while_many_files_are_read(home: Path, work: Path) -> None:
    files = {f"agents/a{n:04}.yaml": tree.agent(f"a{n:04}") for n in range(1100)}
    tree.write(work / ".fractary", files)
    settings = dataclasses.replace(Settings.read(), only=("forge",))
    seen: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, _: str | None) -> None:
        seen.append((done, total))

    async with Client(build_server(settings)) as client:
        result = await client.call_tool(
            f"{PREFIX}agent_list", {"limit": 1}, progress_handler=progress
        )
    assert result.structured_content["total"] == 1100
    assert seen == [(0, 1100), (500, 1100), (1000, 1100)]


def test_the_log_level_may_be_left_out_or_silence_even_warnings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for level, warns in (("silent", False), ("", True)):
        monkeypatch.setenv("FRACTARY_LOG_LEVEL", level)
        open_service(Settings.read())
        logger = logging.getLogger("fleet_agentpack.forge")
        assert logger.isEnabledFor(logging.WARNING) is warns
        assert not logger.isEnabledFor(logging.INFO)


@pytest.mark.parametrize(("level", "expected"), [("debug", "DEBUG"), ("loud", "WARNING")])
def test_the_log_level_decides_what_goes_to_standard_error(
    work: Path, site: Site, configure: Callable[..., None], level: str, expected: str
) -> None:
    configure({"name": "main", "url": site.put_registry(), "priority": 1})
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": f"{PREFIX}plugin_search", "arguments": {"query": "x"}},
    }
    code = "from fleet_agentpack.__main__ import forge; raise SystemExit(forge())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "FRACTARY_LOG_LEVEL": level},
    )
    assert json.loads(done.stdout)["result"]["isError"] is False
    lines = [line for line in done.stderr.splitlines() if "fleet_agentpack.forge" in line]
    assert {line.split()[0] for line in lines} == {expected}
    assert ("fetched" in done.stderr) is (level == "debug")
    assert ("FRACTARY_LOG_LEVEL" in done.stderr) is (level == "loud")


HOSTILE: list[Any] = [
    "", "x", "../../etc/passwd", "a/../../b", "\x00", "\U0001d54f" * 50, "'; --", "$(id)", "{{x}}",
    "A" * 20_000, "A/" * 3000, "-rf", "~", "/", "con", "\ud800", None, True, 0, -1, 1.5, 10**30,
    [], [1], ["x"], {}, {"a": {"b": []}},
]  # fmt: skip


@pytest.mark.parametrize("tool", sorted(CALLS))
async def test_hostile_arguments_get_results_or_clear_errors(
    client: Client[Any], tool: str
) -> None:
    schemas = {each.name: each.input_schema for each in await client.list_tools()}
    needed = CALLS[tool][0]
    for field in schemas[PREFIX + tool].get("properties", {}):
        for value in HOSTILE:
            alone = {} if tool.endswith("_validate") else needed
            result = await call(client, tool, **{**alone, field: value})
            payload = result.structured_content
            assert json.loads(result.content[0].text) == payload
            if result.is_error:
                assert payload["code"] != "INTERNAL_ERROR", (tool, field, str(value)[:30])
