"""Agents on this machine, with real processes and real repositories."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.local import tasks as local_tasks
from fleet_agentpack.fleet.local.programs import Program
from fleet_agentpack.fleet.local.starting import Starter
from fleet_agentpack.fleet.models import Task
from fleet_agentpack.fleet.results import AgentSummary
from fleet_agentpack.settings import Settings
from tests.fleet.local_fleet import CONFIG, SPEC, LocalFleet, ended, git, repository
from tests.fleet.waiting import until


async def refused(work: Any) -> dict[str, Any]:
    with pytest.raises(FleetError) as caught:
        await work
    return caught.value.payload()


def configured(local: LocalFleet, text: str) -> Settings:
    path = local.settings.config_path
    assert path
    path.write_text(text)
    return Settings.read()


async def test_the_current_repository_is_the_project_and_the_three_roles_are_offered(
    local: LocalFleet,
) -> None:
    projects = (await local.fleet.projects()).projects
    assert [(row.name, row.template_name) for row in projects] == [("demo", "demo")]
    again = (await local.restarted().projects()).projects
    assert again == projects  # the id is made of the path
    roles = (await local.fleet.roles("DEMO")).roles
    assert [role.name for role in roles] == ["coder", "operator", "manager"]
    assert (await refused(local.fleet.roles("nope")))["details"]["status"] == 404


async def test_an_agent_has_a_repository_of_its_own_on_its_own_branch(local: LocalFleet) -> None:
    agent = (await local.create("Papi")).agent
    assert (agent.status, agent.role, agent.project) == ("idle", "coder", "demo")
    tree = local.tree("papi")
    base = git(local.project, "rev-parse", "HEAD")
    assert agent.metadata == {
        "fleet_mcp_agent_spec": SPEC,
        "fleet_mcp_directory": str(tree),
        "fleet_mcp_branch": "agent/papi",
        "fleet_mcp_base": base,
        "fleet_mcp_ahead": "0",
        "fleet_mcp_changed_files": "0",
    }
    assert (tree / ".git").is_dir() and git(tree, "status", "--porcelain") == ""
    assert git(tree, "branch", "--show-current") == "agent/papi"
    assert (tree / "src/app.py").read_text() == "print('hello')\n"
    shown = (await local.fleet.show("PAPI")).agent
    assert shown == agent


@pytest.mark.parametrize(
    ("order", "field"),
    [
        (("papi", "nope", "coder", "x"), "project"),
        (("papi", "demo", "astronaut", "x"), "role"),
        (("PAPI-1", "demo", "coder", "x"), "name"),
        (("../x", "demo", "coder", "x"), "name"),
        (("papi", "demo", "coder", ""), "spec"),
    ],
)
async def test_a_bad_order_is_400_and_leaves_nothing_behind(
    local: LocalFleet, order: tuple[str, str, str, str], field: str
) -> None:
    await local.create("papi-1")
    before = sorted(local.tree("").iterdir()), git(local.project, "branch", "--list")
    error = await refused(local.fleet.create(*order))
    assert (error["error"], error["details"]["field"]) == ("bad_request", field)
    assert (sorted(local.tree("").iterdir()), git(local.project, "branch", "--list")) == before


async def test_a_task_runs_and_its_result_becomes_the_outcome(local: LocalFleet) -> None:
    await local.create("papi")
    started = await local.fleet.start("papi", "write notes.txt all is well")
    assert (started.task.status, started.agent_status) == ("running", "busy")
    task = await local.ended("papi")
    assert task.id == started.task.id
    assert (task.status, task.source) == ("completed", "ai_controller")
    assert task.summary == "write notes.txt all is well → Did: write notes.txt all is well"
    assert (local.tree("papi") / "notes.txt").read_text() == "all is well"
    assert not (local.project / "notes.txt").exists()


async def test_role_and_spec_go_in_first_and_later_tasks_continue_the_conversation(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    for task in ("one", "fail two", "three"):
        await local.work("papi", task)
    first, second, third = local.heard("papi")
    session = first["arguments"][-1]
    assert first["arguments"][-2] == "--session" and len(session) == 36
    assert SPEC in first["arguments"][1] and "software engineer" in first["arguments"][1]
    assert second["arguments"][-2:] == third["arguments"][-2:] == ["--resume", session]
    assert [row["prompt"] for row in (first, second, third)] == ["one", "fail two", "three"]
    assert first["cwd"] == str(local.tree("papi").resolve())


async def test_a_first_task_that_fails_keeps_its_conversation_once_that_has_begun(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    await local.work("papi", "fail one")
    await local.work("papi", "two")
    first, second = local.heard("papi")
    assert second["arguments"][-2:] == ["--resume", first["arguments"][-1]]


async def test_a_first_task_that_ends_before_its_conversation_begins_it_anew(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    await local.work("papi", "mute")
    await local.work("papi", "two")
    await local.work("papi", "mute")  # its conversation cannot be found, say
    await local.work("papi", "four")
    second, fourth = local.heard("papi")
    assert second["arguments"][-2] == fourth["arguments"][-2] == "--session"


async def test_programs_inherit_no_secret_of_ours(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CODER_SESSION_TOKEN", "FLEET_AGENTPACK_TOKEN", "SECRET_OF_THE_CLIENT", "OTHER"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("FLEET_AGENTPACK_FLEET", "local")
    fleet = open_fleet(Settings.read(), source="human")
    await local.create("papi")
    await fleet.start("papi", "look around")
    assert (await ended(fleet, "papi")).source == "human"
    (heard,) = local.heard("papi")
    assert "OTHER" in heard["env"]
    assert not {"CODER_SESSION_TOKEN", "FLEET_AGENTPACK_TOKEN", "SECRET_OF_THE_CLIENT"} & set(
        heard["env"]
    )
    await fleet.close()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("fail to log in", "Not logged in · Please run /login"),
        ("crash 3", "ended with status 3: something broke"),
    ],
)
async def test_a_failed_task_tells_the_program_s_own_words(
    local: LocalFleet, task: str, words: str
) -> None:
    await local.create("papi")
    row = await local.work("papi", task)
    assert row.status == "failed"
    assert words in row.summary
    assert (await local.fleet.show("papi")).agent.status == "idle"


async def test_a_busy_agent_refuses_a_second_task(local: LocalFleet) -> None:
    await local.create("papi")
    await local.fleet.start("papi", "sleep 60")
    error = await refused(local.fleet.start("papi", "another"))
    assert (error["error"], error["details"]["status"]) == ("conflict", 409)
    (row,) = (await local.fleet.agents()).agents
    assert row == AgentSummary("papi", "busy", "sleep 60")


async def test_stop_interrupts_the_process_group(local: LocalFleet) -> None:
    await local.create("papi")
    await local.fleet.start("papi", "spawn")
    await until((local.tree("papi") / "child.pid").exists)
    task = task_folder(local, "papi").name
    assert len(processes_of(task)) > 1
    stopped = await local.fleet.stop("papi")
    assert stopped.task.status == "stopped" and stopped.agent_status == "idle"
    assert processes_of(task) == []
    assert (await local.ended("papi")).status == "stopped"
    error = await refused(local.fleet.stop("papi"))
    assert (error["error"], error["details"]["status"]) == ("bad_request", 400)
    assert (await local.work("papi", "go on")).status == "completed"
    assert local.heard("papi")[1]["arguments"][-2] == "--resume"


async def test_what_a_stopped_program_leaves_behind_is_ended_too(local: LocalFleet) -> None:
    await local.create("papi")
    await local.fleet.start("papi", "spawn stubborn")
    await until((local.tree("papi") / "child.pid").exists)
    assert (await local.fleet.stop("papi")).task.status == "stopped"
    assert processes_of(task_folder(local, "papi").name) == []


async def test_a_program_that_ignores_interrupts_is_ended(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_tasks, "INTERRUPT_S", 0.3)
    monkeypatch.setattr(local_tasks, "END_S", 0.3)
    await local.create("papi")
    await local.fleet.start("papi", "stubborn")
    await until(lambda: "ready" in output(local, "papi"))
    assert (await local.fleet.stop("papi")).task.status == "stopped"


SERVER = """
import asyncio, os, sys
from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.settings import Settings
async def main():
    fleet = open_fleet(Settings.read(), source="ai_controller")
    await fleet.start("papi", sys.argv[1])
    print("started", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("task", "status"), [("sleep 1", "completed"), ("sleep 60", "running"), ("crash 2", "failed")]
)
async def test_a_task_outlives_the_server_that_started_it(
    local: LocalFleet, task: str, status: str
) -> None:
    await local.create("papi")
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, task, stdout=subprocess.PIPE
    )
    assert server.stdout and (await server.stdout.readline()) == b"started\n"
    os.kill(server.pid, signal.SIGKILL)
    await server.wait()
    fleet = local.restarted()
    if status == "running":
        assert (await fleet.show("papi")).agent.status == "busy"
        assert (await fleet.stop("papi")).task.status == "stopped"
    else:
        assert (await ended(fleet, "papi")).status == status
    await fleet.close()


async def test_a_start_whose_server_was_killed_before_anything_ran_can_be_stopped(
    local: LocalFleet,
) -> None:
    agent = (await local.create("papi")).agent
    ledger = Ledger(local.settings.directories.state / "fleet.db")
    claim = Task(
        id="left-behind",
        workspace_id=agent.workspace_id,
        agent_name="papi",
        description="never began",
        status="pending",
        source="ai_controller",
        created_at=datetime.now(UTC),
        build=agent.workspace_id,
    )
    ledger.claim(claim)
    ledger.close()
    error = await refused(local.fleet.start("papi", "next"))
    assert error["details"]["status"] == 409 and "is being given a task" in error["message"]
    assert (await local.fleet.stop("papi")).task.status == "stopped"
    assert (await local.work("papi", "next")).status == "completed"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds the runner through /proc")
async def test_a_program_whose_runner_was_killed_dies_with_it_and_has_failed(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    await local.fleet.start("papi", "sleep 60")
    folder = task_folder(local, "papi")
    program = json.loads((folder / "process.json").read_text())["pid"]
    runner = int(Path(f"/proc/{program}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(runner, signal.SIGKILL)
    row = await local.ended("papi")
    assert row.status == "failed" and "killed" in row.summary
    assert processes_of(folder.name) == []


async def test_history_of_a_lost_ledger_comes_back_from_the_task_itself(local: LocalFleet) -> None:
    await local.create("papi")
    await local.fleet.start("papi", "sleep 60")
    ledger = local.settings.directories.state / "fleet.db"
    await local.fleet.close()
    for path in ledger.parent.glob("fleet.db*"):
        path.unlink()
    fleet = open_fleet(local.settings, source="ai_controller")
    agent = (await fleet.show("papi")).agent
    assert (agent.status, agent.current_task) == ("busy", "sleep 60")
    await fleet.stop("papi")
    await fleet.close()


async def test_twenty_agents_work_at_once(local: LocalFleet) -> None:
    names = [f"agent-{number}" for number in range(20)]
    await asyncio.gather(*(local.create(name) for name in names))
    await asyncio.gather(*(local.fleet.start(name, f"write who.txt {name}") for name in names))
    tasks = await asyncio.gather(*(local.ended(name) for name in names))
    assert {task.status for task in tasks} == {"completed"}
    assert [(local.tree(name) / "who.txt").read_text() for name in names] == names
    listed = await local.fleet.agents()
    assert listed.total_count == 20
    assert {row.status for row in listed.agents} == {"idle"}


async def test_two_controllers_starting_at_once_one_wins(local: LocalFleet) -> None:
    await local.create("papi")
    fleets = [local.restarted() for _ in range(6)]
    results = await asyncio.gather(
        *(fleet.start("papi", "sleep 60") for fleet in fleets), return_exceptions=True
    )
    errors = [result for result in results if isinstance(result, FleetError)]
    assert len(errors) == 5 and {error.kind for error in errors} == {"conflict"}
    assert (await local.fleet.history("papi")).total_count == 1
    for fleet in fleets:
        await fleet.close()


async def test_delete_of_an_untouched_agent_leaves_no_trace(local: LocalFleet) -> None:
    await local.create("papi")
    gone = await local.fleet.delete("Papi")
    assert gone.message == "Agent 'papi' deleted successfully"
    assert not local.tree("papi").exists()
    assert git(local.project, "branch", "--list", "agent/*") == ""
    assert git(local.project, "worktree", "list").count("\n") == 0
    assert (await refused(local.fleet.show("papi")))["details"]["status"] == 404


async def test_delete_keeps_uncommitted_changes_on_the_branch_and_names_it(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    await local.work("papi", "write notes.txt all is well")
    (local.tree("papi") / "README.md").write_text("Changed\n")
    gone = await local.fleet.delete("papi")
    assert "agent/papi" in gone.message
    assert git(local.project, "show", "agent/papi:notes.txt") == "all is well"
    assert git(local.project, "show", "agent/papi:README.md") == "Changed"
    assert git(local.project, "status", "--porcelain") == ""
    again = await local.create("papi")  # the kept branch is left alone
    assert again.agent.name == "papi"
    assert git(local.tree("papi"), "branch", "--show-current") == "agent/papi-2"


async def test_delete_keeps_commits_also_those_on_no_branch(local: LocalFleet) -> None:
    await local.create("papi")
    tree = local.tree("papi")
    git(tree, "checkout", "--quiet", "--detach")
    (tree / "deep.txt").write_text("thought")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "-m", "Deep")
    gone = await local.fleet.delete("papi")
    assert "agent/papi" in gone.message
    assert git(local.project, "show", "agent/papi:deep.txt") == "thought"


async def test_delete_in_the_middle_of_a_conflicted_merge_keeps_the_files(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    tree = local.tree("papi")
    git(tree, "checkout", "--quiet", "-b", "other")
    (tree / "README.md").write_text("Theirs\n")
    git(tree, "commit", "--quiet", "-am", "Theirs")
    git(tree, "checkout", "--quiet", "agent/papi")
    (tree / "README.md").write_text("Ours\n")
    git(tree, "commit", "--quiet", "-am", "Ours")
    subprocess.run(["git", "-C", str(tree), "merge", "other"], capture_output=True, check=False)
    gone = await local.fleet.delete("papi")
    assert "agent/papi" in gone.message
    assert "<<<<<<<" in git(local.project, "show", "agent/papi:README.md")


async def test_delete_keeps_files_that_git_ignores_but_nothing_that_can_be_remade(
    local: LocalFleet,
) -> None:
    (local.project / ".gitignore").write_text(".env\ndata/\n*.pyc\nnode_modules/\n.venv\n.cache/\n")
    git(local.project, "add", "--all")
    git(local.project, "commit", "--quiet", "-m", "Ignore")
    await local.create("papi")
    tree = local.tree("papi")
    made = [".env", "data/deep/rows.csv", "src/data/ümlaut\n.txt", "notes.txt"]
    remade = [
        "node_modules/left-pad/index.js",
        "src/__pycache__/app.pyc",
        ".venv/pyvenv.cfg",
        ".cache/CACHEDIR.TAG",
    ]
    for path in (*made, *remade):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(path)
    message = (await local.fleet.delete("papi")).message
    (kept,) = (local.settings.directories.data / "kept").iterdir()
    assert f"kept in {kept}: .env, data/" in message and "agent/papi" in message
    found = [str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()]
    assert sorted(found) == sorted(made[:3])
    assert (kept / made[1]).read_text() == made[1]
    assert git(local.project, "show", "agent/papi:notes.txt") == "notes.txt"
    assert not tree.exists()


async def test_a_cache_that_ignores_itself_is_not_kept_and_the_branch_is_named_all_the_same(
    local: LocalFleet,
) -> None:
    await local.create("papi")
    await local.work("papi", "write notes.txt text")
    cache = local.tree("papi") / ".pytest_cache"  # as pytest, mypy and ruff make theirs
    (cache / "v").mkdir(parents=True)
    for name, text in ((".gitignore", "*\n"), ("CACHEDIR.TAG", "tag"), ("v/nodeids", "[]")):
        (cache / name).write_text(text)
    inner = local.tree("papi") / "data"
    inner.mkdir()
    for name in (".gitignore", "rows.csv"):
        (inner / name).write_text("*\n")
    message = (await local.fleet.delete("papi")).message
    assert "Its commits are on branch agent/papi." in message
    (kept,) = (local.settings.directories.data / "kept").iterdir()
    assert [path.name for path in kept.iterdir()] == ["data"] and ".pytest_cache" not in message


async def test_delete_keeps_a_copy_with_submodules_and_their_commits(local: LocalFleet) -> None:
    inner = repository(local.project.parent / "inner")
    allow = ("-c", "protocol.file.allow=always")
    git(local.project, *allow, "submodule", "--quiet", "add", str(inner), "vendor")
    git(local.project, "commit", "--quiet", "-m", "Submodule")
    await local.create("empty")  # its submodule is not there: nothing to keep
    assert (await local.fleet.delete("empty")).message == "Agent 'empty' deleted successfully"
    await local.create("papi")
    tree = local.tree("papi")
    git(tree, *allow, "submodule", "--quiet", "update", "--init")
    (tree / "vendor/README.md").write_text("Changed inside\n")
    git(tree / "vendor", "commit", "--quiet", "-am", "Inside")
    (tree / "vendor/more.txt").write_text("uncommitted")
    message = (await local.fleet.delete("papi")).message
    (kept,) = (local.settings.directories.data / "kept").iterdir()
    assert str(kept) in message
    await local.create("papi")  # as if the first had never been
    assert git(kept / "vendor", "log", "-1", "--format=%s") == "Inside"
    assert (kept / "vendor/more.txt").read_text() == "uncommitted"
    assert git(kept, "branch", "--show-current") == "agent/papi"


async def test_delete_keeps_a_directory_that_holds_another_repository(local: LocalFleet) -> None:
    await local.create("papi")
    repository(local.tree("papi") / "vendor/inner")
    gone = await local.fleet.delete("papi")
    (kept,) = (local.settings.directories.data / "kept").iterdir()
    assert str(kept) in gone.message
    assert (kept / "vendor/inner/README.md").exists()


async def test_delete_ends_the_running_task_first(local: LocalFleet) -> None:
    await local.create("papi")
    await local.fleet.start("papi", "sleep 60")
    program = json.loads((task_folder(local, "papi") / "process.json").read_text())["pid"]
    await local.fleet.delete("papi")
    assert gone(program)


async def test_a_project_without_git_is_copied_and_changes_are_kept(
    local: LocalFleet, home: Path
) -> None:
    plain = home / "plain"
    (plain / "sub").mkdir(parents=True)
    (plain / "sub/file.txt").write_text("text")
    (plain / "loop").symlink_to(".")
    settings = configured(local, f'{CONFIG}\n[fleet.projects.Plain]\npath = "{plain}"\n')
    fleet = open_fleet(settings, source="human")
    await fleet.create("one", "plain", "coder", "x")
    await fleet.create("two", "PLAIN", "coder", "x")
    await fleet.start("two", "write sub/new.txt something")
    await ended(fleet, "two")
    assert not (plain / "sub/new.txt").exists()
    assert (await fleet.delete("one")).message == "Agent 'one' deleted successfully"
    message = (await fleet.delete("two")).message
    (kept,) = (settings.directories.data / "kept").iterdir()
    assert str(kept) in message
    assert (kept / "sub/new.txt").read_text() == "something"
    await fleet.close()


async def test_a_folder_of_a_repository_is_worked_on_inside_a_copy_of_it(local: LocalFleet) -> None:
    settings = configured(
        local, f'{CONFIG}\n[fleet.projects.App]\npath = "{local.project / "src"}"\n'
    )
    fleet = open_fleet(settings, source="human")
    await fleet.create("papi", "app", "coder", "x")
    await fleet.start("papi", "look")
    await ended(fleet, "papi")
    assert local.heard("papi")[0]["cwd"] == str((local.tree("papi") / "src").resolve())
    await fleet.delete("papi")
    await fleet.close()


async def test_a_repository_without_a_commit_is_a_clear_400(local: LocalFleet, home: Path) -> None:
    empty = home / "empty"
    empty.mkdir()
    git(empty, "init", "--quiet")
    settings = configured(local, f'{CONFIG}\n[fleet.projects.E]\npath = "{empty}"\n')
    fleet = open_fleet(settings, source="human")
    error = await refused(fleet.create("papi", "E", "coder", "x"))
    assert error["error"] == "bad_request" and "no commit" in error["message"]
    await fleet.close()


async def test_a_copy_that_git_cannot_finish_leaves_nothing_behind(local: LocalFleet) -> None:
    (local.project / ".gitattributes").write_text("*.md filter=broken\n")
    git(local.project, "add", "--all")
    git(local.project, "commit", "--quiet", "-m", "Filter")
    for setting in ("smudge", "clean"):
        git(local.project, "config", "--global", f"filter.broken.{setting}", "false")
    git(local.project, "config", "--global", "filter.broken.required", "true")
    error = await refused(local.create("papi"))
    assert error["error"] == "unavailable" and "filter" in error["message"]
    assert not local.tree("papi").exists()
    assert git(local.project, "for-each-ref", "refs/heads/agent", "refs/fleet-agentpack") == ""
    git(local.project, "config", "--global", "--remove-section", "filter.broken")
    await local.create("papi")


async def test_a_directory_without_an_agent_is_set_aside_not_overwritten(local: LocalFleet) -> None:
    left = local.tree("papi")
    left.mkdir(parents=True)
    (left / "thought.txt").write_text("work")
    await local.create("papi")
    (kept,) = (local.settings.directories.data / "kept").iterdir()
    assert (kept / "thought.txt").read_text() == "work"


async def test_a_program_that_is_not_installed_is_503_and_creates_nothing(
    local: LocalFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").symlink_to(shutil.which("git") or "git")
    monkeypatch.setenv("PATH", str(programs))
    fleet = open_fleet(configured(local, ""), source="human")
    error = await refused(fleet.create("papi", "demo", "coder", "x"))
    assert error["error"] == "unavailable" and "claude is not installed" in error["message"]
    assert not local.tree("papi").exists()
    await fleet.close()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ('[fleet]\nengine = "cloud"', "must be 'coder' or 'local'"),
        ("[fleet]\nprogram = 5", "fleet.program must be text"),
        ('[fleet]\nprogram = "nope"', "no program 'nope'"),
        ("fleet = 3", "must be a table"),
        ("[fleet.programs.x]\nfirst = []", "fleet.programs.x.command is missing"),
        ('[fleet.programs.x]\ncommand = ["a"]\nflags = []', "x.flags is not a known key"),
        ('[fleet.programs.x]\ncommand = ["a"]\nreadings = [{}]', "x.readings[0].field is missing"),
        ("[fleet.programs.x]\ncommand = []", "fleet.programs.x.command must be a list"),
        ("[fleet.programs]\nx = 1", "fleet.programs.x must be a table"),
        ("[fleet.projects.x]", "fleet.projects.x.path is missing"),
        ('[fleet.projects.x]\npath = "here"', "must be absolute"),
    ],
)
async def test_settings_that_cannot_be_used_are_503_and_name_themselves(
    local: LocalFleet, config: str, words: str
) -> None:
    settings = configured(local, config)

    async def create() -> None:
        await open_fleet(settings, source="human").create("papi", "demo", "coder", "x")

    error = await refused(create())
    assert error["error"] == "unavailable" and words in error["message"]


async def test_a_setting_of_the_wrong_kind_is_named_in_the_details(local: LocalFleet) -> None:
    settings = configured(local, "[fleet]\ncreate_timeout_s = -1")
    with pytest.raises(FleetError) as caught:
        open_fleet(settings, source="human")
    assert caught.value.details == {"status": 503, "setting": "create_timeout_s"}


async def test_configured_roles_replace_the_usual_ones_and_set_the_prompt(
    local: LocalFleet,
) -> None:
    roles = '[fleet.roles.tester]\ndisplay_name = "Tester"\nprompt = "Break things."\n'
    fleet = open_fleet(configured(local, CONFIG + roles), source="human")
    assert [role.name for role in (await fleet.roles("demo")).roles] == ["tester"]
    await fleet.create("papi", "demo", "tester", "The parser")
    await fleet.start("papi", "go")
    await ended(fleet, "papi")
    assert local.heard("papi")[0]["arguments"][1] == (
        "Break things.\n\nYour specification:\nThe parser"
    )
    await fleet.close()


async def test_logs_show_the_program_s_output(local: LocalFleet) -> None:
    await local.create("papi")
    await local.work("papi", "crash 1")
    lines = [(line.who, line.text) for line in (await local.fleet.transcript("papi")).lines]
    assert ("errors", "something broke") in lines


def task_folder(local: LocalFleet, name: str) -> Path:
    (folder,) = (local.settings.directories.state / "agents" / name / "tasks").iterdir()
    return folder


def output(local: LocalFleet, name: str) -> str:
    path = task_folder(local, name) / "output"
    return path.read_text() if path.exists() else ""


def processes_of(task: str) -> list[int]:
    """The processes of a task that live, wherever they are now."""
    mark, found = f"{local_tasks.TASK_VARIABLE}={task}".encode(), []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # no /proc on this system
        return False
    return state == "Z"


@pytest.mark.parametrize("last", ["it ended", "the machine was restarted"])
async def test_a_program_that_has_the_number_of_an_old_one_is_left_alone(
    local: LocalFleet, last: str
) -> None:
    await local.create("papi")
    await local.work("papi", "go")
    [task] = (local.settings.directories.state / "agents/papi/tasks").iterdir()
    at = time.time()
    if last == "the machine was restarted":
        (task / "outcome.json").unlink()
        at = 1.0
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        (task / "process.json").write_text(json.dumps({"pid": stranger.pid, "at": at}))
        await local.fleet.delete("papi")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_start_that_takes_too_long_leaves_nothing_running(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await local.create("papi")
    hang = "import os, time\nif os.fork(): os._exit(0)\nos.setsid(); time.sleep(60)\n"
    with monkeypatch.context() as slow:
        slow.setattr(local_tasks, "_BOOT", hang)
        slow.setattr(local_tasks, "START_S", 1.0)
        with pytest.raises(FleetError, match="did not start within"):
            await local.fleet.start("papi", "go")
    assert (await local.fleet.history("papi")).total_count == 0
    assert (await local.work("papi", "go")).status == "completed"


async def test_a_task_that_is_stopped_before_it_began_never_begins(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await local.create("papi")
    installed = Starter.installed

    def stopped_meanwhile(self: Starter, name: str) -> Program:
        other = local.restarted()
        asyncio.run(other.stop("papi"))
        asyncio.run(other.close())
        return installed(self, name)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Starter, "installed", stopped_meanwhile)
        told = await refused(local.fleet.start("papi", "write never.txt text"))
    assert told["error"] == "conflict" and "stopped" in told["message"]
    with monkeypatch.context() as meanwhile:  # by a signal to the runner that has not begun yet
        boot = "import sys; open(sys.argv[2] + '/interrupted', 'w'); raise KeyboardInterrupt"
        meanwhile.setattr(local_tasks, "_BOOT", boot)
        told = await refused(local.fleet.start("papi", "write never.txt text"))
        assert told["error"] == "conflict" and "stopped" in told["message"]
    assert [row.status for row in (await local.fleet.history("papi")).tasks] == ["stopped"]
    assert (await local.work("papi", "go")).status == "completed"
    assert not (local.tree("papi") / "never.txt").exists()


async def test_a_start_that_fails_says_why_in_one_line(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await local.create("papi")
    full = "import errno, os\nfrom fleet_agentpack.fleet.local import runner\n"
    full += "def fail(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
    full += "runner.write = runner.start = fail"
    boot = local_tasks._BOOT.replace("from fleet", f"exec({full!r}); from fleet")
    monkeypatch.setattr(local_tasks, "_BOOT", boot)
    told = await refused(local.fleet.start("papi", "go"))
    assert told["message"].endswith("No space left on device"), told
    assert "Traceback" not in told["message"]
