"""Execution through the original's command line, with a stand-in for Deno on the PATH."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.climpt.deno_cli import run_deno
from fleet_agentpack.climpt.errors import ClimptError
from fleet_agentpack.climpt.project_files import ProjectFiles
from fleet_agentpack.climpt.service import ClimptService
from tests.climpt.project import ECHO, ECHO_NAMES, service, write, write_registry
from tests.kit.test_process import wait_until_gone

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-in is a POSIX script")

TELL = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "stdin": sys.stdin.read(), "cwd": os.getcwd(),
                  "env": sorted(os.environ)}))
"""
RUN = "run --allow-read --allow-write --allow-env --allow-run --allow-net --no-config"


def fake_deno(root: Path, code: str) -> str:
    """A folder for PATH whose `deno` is that Python code."""
    script = write(root, "bin/deno", f"#!{sys.executable}\n{code}")
    script.chmod(0o755)
    return str(script.parent)


async def execute(work: Path, home: Path, code: str, options: Any = (), **environ: str) -> str:
    write_registry(work, [ECHO])
    path = fake_deno(home, code)
    cli = service(work, home, "cli", PATH=path, **environ)
    return (await cli.execute(*ECHO_NAMES, options)).text


async def refusal(work: Path, home: Path, code: str, **options: Any) -> dict[str, Any]:
    with pytest.raises(ClimptError) as caught:
        await execute(work, home, code, options)
    payload = caught.value.payload()
    assert payload["error"] == "Execution failed"
    assert payload["command"] == "climpt-test echo input"
    return payload


async def test_the_command_line_is_the_originals(work: Path, home: Path) -> None:
    options = {"edition": "json", "file": "a.md", "destination": "b.md", "uv": {"x": "y z"}}
    told = json.loads(await execute(work, home, TELL, options))
    assert told["argv"] == [
        *RUN.split(),
        "jsr:@aidevtool/climpt",
        *("--config=test", "echo", "input"),
        *("--edition=json", "--from=a.md", "--destination=b.md", "--uv-x=y z"),
    ]
    assert told["cwd"] == str(work.resolve())
    assert told["stdin"] == ""
    assert "BREAKDOWN_SKIP_STDIN" in told["env"]


async def test_text_is_piped(work: Path, home: Path) -> None:
    told = json.loads(await execute(work, home, TELL, {"stdin": "two\nlinës"}))
    assert told["stdin"] == "two\nlinës"
    assert "BREAKDOWN_SKIP_STDIN" not in told["env"]
    assert not any("lin" in argument for argument in told["argv"])


async def test_another_agent_is_part_of_the_profiles_name(work: Path, home: Path) -> None:
    write_registry(work, [ECHO], "iterator")
    cli = service(work, home, "cli", PATH=fake_deno(home, TELL))
    told = json.loads((await cli.execute("iterator", "test", "echo", "input")).text)
    assert "--config=iterator-test" in told["argv"]


async def test_no_token_reaches_a_program_that_may_use_the_network(work: Path, home: Path) -> None:
    secrets = {"FLEET_AGENTPACK_TOKEN": "x", "CODER_SESSION_TOKEN": "x", "LOG_LEVEL": "debug"}
    told = json.loads(await execute(work, home, TELL, DENO_DIR="/d", https_proxy="p", **secrets))
    assert not set(secrets) & set(told["env"])
    assert {"DENO_DIR", "https_proxy"} <= set(told["env"])


async def test_a_failure_is_the_contracts_error(work: Path, home: Path) -> None:
    code = "import sys; sys.stderr.write('Invalid layer\\n'); sys.exit(2)"
    assert (await refusal(work, home, code))["stderr"] == "Invalid layer"
    silent = await refusal(work, home, "raise SystemExit(3)")
    assert silent["stderr"] == "Command failed with exit code 3 and printed nothing"


async def test_an_empty_success_is_a_failure(work: Path, home: Path) -> None:
    """The original ends with 0 and says nothing when it refuses a command."""
    assert (await refusal(work, home, "print()"))["stderr"].endswith("printed nothing")


async def test_a_missing_program_says_what_to_do(work: Path, home: Path) -> None:
    write_registry(work, [ECHO])
    with pytest.raises(ClimptError) as caught:
        await service(work, home, "cli", PATH=str(home)).execute(*ECHO_NAMES)
    payload = caught.value.payload()
    assert payload["stderr"] == "deno is not installed"
    assert 'execute = "render"' in payload["hint"]


async def test_a_program_that_cannot_be_started_is_an_error(work: Path, home: Path) -> None:
    write(home, "bin/deno", "#!/no/such/interpreter\n").chmod(0o755)
    write_registry(work, [ECHO])
    with pytest.raises(ClimptError, match="deno could not be started"):
        await service(work, home, "cli", PATH=str(home / "bin")).execute(*ECHO_NAMES)


async def test_a_program_that_does_not_end_is_stopped(work: Path, home: Path) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    write_registry(work, [ECHO])
    files, environ = ProjectFiles(work, home), {"PATH": fake_deno(home, code)}
    cli = ClimptService(files, partial(run_deno, files, environ, timeout_s=1.5))
    with pytest.raises(ClimptError, match=r"deno did not finish within 1\.5 s and was stopped"):
        await cli.execute(*ECHO_NAMES)
    wait_until_gone(int((work / "pid").read_text()))


async def test_a_cancelled_call_ends_the_program(work: Path, home: Path) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    running = asyncio.create_task(execute(work, home, code))
    pid = work / "pid"
    for _ in range(500):
        await asyncio.sleep(0.02)
        if pid.exists() and pid.read_text():
            break
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    wait_until_gone(int(pid.read_text()))


async def test_the_registry_and_the_safety_rules_come_first(work: Path, home: Path) -> None:
    code = "open('started', 'w'); print('x')"
    assert "shellInjection" in (await refusal(work, home, code, **{"uv-a": "x;y"}))["stderr"]
    write_registry(work, [{"c1": "test", "c2": "--help", "c3": "input"}])
    cli = service(work, home, "cli", PATH=fake_deno(home, code))
    with pytest.raises(ClimptError, match="Command not found"):
        await cli.execute("climpt", "test", "nope", "input")
    with pytest.raises(ClimptError, match="Invalid command name: '--help'"):
        await cli.execute("climpt", "test", "--help", "input")
    assert not (work / "started").exists()


def test_another_setting_is_refused(work: Path, home: Path) -> None:
    with pytest.raises(ClimptError, match='execute must be "render" or "cli"'):
        service(work, home, "shell")
