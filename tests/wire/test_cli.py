"""The command line as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack import __version__, cli, domains
from tests.rig import SERVE, child_environment, pipe, run


def test_version_and_help() -> None:
    assert run("--version").stdout == f"fleet-agentpack {__version__}\n"
    helped = run("--help")
    assert helped.returncode == 0
    for option in (
        "--http",
        "--only",
        "--read-only",
        "--log-level",
        "--token-file",
        "--allowed-host",
    ):
        assert option in helped.stdout
    assert "tools" in helped.stdout


def test_tools_prints_a_table_of_every_tool() -> None:
    done = run("tools")
    lines = done.stdout.splitlines()
    names = [name for domain in domains.select() for name in domain.tools]
    assert [line.split()[0] for line in lines[1:]] == names
    assert all(("reads" in line) != ("writes" in line) for line in lines[1:])
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["nonsense"], 2, "unknown command 'nonsense'"),
        (["--only", "mars"], 2, "unknown domain 'mars'; choose from"),
        (["--only", "flet"], 2, "unknown domain 'flet'; did you mean fleet?"),
        (["--port", "high"], 2, "'high' is not a port"),
        (["--port", "3001"], 2, "--port needs --http"),
        (["--allowed-host", "box"], 2, "--allowed-host needs --http"),
        (["--install-scope", "session"], 2, "--install-scope needs --http"),
        (["--install-scope", "global"], 2, "--install-scope needs --http"),
        (["--port", "65536"], 2, "give one from 0 to 65535"),
        (["--port", "-1"], 2, "'-1' is not a port"),
        (["--log-level", "loud"], 2, "invalid choice"),
    ],
)
def test_a_mistake_is_a_message_and_a_status(words: list[str], status: int, says: str) -> None:
    done = run(*words)
    assert done.returncode == status
    assert says in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "imported",
    [
        "json",
        "argparse",
        "fleet_agentpack.kit.results",
        "fleet_agentpack.settings",
        "pydantic",
    ],
)
def test_an_interrupt_during_start_up_ends_it_quietly(imported: str) -> None:
    """`-X importtime` tells on stderr what was just imported, so the moment is known."""
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *SERVE[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job may ignore it
    ) as starting:
        assert starting.stderr and starting.stdin
        starting.stdin.write("a message that the front does not know\n")
        starting.stdin.flush()
        for line in starting.stderr:
            if line.split("|")[-1].strip() == imported:
                break
        starting.send_signal(signal.SIGINT)
        said = [line for line in starting.stderr if not line.startswith("import time:")]
        assert starting.wait(60) == 130
    assert said == []


def test_the_environment_chooses_a_part_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "unknown domain 'mars'" in run(FLEET_AGENTPACK_ONLY="mars").stderr
    monkeypatch.setenv("FLEET_AGENTPACK_ONLY", "climpt")
    assert cli.run(["tools"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert names == ["search", "describe", "execute", "reload"]


def test_a_configuration_file_that_cannot_be_used_stops_the_start(work: Path) -> None:
    assert "does not exist" in run(FLEET_AGENTPACK_CONFIG=str(work / "none.toml")).stderr
    (work / "bad.toml").write_text("[http\n")
    done = run(FLEET_AGENTPACK_CONFIG=str(work / "bad.toml"))
    assert done.returncode == 2
    assert "not valid TOML" in done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('allowed_hosts = "box"', "http.allowed_hosts must be a list of names"),
        ("allowed_hosts = [5]", "http.allowed_hosts must be a list of names"),
        ("token_file = 5", "http.token_file must be a path"),
    ],
)
def test_a_setting_of_the_wrong_kind_stops_the_start(work: Path, line: str, says: str) -> None:
    (work / "bad.toml").write_text(f"[http]\n{line}\n")
    done = run("--http", FLEET_AGENTPACK_CONFIG=str(work / "bad.toml"))
    assert done.returncode == 2
    assert done.stderr.endswith(f"bad.toml: {says}\n")


def test_unknown_settings_are_named_in_a_warning(work: Path) -> None:
    (work / "some.toml").write_text(
        '[http]\ntokenfile = "x"\n[climtp]\n[fleet.projects.a]\npath = "/x"\n'
    )
    done = pipe("", FLEET_AGENTPACK_CONFIG=str(work / "some.toml"))
    assert done.returncode == 0
    assert [line.split("unknown setting ")[1] for line in done.stderr.decode().splitlines()] == [
        "http.tokenfile; did you mean token_file?",
        "climtp; did you mean climpt?",
    ]


@pytest.mark.parametrize("domain", ["enact", "forge"])
def test_the_names_for_one_domain_alone_and_a_log_without_arguments(domain: str) -> None:
    code = f"from fleet_agentpack.__main__ import {domain}; {domain}()"
    params = {"name": "nope", "arguments": {"token": "hunter2"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params},
    ]
    command = [sys.executable, "-c", code, "--log-level", "debug"]
    done = pipe("\n".join(map(json.dumps, lines)), command)
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    (row,) = domains.select([domain])
    names = [tool["name"] for tool in answers[1]["result"]["tools"]]
    assert names == list(row.tools)
    assert answers[2]["result"]["structuredContent"]["error"] == "unknown_tool"
    assert done.returncode == 0
    assert b"DEBUG" in done.stderr
    assert b"hunter2" not in done.stderr


def test_a_deploy_flag_before_another_command_is_refused() -> None:
    done = run("--json", "tools")
    assert done.returncode == 2
    assert "--json goes after tools" in done.stderr
    assert "needs a command" in run("--repo", "x").stderr


def test_the_printed_size_is_the_size_on_the_wire(
    tools: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["tools", "--tokens"]) == 0
    total = capsys.readouterr().out.splitlines()[-1].split()
    text = json.dumps(tools, separators=(",", ":"), ensure_ascii=False)
    assert total[:2] == ["all", str(len(tools))]
    assert int(total[2].replace(",", "")) == len(text.encode()) - 1


def test_the_wire_is_taken_before_anything_heavy_is_imported() -> None:
    code = (
        "import sys, fleet_agentpack.cli, fleet_agentpack.wire.descriptors\n"
        "print({'fastmcp', 'mcp', 'pydantic', 'httpx', 'asyncio'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=child_environment()
    )
    assert done.stdout == "set()\n", done.stderr
