"""The fleet through what people and programs touch: MCP, the command line, settings."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack import cli
from fleet_agentpack.settings import Settings
from tests.cassette import Cassette
from tests.console.streams import Terminal
from tests.fleet.local_fleet import CONFIG, LocalFleet
from tests.fleet.stage import CASSETTES, HOST, TOKEN
from tests.rig import SESSION_TOKEN, run

NINE = {
    "create_agent": ({"name", "project", "role", "spec"}, {"name", "project", "spec"}),
    "list_agents": (set(), set()),
    "show_agent": ({"agent_name"}, {"agent_name"}),
    "show_agent_task_history": ({"agent_name", "page", "page_size"}, {"agent_name"}),
    "delete_agent": ({"agent_name"}, {"agent_name"}),
    "start_agent_task": ({"agent_name", "task_description"}, {"agent_name", "task_description"}),
    "stop_agent_task": ({"agent_name"}, {"agent_name"}),
    "list_agent_roles": ({"project"}, {"project"}),
    "list_agent_projects": (set(), set()),
}
EXTRAS = {
    "wait_for_agents": ({"agent_names", "any", "timeout_s"}, set()),
    "show_agent_work": ({"agent_name"}, {"agent_name"}),
    "merge_agent_work": ({"agent_name", "into", "squash", "yes"}, {"agent_name", "yes"}),
}
WRITERS = {
    *("create_agent", "delete_agent", "start_agent_task", "stop_agent_task"),
    "merge_agent_work",
}


def client(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Any:
    from fleet_agentpack.wire.server import build_server

    for name, value in {"FLEET_AGENTPACK_ONLY": "fleet", **variables}.items():
        monkeypatch.setenv(name, value)
    server = build_server(Settings.read())
    from fastmcp import Client

    return Client(server)


async def call(made: Any, tool: str, **arguments: Any) -> tuple[bool, Any]:
    result = await made.call_tool_mcp(tool, arguments)
    assert json.loads(result.content[0].text) == result.structured_content
    return bool(result.is_error), result.structured_content


async def test_the_nine_tools_have_the_contract_s_inputs_and_right_hints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with client(monkeypatch) as made:
        tools = {tool.name: tool for tool in await made.list_tools()}
    assert set(tools) >= {*NINE, *EXTRAS}
    for name, (fields, required) in {**NINE, **EXTRAS}.items():
        schema = tools[name].input_schema
        assert set(schema.get("properties", {})) == fields
        assert set(schema.get("required", [])) == required
        assert schema["additionalProperties"] is False
        assert tools[name].annotations.read_only_hint is (name not in WRITERS)
        assert tools[name].description.count(". ") <= 1
    page = tools["show_agent_task_history"].input_schema["properties"]
    assert (page["page"]["default"], page["page_size"]["default"]) == (1, 20)
    assert page["page"]["type"] == page["page_size"]["type"] == "integer"
    assert tools["create_agent"].input_schema["properties"]["role"]["default"] == "coder"


async def test_tools_answer_over_mcp_from_the_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    cassette = Cassette.load(CASSETTES / "show_agent.yaml", CASSETTES / "list_agents.yaml")
    variables = {"CODER_URL": HOST + "/", "CODER_SESSION_TOKEN": TOKEN}
    with cassette.replay():
        async with client(monkeypatch, **variables) as made:
            failed, listed = await call(made, "list_agents")
            assert not failed and listed["total_count"] == 8
            failed, shown = await call(made, "show_agent", agent_name="papi")
            assert not failed and shown["agent"]["role"] == "coder"
            failed, error = await call(made, "show_agent", agent_name="nobody")
            assert failed and error["error"] == "not_found" and error["details"]["status"] == 404
            assert error["message"].endswith("Call list_agents to see the names.")
            assert set(error) == {"error", "message", "details"}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"agent_name": 5},
        {"agent_name": "a", "page": "1"},
        {"agent_name": "a", "page": 1.5},
        {"agent_name": "a", "page": True},
        {"agent_name": "a", "extra": 1},
    ],
)
async def test_arguments_of_the_wrong_kind_are_400(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    async with client(monkeypatch) as made:
        failed, error = await call(made, "show_agent_task_history", **arguments)
    assert failed and error["error"] == "bad_request" and error["details"]["status"] == 400


HOSTILE: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        1.5,
        10**30,
        "",
        "x",
        "../../etc/passwd",
        "\x00",
        "\ud800",
        "\U0001d54f" * 50,
    ),
    *("$(id)", [], {"a": 1}, "A" * 20_000, "-rf", "~", "/", "con", "papi\n", "a.b"),
]


async def test_hostile_arguments_are_refused_in_the_domain_s_shape_and_change_nothing(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await local.create("papi")
    async with client(monkeypatch) as made:
        for tool, (fields, _) in NINE.items():
            for value in HOSTILE if fields else []:
                failed, answer = await call(made, tool, **dict.fromkeys(sorted(fields), value))
                assert failed, (tool, value)
                assert answer["error"] in ("bad_request", "not_found"), (tool, value, answer)
        _, listed = await call(made, "list_agents")
    assert [row["name"] for row in listed["agents"]] == ["papi"]


async def test_create_reports_progress_over_mcp(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str | None] = []

    async def on_progress(_done: float, _total: float | None, text: str | None) -> None:
        told.append(text)

    async with client(monkeypatch) as made:
        arguments = {"name": "papi", "project": "demo", "spec": "x"}
        await made.call_tool("create_agent", arguments, progress_handler=on_progress)
        failed, listed = await call(made, "list_agents")
    assert not failed
    assert listed["agents"] == [{"name": "papi", "status": "idle", "current_task": None}]
    assert told and told[0] and "papi" in told[0]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CODER_URL": HOST}, "CODER_SESSION_TOKEN is not"),
        ({"CODER_SESSION_TOKEN": TOKEN}, "CODER_URL is not"),
        ({"FLEET_AGENTPACK_FLEET": "coder"}, "coder login"),
        ({"FLEET_AGENTPACK_FLEET": "cloud"}, "'coder' or 'local'"),
        ({"CODER_URL": "coder", "CODER_SESSION_TOKEN": TOKEN}, "http or https"),
        ({"CODER_URL": "https://me:pw@x.test", "CODER_SESSION_TOKEN": TOKEN}, "without a user"),
        ({"CODER_URL": HOST, "CODER_SESSION_TOKEN": f"{TOKEN}\nX: 1"}, "is not a session token"),
        ({"CODER_URL": HOST, "CODER_SESSION_TOKEN": f"{TOKEN};a=1"}, "is not a session token"),
        ({"CODER_URL": HOST, "CODER_SESSION_TOKEN": f"{TOKEN}é"}, "is not a session token"),
    ],
)
async def test_half_a_configuration_is_a_503_that_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: str
) -> None:
    async with client(monkeypatch, **variables) as made:
        failed, error = await call(made, "list_agents")
    assert failed and error["error"] == "unavailable" and error["details"]["status"] == 503
    assert words in error["message"] and TOKEN not in json.dumps(error)


async def test_the_session_that_coder_login_stored_is_used_when_coder_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    stored = home / ".config/coderv2"
    stored.mkdir(parents=True)
    (stored / "url").write_text(HOST + "\n")
    (stored / "session").write_text(TOKEN + "\n")
    cassette = Cassette.load(CASSETTES / "empty_fleet.yaml")
    with cassette.replay():
        async with client(monkeypatch, FLEET_AGENTPACK_FLEET="coder") as made:
            failed, listed = await call(made, "list_agents")
    assert not failed and listed == {"agents": [], "total_count": 0}
    assert cassette.requests[0].headers["coder-session-token"] == TOKEN


def test_a_debug_log_does_not_tell_what_headers_hold() -> None:
    code = (
        "import logging; from fleet_agentpack.wire.logs import configure; configure('debug')\n"
        "for name in ('httpx', 'httpcore.http11', 'httpcore.connection'):\n"
        "    assert not logging.getLogger(name).isEnabledFor(logging.DEBUG), name"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_without_any_project_the_list_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with client(monkeypatch) as made:
        failed, listed = await call(made, "list_agent_projects")
    assert not failed and listed["projects"] == []
    assert "inside a git repository" in listed["warnings"][0]


def command(local: LocalFleet, *arguments: str, status: int = 0, **variables: str) -> str:
    done = run("fleet", *arguments, cwd=local.project, status=status, **variables)
    return done.stdout if status == 0 or "--json" in arguments else done.stderr


async def test_the_command_line_runs_a_fleet(local: LocalFleet, home: Path) -> None:
    assert "demo" in command(local, "projects")
    assert "Software Engineer" in command(local, "roles", "demo")
    assert command(local, "list") == "No agents.\n"
    spec = home / "spec.md"
    spec.write_text("Keep it green\n")
    arguments = ("create", "papi", "--project", "demo", "--spec-file", str(spec))
    assert "Agent 'papi' created" in command(local, *arguments)
    refusal = command(local, *arguments, status=1)
    assert "already exists" in refusal and "fleet-agentpack fleet delete papi" in refusal
    unknown = command(local, "show", "nobody", status=1)
    assert "fleet-agentpack fleet list" in unknown and "list_agents" not in unknown
    assert "Keep it green" in command(local, "show", "PAPI")
    assert "Task started" in command(local, "start", "papi", "write", "notes.txt", "hello")
    row = await local.ended("papi")
    assert row.source == "human"
    table = command(local, "history", "papi")
    assert "completed" in table and "human" in table and "page 1 of 1, 1 tasks" in table
    assert '"type": "result"' in command(local, "logs", "papi", "--raw")
    assert "said    " in command(local, "logs", "papi", "-f")
    listed = json.loads(command(local, "list", "--json"))
    assert listed["agents"] == [{"name": "papi", "status": "idle", "current_task": None}]
    command(local, "start", "papi", "sleep 60")
    assert "busy" in command(local, "list")
    assert "Task stopped" in command(local, "stop", "papi")
    assert "pass --yes" in command(local, "delete", "papi", status=1)
    assert "agent/papi" in command(local, "delete", "papi", "--yes")
    error = json.loads(command(local, "show", "papi", "--json", status=1))
    assert error["error"] == "not_found"


def test_a_deletion_that_is_declined_deletes_nothing(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(local, "create", "papi", "--project", "demo", "--spec", "x")
    for arguments, answer in (([], "Nothing was deleted\n"), (["--json"], DECLINED)):
        monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
        assert cli.run(["fleet", "delete", "papi", *arguments]) == 0
        shown = capsys.readouterr()
        assert shown.out == answer and "Delete agent 'papi' and its workspace? [y/N]" in shown.err
    assert "papi" in command(local, "list")


DECLINED = '{"message":"Nothing was deleted"}\n'


async def test_a_log_has_our_colours_and_shows_those_of_others(local: LocalFleet) -> None:
    await local.create("papi")
    await local.work("papi", "ask \x1b[31mred ok?")
    shown = run("fleet", "logs", "papi", cwd=local.project, status=0, FORCE_COLOR="1").stdout
    assert "\x1b[32msaid   \x1b[0m I looked at it. \\x1b[31mred ok?" in shown


def test_a_history_fits_a_terminal_of_eighty_columns(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(local, "create", "papi", "--project", "demo", "--spec", "x")
    command(local, "start", "papi", f"look {'again and ' * 20}again")
    command(local, "wait", "papi")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.run(["fleet", "history", "papi"]) == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, shown)) <= 80
    assert shown[0].split() == ["CREATED", "STATUS", "SOURCE", "TOOK", "COST", "SUMMARY"]
    when, status, source, took, cost, *_ = shown[1].split()
    assert when.endswith("Z") and (status, source, cost) == ("completed", "human", "$0.25")
    assert re.fullmatch(r"\d+:\d\d", took)


async def test_watch_keeps_the_table_up_to_date_until_interrupted(local: LocalFleet) -> None:
    await local.create("papi")
    watching = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fleet_agentpack", "fleet", "list", "--watch", "--interval", "0.1"),
        cwd=local.project,
        stdout=subprocess.PIPE,
    )
    assert watching.stdout
    seen = b""
    while b"idle" not in seen:
        seen += await asyncio.wait_for(watching.stdout.readline(), 30)
    await local.fleet.start("papi", "sleep 60")
    while b"busy" not in seen:
        seen += await asyncio.wait_for(watching.stdout.readline(), 30)
    watching.send_signal(2)
    await watching.stdout.read()
    assert await watching.wait() == 130


def test_control_characters_from_outside_do_not_reach_the_terminal(local: LocalFleet) -> None:
    config = local.settings.config_path
    assert config
    evil = '\n[fleet.roles.evil]\ndisplay_name = "\\u001b[31mred"\n'
    config.write_text(CONFIG + evil)
    assert "\x1b" not in command(local, "roles", "demo")


def test_the_cassettes_hold_no_token_and_no_stray_header() -> None:
    import yaml

    allowed = {
        "content-type",
        "retry-after",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-coder-build-version",
        "www-authenticate",
        "location",
        "link",
    }
    files = sorted(CASSETTES.glob("*.yaml"))
    assert len(files) >= 15
    for path in files:
        text = path.read_text()
        assert not SESSION_TOKEN.search(text), path
        for interaction in yaml.load(text, Loader=yaml.CSafeLoader)["interactions"]:
            assert set(interaction["response"]["headers"]) <= allowed, path
            assert interaction["request"]["headers"] == {}, path
            assert interaction["request"]["uri"].startswith(HOST), path
