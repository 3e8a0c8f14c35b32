"""Every command as an MCP prompt: over real stdio, in both eras, by the front and by the server."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.climpt.command_prompts import named
from fleet_agentpack.climpt.registry import Command
from fleet_agentpack.climpt.scaffold import init
from tests.climpt.project import ECHO, write, write_registry
from tests.climpt.test_commands import run
from tests.rig import SERVE, Stdio, eventually, modern_meta
from tests.wire.forked import Forks
from tests.wire.scripts import as_bytes, request
from tests.wire.test_front_installed import is_alone

CHANGED = "notifications/prompts/list_changed"
GROUP = "git-group-commit-unstaged-changes"
OFF = {"FLEET_AGENTPACK_FRONT": "off"}


def prompts(server: Stdio, **params: Any) -> dict[str, dict[str, Any]]:
    listed = server.ask("prompts/list", **params)["result"]["prompts"]
    return {prompt["name"]: prompt for prompt in listed}


@pytest.mark.parametrize("era", [{}, {"_meta": modern_meta()}], ids=["2025", "2026"])
def test_every_command_is_a_prompt_that_renders_what_execute_does(
    work: Path, era: dict[str, Any]
) -> None:
    init(work)
    inputs = ("--takes", "stdin", "--uv", "level=how strict")
    run("add", "code", "review", "diff", "--description", "Review a diff", *inputs)
    with Stdio(**OFF) as server:
        if not era:
            server.hello()
        found = prompts(server, **era)
        assert len([name for name in found if not name.startswith("forge_")]) == 8
        assert found["code-review-diff"] == {
            "name": "code-review-diff",
            "description": "Review a diff",
            "arguments": [
                {"name": "uv-level", "description": "how strict", "required": False},
                {"name": "stdin", "description": "The input text", "required": False},
            ],
        }
        adaptation = {"name": "adaptation", "description": "One of default, detailed"}
        assert found[GROUP]["arguments"] == [{**adaptation, "required": False}]
        given = {"uv-level": "high"}
        got = server.ask("prompts/get", name="code-review-diff", arguments=given, **era)["result"]
        names = {"agent": "climpt", "c1": "code", "c2": "review", "c3": "diff"}
        asked = {"name": "execute", "arguments": {**names, "options": given}}
        executed = server.ask("tools/call", **asked, **era)["result"]
        message = got["messages"][0]
        assert (message["role"], message["content"]["text"]) == (
            "user",
            executed["content"][0]["text"],
        )
        assert "how strict: high" in message["content"]["text"]
        assert got["_meta"]["climpt/unfilled"] == ["input_text"]
        assert executed["_meta"]["climpt/unfilled"] == ["input_text"]


def test_other_agents_come_before_the_name_and_equal_names_are_told_apart(work: Path) -> None:
    init(work)
    write_registry(work, [{"c1": "dev", "c2": "start", "c3": "issue"}], "iterator")
    commands = [("climpt", Command("a-b", "c", "d", "")), ("climpt", Command("a", "b-c", "d", ""))]
    assert [each.name for each in named(commands)] == ["a-b-c-d", "a-b-c-d-2"]
    with Stdio(**OFF) as server:
        server.hello()
        assert "iterator-dev-start-issue" in prompts(server)
        wrong = server.ask("prompts/get", name="iterator-dev-start-issue", arguments={})
        assert "Configuration not found" in wrong["error"]["message"]
        odd = server.ask("prompts/get", name=GROUP, arguments={"colour": "red"})
        assert "options.colour: unknown option" in odd["error"]["message"]
        assert (wrong["error"]["code"], odd["error"]["code"]) == (-32603, -32602)
    assert server.errors == b""  # what was expected leaves no traceback in the log


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_front_lists_them_as_the_server_does(work: Path, home: Path) -> None:
    (work / ".git").mkdir()
    init(work)

    def kept() -> bool:
        with Stdio(**OFF) as server:
            assert GROUP in prompts(server, _meta=modern_meta())
        return any(home.rglob("climpt-prompts-*-listed.json"))

    eventually(kept)
    forks = Forks(home)
    for argv in ([], ["--only", "climpt"], ["--only", "forge"], ["--prefix", "our"]):
        for params in ({}, {"_meta": modern_meta()}):
            asked = as_bytes(request(1, "prompts/list", params))
            options = [*argv, "--project", str(work)]
            alone, served = (forks.run([asked], options, front=each) for each in (True, False))
            assert alone == served
            assert (GROUP in str(alone["lines"])) == (argv != ["--only", "forge"])
    forks.close()
    with Stdio(cold=True) as server:
        server.hello()
        assert GROUP in prompts(server)
        assert is_alone(server)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_without_commands_the_front_needs_no_server(work: Path) -> None:
    with Stdio(cold=True) as server:
        server.hello()
        assert all(name.startswith("forge_") for name in prompts(server))
        assert is_alone(server)


@pytest.mark.parametrize("front", ["", "off"])
def test_a_new_command_is_announced(work: Path, home: Path, front: str) -> None:
    init(work)
    shutil.rmtree(work / ".agent/climpt/prompts/meta")
    with Stdio(FLEET_AGENTPACK_FRONT=front) as server:
        server.hello()
        assert GROUP in prompts(server)
        run("add", "code", "review", "diff")
        server.wait_for_notification(CHANGED)
        assert "code-review-diff" in prompts(server)


def test_reload_tells_of_them(work: Path) -> None:
    init(work)
    with Stdio(**OFF) as server:
        server.hello()
        prompts(server)
        write(work, ".agent/climpt/registry.json", '{"tools": {"commands": []}}')
        server.call("reload")
        server.wait_for_notification(CHANGED)
        assert GROUP not in prompts(server)


def test_commands_that_cannot_be_rendered_are_no_prompts_and_descriptions_are_bounded(
    work: Path,
) -> None:
    odd = [("../..", "etc", "passwd"), ("a b", "\n\x1b[31m", "c"), ("größe", "b", "x" * 5_000)]
    records = [{"c1": c1, "c2": c2, "c3": c3, "description": "d"} for c1, c2, c3 in odd]
    write_registry(work, [*records, {**ECHO, "description": "d" * 100_000}])
    with Stdio([*SERVE, "--only", "climpt"], **OFF) as server:
        server.hello()
        (only,) = server.ask("prompts/list")["result"]["prompts"]
    assert only["name"] == "test-echo-input"
    assert len(only["description"]) < 1_100
