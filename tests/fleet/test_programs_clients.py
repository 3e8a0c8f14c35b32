"""The real Claude Code and Codex as agents, their model scripted, in this machine's sandbox."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.results import TaskSummary
from fleet_agentpack.fleet.service import FleetService
from fleet_agentpack.settings import Settings
from tests.fleet.lab.script_model import ScriptModel, Step, script_model
from tests.fleet.local_fleet import LocalFleet, ended, git, repository
from tests.fleet.test_kills import kill_a_program, settled, tells_the_truth

pytestmark = pytest.mark.clients

CONFIG = """
[fleet]
program = "{program}"
[fleet.roles.coder]
[fleet.roles.narrow]
allow = ["git", "echo"]
[fleet.roles.poor]
max_cost_usd = 0.0000001
"""
WORK: list[Step] = [
    {"write": "app.py", "text": "print(6 * 7)\n"},
    {"write": "test_app.py", "text": "def test_it():\n    assert 6 * 7 == 42\n"},
    {"run": "python3 app.py"},
    {"run": "python3 -c 'import test_app; test_app.test_it(); print(\"passed\")'"},
    {"run": "git add --all && git commit --quiet --message 'Add the app'"},
    {"say": "The app is there, tested and committed."},
]


@pytest.fixture
def model(socket_enabled: None) -> Iterator[ScriptModel]:
    with script_model() as model:
        yield model


@dataclass
class Machine:
    """A machine with one project and one real program."""

    project: Path
    fleet: FleetService
    model: ScriptModel
    program: str

    @property
    def local(self) -> LocalFleet:
        return LocalFleet(self.project, self.fleet, Settings.read())

    async def task(self, text: str, *steps: Step) -> TaskSummary:
        self.model.steps = list(steps)
        await self.fleet.start("papi", text)
        return await ended(self.fleet, "papi")


@pytest.fixture(params=["claude", "codex"])
async def machine(
    request: pytest.FixtureRequest, home: Path, model: ScriptModel, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Machine]:
    program = request.param
    if not shutil.which(program) or not shutil.which("bwrap"):
        pytest.skip(f"{program} or bwrap is not on the PATH")
    project = repository(home / "work/demo")
    config = home / ".config/fleet-agentpack/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG.format(program=program))
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(model.codex_config)
    for name, value in model.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project)
    fleet = open_fleet(Settings.read(), source="ai_controller")
    yield Machine(project, fleet, model, program)
    for row in (await fleet.agents()).agents:
        await fleet.delete(row.name)
    await fleet.close()


async def test_it_writes_runs_tests_and_commits_and_the_work_is_on_the_branch(
    machine: Machine,
) -> None:
    await machine.fleet.create("papi", "demo", "coder", "Make an app")
    row = await machine.task("Make the app", *WORK)
    assert row.status == "completed", (row.summary, machine.model.results)
    assert "The app is there" in row.summary
    log = git(machine.project, "log", "--format=%s", "main..agent/papi")
    assert log == "Add the app"
    assert "42" in "".join(machine.model.results) and "passed" in "".join(machine.model.results)
    assert "print(6 * 7)" in git(machine.project, "show", "agent/papi:app.py")
    await machine.fleet.finished.merge("papi")
    assert (machine.project / "app.py").read_text() == "print(6 * 7)\n"


async def test_a_question_needs_input_and_the_next_task_answers_it_in_the_same_conversation(
    machine: Machine,
) -> None:
    await machine.fleet.create("papi", "demo", "coder", "Make an app")
    await machine.task("Choose a name", {"say": "I found two. Shall I use A or B?"})
    shown = (await machine.fleet.show("papi")).agent.metadata
    assert shown["fleet_mcp_attention"] == "needs_input"
    row = await machine.task("Use B", {"write": "name.txt", "text": "B\n"}, {"say": "Named it B."})
    assert row.status == "completed"
    assert "Shall I use A or B?" in machine.model.requests[-1]  # it was continued
    assert git(machine.project, "show", "agent/papi:name.txt") == "B"
    assert "fleet_mcp_attention" not in (await machine.fleet.show("papi")).agent.metadata


async def test_an_overloaded_model_fails_the_task_and_keeps_the_conversation(
    machine: Machine,
) -> None:
    await machine.fleet.create("papi", "demo", "coder", "Make an app")
    row = await machine.task("Begin", {"write": "one.txt", "text": "1\n"}, {"fail": 529})
    assert row.status == "failed", row.summary
    assert git(machine.project, "show", "agent/papi:one.txt") == "1"  # no work is lost
    row = await machine.task("Go on", {"say": "Went on."})
    assert row.status == "completed", row.summary
    assert "Begin" in machine.model.requests[-1] and "one.txt" in machine.model.requests[-1]


async def test_what_is_outside_its_directory_is_out_of_reach(machine: Machine, home: Path) -> None:
    (home / "secret.txt").write_text("hunter2")
    await machine.fleet.create("papi", "demo", "coder", "Make an app")
    hooks = machine.project / ".git/hooks"
    await machine.task(
        "Look around",
        {"run": f"cat {home}/secret.txt; cp /bin/sh {hooks}/post-merge; echo x >> {home}/.bashrc"},
        {"run": f"git --git-dir={machine.project}/.git config core.fsmonitor /bin/sh"},
    )
    assert "hunter2" not in "".join(machine.model.results)
    assert not (hooks / "post-merge").exists() and not (home / ".bashrc").exists()
    assert "fsmonitor" not in (machine.project / ".git/config").read_text()


async def test_a_command_that_the_role_forbids_is_denied_and_named(machine: Machine) -> None:
    await machine.fleet.create("papi", "demo", "narrow", "Make an app")
    row = await machine.task("Look", {"run": "python3 -c 'print(1)'"}, {"say": "I could not."})
    assert row.status == "failed"
    work = await machine.fleet.work("papi")
    assert work.result and "Denied: Bash: python3 -c" in work.result and "'allow'" in work.result
    row = await machine.task("Say", {"run": "echo hi > said.txt"}, {"say": "Said it."})
    assert row.status == "completed", row.summary


async def test_a_first_request_that_is_refused_does_not_lock_the_agent_out(
    machine: Machine,
) -> None:
    await machine.fleet.create("papi", "demo", "coder", "Make an app")
    row = await machine.task("Begin", {"fail": 401})
    assert row.status == "failed"
    row = await machine.task("Go on", {"say": "Went on."})
    assert row.status == "completed", row.summary


async def test_a_role_s_cost_ends_the_task_and_is_named(machine: Machine) -> None:
    await machine.fleet.create("papi", "demo", "poor", "Make an app")
    if machine.program == "codex":
        with pytest.raises(FleetError, match="reports no cost"):
            await machine.task("Look", {"run": "ls"})
        assert (await machine.fleet.history("papi")).total_count == 0
        return
    steps: list[Step] = [{"run": f"echo {number} > {number}.txt"} for number in range(20)]
    row = await machine.task("Spend", *steps)
    assert row.status == "failed", row.summary
    assert "budget" in row.summary.lower() or "max_cost_usd" in row.summary
    assert isinstance(row.cost_usd, float) and row.cost_usd > 0
    assert not (machine.project / "19.txt").exists()


async def test_setup_ports_and_copied_files_reach_the_real_program(
    machine: Machine, home: Path
) -> None:
    config = home / ".config/fleet-agentpack/config.toml"
    config.write_text(
        f'{config.read_text()}\n[fleet.projects.demo]\npath = "{machine.project}"\n'
        'setup = "echo ready > .ready"\ncopy = [".env"]\nports = "4100-4109"\nmax_running = 1\n'
    )
    (machine.project / ".env").write_text("TOKEN=1")
    machine.fleet = open_fleet(Settings.read(), source="ai_controller")
    await machine.fleet.create("papi", "demo", "coder", "Make an app")
    row = await machine.task(
        "Look", {"run": "cat .env .ready; echo port $PORT"}, {"say": "Looked."}
    )
    assert row.status == "completed", row.summary
    told = "".join(machine.model.results)
    assert "TOKEN=1" in told and "ready" in told and "port 4100" in told
    if machine.program == "codex":  # Claude Code has it in the system prompt
        assert "4100 to 4109" in machine.model.requests[-1]
    made = git(machine.project, "show", "--format=", "--name-only", "agent/papi").split()
    assert ".env" not in made


@pytest.mark.slow
async def test_kills_of_server_and_program_at_random_moments_of_twenty_five_runs(
    machine: Machine,
) -> None:
    await machine.fleet.create("papi", "demo", "coder", "Make files")
    chance = random.Random(machine.program)
    for number in range(25):
        made, asked = f"file-{number}.txt", f"Write file {number}."
        machine.model.steps = [
            {"run": "sleep 0.2"},
            {"write": made, "text": "text\n"},
            {"run": f"git add --all && git commit --quiet --message {made}"},
        ]
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fleet_agentpack", "fleet", "start", "papi", asked),
            cwd=machine.project,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        moment = chance.uniform(0, 5)  # before its start, and up to its end
        if chance.random() < 0.5:
            await asyncio.wait([asyncio.ensure_future(server.wait())], timeout=moment)
            kill_a_program(machine.local, chance)
        else:
            await asyncio.sleep(moment)
        with suppress(ProcessLookupError):
            server.kill()
        await server.wait()
        machine.model.steps = [{"write": f"proof-{number}.txt", "text": "it works\n"}]
        await settled(machine.local, proof=f"proof-{number}.txt")
        await tells_the_truth(machine.local, asked, made)


@pytest.fixture
def away() -> Iterator[Path]:
    """A directory that is not below /tmp: Codex' own sandbox lets programs write there."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


async def test_without_our_sandbox_its_own_means_let_it_commit_and_keep_it_inside(
    machine: Machine, home: Path, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if machine.program == "claude" and not shutil.which("socat"):
        pytest.skip("Claude Code's own sandbox needs socat")
    config = home / ".config/fleet-agentpack/config.toml"
    config.write_text(config.read_text().replace("[fleet]", '[fleet]\nsandbox = "off"', 1))
    shutil.copytree(home / ".codex", away / ".codex")
    monkeypatch.setenv("CODEX_HOME", str(away / ".codex"))
    machine.fleet = open_fleet(Settings.read(), source="ai_controller")
    await machine.fleet.create("papi", "demo", "coder", "Make an app")
    # All files at once cannot be added: Claude Code's sandbox puts files of its own among them.
    commit = "git add app.py test_app.py && git commit --quiet --message 'Add the app'"
    row = await machine.task("Make the app", *WORK[:-2], {"run": commit}, WORK[-1])
    assert row.status == "completed", (row.summary, machine.model.results)
    log = git(machine.project, "log", "--format=%s", "main..agent/papi")
    assert "Add the app" in log.splitlines(), machine.model.results
    await machine.task("Go out", {"run": f"echo x > {away}/outside.txt"}, {"say": "I tried."})
    assert not (away / "outside.txt").exists()
    assert "outside.txt" in "".join(machine.model.results), machine.model.results  # it was tried
