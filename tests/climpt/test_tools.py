"""The four tools as a client meets them, over a real stdio process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from fleet_agentpack.climpt.scaffold import init
from fleet_agentpack.wire.server import build_server
from tests.climpt.project import write, write_registry
from tests.climpt.test_deno_cli import TELL, fake_deno
from tests.conftest import enter_empty_home
from tests.rig import SERVE, Stdio, text_of

GROUP = {"c1": "git", "c2": "group-commit", "c3": "unstaged-changes"}
TEXT = {"type": "string"}
AGENT = {"type": "string", "default": "climpt"}


@contextmanager
def serving(**env: str) -> Iterator[Stdio]:
    with Stdio([*SERVE, "--only", "climpt"], **env) as server:
        assert server.hello()["serverInfo"]["name"] == "climpt"
        yield server
        assert server.bad_lines == []


@pytest.fixture
def fresh(home: Path) -> Iterator[Stdio]:
    """A server in an empty project."""
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stdio]:
    """A server in a project with the example tree, shared by the tests that change nothing."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            home = enter_empty_home(tmp_path_factory.mktemp("climpt"), patch)
            init(home / "work")
            started = stack.enter_context(serving())
        yield started


def error_of(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"] is True
    assert json.loads(text_of(result)) == result["structuredContent"]
    return result["structuredContent"]


def test_schemas_are_the_contracts(server: Stdio) -> None:
    tools = {tool["name"]: tool for tool in server.ask("tools/list")["result"]["tools"]}
    assert list(tools) == ["search", "describe", "execute", "reload"]
    names = {"c1": TEXT, "c2": TEXT, "c3": TEXT}
    options = tools["execute"]["inputSchema"]["properties"]["options"]
    assert options.pop("description")
    assert "climpt" in tools["execute"]["inputSchema"]["properties"]["agent"].pop("description")
    assert {name: tool["inputSchema"] for name, tool in tools.items()} == {
        "search": schema({"query": TEXT, "agent": AGENT}, ["query"]),
        "describe": schema({**names, "agent": AGENT}, ["c1", "c2", "c3"]),
        "execute": schema(
            {"agent": TEXT, **names, "options": {"type": "object", "default": {}}},
            ["agent", "c1", "c2", "c3"],
        ),
        "reload": schema({"agent": AGENT}, []),
    }
    for tool in tools.values():
        assert tool["annotations"]["readOnlyHint"] is True
        assert not tool.keys() & {"title", "outputSchema"}
        assert 0 < tool["description"].count(".") <= 2


def schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def test_search_answers_an_array_as_text_and_results_as_structure(server: Stdio) -> None:
    result = server.call("search", query="group changes and commit", agent="climpt")
    rows = json.loads(text_of(result))
    assert result["structuredContent"] == {"results": rows}
    assert not result.get("isError")
    assert 0 < len(rows) <= 3
    assert all(row.keys() == {"c1", "c2", "c3", "description", "score"} for row in rows)
    assert {name: rows[0][name] for name in GROUP} == GROUP
    nothing = server.call("search", query="zebra")
    told = "No command matches. There are commands for git (5), meta (2); try other words."
    assert [block["text"] for block in nothing["content"]] == ["[]", told]
    assert nothing["structuredContent"] == {"results": [], "warnings": [told]}


def test_describe_answers_one_object(server: Stdio) -> None:
    result = server.call("describe", **GROUP)
    assert json.loads(text_of(result)) == result["structuredContent"]
    assert result["structuredContent"].keys() == {
        *GROUP,
        "description",
        "usage",
        "options",
    }


def test_execute_answers_with_the_prompt_as_text_alone(server: Stdio) -> None:
    for options in ({}, {"options": {}}, {"options": []}):
        result = server.call("execute", agent="climpt", **GROUP, **options)
        assert text_of(result).startswith("# Commit the changes in groups\n")
        assert "structuredContent" not in result
    for options in ({"adaptation": "detailed"}, ["--adaptation=detailed"]):
        result = server.call("execute", agent="climpt", **GROUP, options=options)
        assert text_of(result).startswith("# Commit the changes in groups, with a plan")


def test_reload_sees_a_change_and_survives_a_broken_file(fresh: Stdio, work: Path) -> None:
    init(work)
    assert fresh.call("reload")["structuredContent"]["commandCount"] == 7
    registry = write_registry(work, [{**GROUP, "description": "only one"}])
    assert len(json.loads(text_of(fresh.call("search", query="branch commit")))) > 1
    assert fresh.call("reload", agent="climpt")["structuredContent"]["commandCount"] == 1
    assert len(json.loads(text_of(fresh.call("search", query="branch commit")))) == 1
    registry.write_text("{")
    error = error_of(fresh.call("reload"))
    assert error["error"] == "Failed to load registry"
    assert error["path"] == ".agent/climpt/registry.json"
    assert len(json.loads(text_of(fresh.call("search", query="branch commit")))) == 1


def test_errors_have_the_contracts_shapes(fresh: Stdio, work: Path) -> None:
    error = error_of(fresh.call("search", query="x"))
    assert (error["error"], error["path"], error["details"]) == (
        "Failed to load registry",
        ".agent/climpt/registry.json",
        "File not found",
    )
    assert list(work.iterdir()) == []
    init(work)
    names = {"c1": "git", "c2": "invalid-command", "c3": "target"}
    for tool, more in (("describe", {}), ("execute", {"agent": "climpt"})):
        error = error_of(fresh.call(tool, **names, **more))
        assert error.pop("hint")
        assert error == {"error": "Command not found", **names}
    error = error_of(fresh.call("execute", agent="climpt", **GROUP, options={"edition": "missing"}))
    assert error["error"] == "Execution failed"
    assert error["command"] == "climpt-git group-commit unstaged-changes"
    assert error["stderr"].startswith("Template not found")


BAD_ARGUMENTS: list[tuple[str, dict[str, Any], str]] = [
    ("search", {}, "query: required"),
    ("search", {"query": 5}, "query: "),
    ("search", {"query": ""}, "query: must not be empty"),
    ("search", {"query": "x", "top": 5}, "top: no such argument"),
    ("search", {"query": "x", "agent": "../x"}, "agent: "),
    ("describe", {"c1": "a"}, "c2: required; c3: required"),
    ("execute", {"c1": "a", "c2": "b", "c3": "c"}, "agent: required"),
    ("execute", {**GROUP, "agent": "climpt", "options": "x"}, "options: must be an object"),
    ("execute", {**GROUP, "agent": "climpt", "options": {"x": 1}}, "options.x: unknown option"),
    ("reload", {"agent": ["climpt"]}, "agent: "),
]


def test_bad_arguments_are_named(server: Stdio) -> None:
    for tool, arguments, details in BAD_ARGUMENTS:
        error = error_of(server.call(tool, **arguments))
        assert error.keys() == {"error", "details"}
        assert error["error"] == "Invalid arguments"
        assert error["details"].startswith(details), (tool, arguments)


def test_the_original_can_be_chosen(home: Path, work: Path) -> None:
    init(work)
    config = write(home, "config.toml", '[climpt]\nexecute = "cli"\n')
    environ = {"FLEET_AGENTPACK_CONFIG": str(config), "PATH": fake_deno(home, TELL)}
    with serving(**environ) as server:
        result = server.call("execute", agent="climpt", **GROUP, options={"uv": {"a": "b"}})
        assert json.loads(text_of(result))["argv"][-4:] == [
            *("--config=git", "group-commit", "unstaged-changes", "--uv-a=b"),
        ]


async def test_a_bad_setting_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(home, "config.toml", '[climpt]\nexecute = "shell"\n')
    monkeypatch.setenv("FLEET_AGENTPACK_CONFIG", str(config))
    async with Client(build_server()) as client:
        result = await client.call_tool("reload", {}, raise_on_error=False)
    assert result.is_error
    assert result.structured_content == {
        "error": "Invalid configuration",
        "details": '[climpt] execute must be "render" or "cli"',
    }
