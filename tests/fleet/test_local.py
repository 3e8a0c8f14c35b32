"""Agents on this machine, with real processes and real worktrees."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.local import tasks as local_tasks
from fleet_agentpack.fleet.models import Task
from fleet_agentpack.kit.results import jsonable
from fleet_agentpack.settings import Settings
from tests.fleet.here import CONFIG, SPEC, Here, ended, git, repository


async def refused(work: Any) -> dict[str, Any]:
    with pytest.raises(FleetError) as caught:
        await work
    return caught.value.payload()


def configured(here: Here, text: str) -> Settings:
    path = here.settings.config_path
    assert path
    path.write_text(text)
    return Settings.read()


async def test_the_current_repository_is_the_project_and_the_three_roles_are_offered(
    here: Here,
) -> None:
    projects = jsonable(await here.fleet.projects())["projects"]
    assert [(row["name"], row["template_name"]) for row in projects] == [("demo", "demo")]
    again = jsonable(await here.restarted().projects())["projects"]
    assert again == projects  # the id is made of the path
    roles = jsonable(await here.fleet.roles("DEMO"))["roles"]
    assert [role["name"] for role in roles] == ["coder", "operator", "manager"]
    assert (await refused(here.fleet.roles("nope")))["details"]["status"] == 404


async def test_an_agent_is_a_worktree_on_its_own_branch(here: Here) -> None:
    agent = (await here.create("Papi"))["agent"]
    assert (agent["status"], agent["role"], agent["project"]) == ("idle", "coder", "demo")
    assert agent["metadata"] == {"fleet_mcp_agent_spec": SPEC}
    tree = here.tree("papi")
    assert git(tree, "branch", "--show-current") == "agent/papi"
    assert (tree / "src/app.py").read_text() == "print('hello')\n"
    shown = (await here.fleet.show("PAPI"))["agent"]
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
    here: Here, order: tuple[str, str, str, str], field: str
) -> None:
    await here.create("papi-1")
    before = sorted(here.tree("").iterdir()), git(here.project, "branch", "--list")
    error = await refused(here.fleet.create(*order))
    assert (error["error"], error["details"]["field"]) == ("bad_request", field)
    assert (sorted(here.tree("").iterdir()), git(here.project, "branch", "--list")) == before


async def test_a_task_runs_and_its_result_becomes_the_outcome(here: Here) -> None:
    await here.create("papi")
    started = jsonable(await here.fleet.start("papi", "write notes.txt all is well"))
    assert (started["task"]["status"], started["agent_status"]) == ("running", "busy")
    task = await here.ended("papi")
    assert task["id"] == started["task"]["id"]
    assert (task["status"], task["source"]) == ("completed", "ai_controller")
    assert task["summary"] == "write notes.txt all is well → Did: write notes.txt all is well"
    assert (here.tree("papi") / "notes.txt").read_text() == "all is well"
    assert not (here.project / "notes.txt").exists()


async def test_role_and_spec_go_in_first_and_later_tasks_continue_the_conversation(
    here: Here,
) -> None:
    await here.create("papi")
    for task in ("one", "fail two", "three"):
        await here.work("papi", task)
    first, second, third = here.heard("papi")
    session = first["arguments"][-1]
    assert first["arguments"][-2] == "--session" and len(session) == 36
    assert SPEC in first["arguments"][1] and "software engineer" in first["arguments"][1]
    assert second["arguments"][-2:] == third["arguments"][-2:] == ["--resume", session]
    assert [row["prompt"] for row in (first, second, third)] == ["one", "fail two", "three"]
    assert first["cwd"] == str(here.tree("papi").resolve())


async def test_a_first_task_that_fails_begins_the_conversation_anew(here: Here) -> None:
    await here.create("papi")
    await here.work("papi", "fail one")
    await here.work("papi", "two")
    first, second = here.heard("papi")
    assert second["arguments"][-2] == "--session"
    assert second["arguments"][-1] != first["arguments"][-1]


async def test_programs_inherit_no_secret_of_ours(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CODER_SESSION_TOKEN", "FLEET_AGENTPACK_TOKEN", "SECRET_OF_THE_CLIENT", "OTHER"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("FLEET_AGENTPACK_FLEET", "local")
    fleet = open_fleet(Settings.read(), source="human")
    await here.create("papi")
    await fleet.start("papi", "look around")
    assert (await ended(fleet, "papi"))["source"] == "human"
    (heard,) = here.heard("papi")
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
    here: Here, task: str, words: str
) -> None:
    await here.create("papi")
    row = await here.work("papi", task)
    assert row["status"] == "failed"
    assert words in row["summary"]
    assert (await here.fleet.show("papi"))["agent"]["status"] == "idle"


async def test_a_busy_agent_refuses_a_second_task(here: Here) -> None:
    await here.create("papi")
    await here.fleet.start("papi", "sleep 60")
    error = await refused(here.fleet.start("papi", "another"))
    assert (error["error"], error["details"]["status"]) == ("conflict", 409)
    (row,) = (await here.fleet.agents())["agents"]
    assert row == {"name": "papi", "status": "busy", "current_task": "sleep 60"}


async def test_stop_interrupts_the_process_group(here: Here) -> None:
    await here.create("papi")
    await here.fleet.start("papi", "spawn")
    child = here.tree("papi") / "child.pid"
    await until(child.exists)
    stopped = await here.fleet.stop("papi")
    assert stopped["task"]["status"] == "stopped" and stopped["agent_status"] == "idle"
    await until(lambda: gone(int(child.read_text())))
    assert (await here.ended("papi"))["status"] == "stopped"
    error = await refused(here.fleet.stop("papi"))
    assert (error["error"], error["details"]["status"]) == ("bad_request", 400)
    assert (await here.work("papi", "go on"))["status"] == "completed"
    assert here.heard("papi")[1]["arguments"][-2] == "--resume"


async def test_a_program_that_ignores_interrupts_is_ended(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_tasks, "INTERRUPT_S", 0.3)
    monkeypatch.setattr(local_tasks, "END_S", 0.3)
    await here.create("papi")
    await here.fleet.start("papi", "stubborn")
    await until(lambda: "ready" in output(here, "papi"))
    assert (await here.fleet.stop("papi"))["task"]["status"] == "stopped"


SERVER = """
import asyncio, os, sys
from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.settings import Settings
async def main():
    fleet = open_fleet(Settings.read(), source="ai_controller")
    await fleet.start("papi", sys.argv[1])
    print("started", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("task", "status"), [("sleep 1", "completed"), ("sleep 60", "running"), ("crash 2", "failed")]
)
async def test_a_task_outlives_the_server_that_started_it(
    here: Here, task: str, status: str
) -> None:
    await here.create("papi")
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, task, stdout=subprocess.PIPE
    )
    assert server.stdout and (await server.stdout.readline()) == b"started\n"
    os.kill(server.pid, signal.SIGKILL)
    await server.wait()
    fleet = here.restarted()
    if status == "running":
        assert (await fleet.show("papi"))["agent"]["status"] == "busy"
        assert (await fleet.stop("papi"))["task"]["status"] == "stopped"
    else:
        assert (await ended(fleet, "papi"))["status"] == status
    await fleet.close()


async def test_a_start_whose_server_was_killed_before_anything_ran_can_be_stopped(
    here: Here,
) -> None:
    agent = (await here.create("papi"))["agent"]
    ledger = Ledger(here.settings.directories.state / "fleet.db")
    claim = Task(
        id="left-behind",
        workspace_id=agent["workspace_id"],
        agent_name="papi",
        description="never began",
        status="pending",
        source="ai_controller",
        created_at=datetime.now(UTC),
        build=agent["workspace_id"],
    )
    ledger.claim(claim)
    ledger.close()
    error = await refused(here.fleet.start("papi", "next"))
    assert error["details"]["status"] == 409 and "is being given a task" in error["message"]
    assert (await here.fleet.stop("papi"))["task"]["status"] == "stopped"
    assert (await here.work("papi", "next"))["status"] == "completed"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds the runner through /proc")
async def test_a_task_whose_processes_were_all_killed_has_failed(here: Here) -> None:
    await here.create("papi")
    await here.fleet.start("papi", "sleep 60")
    folder = task_folder(here, "papi")
    program = json.loads((folder / "process.json").read_text())["pid"]
    runner = int(Path(f"/proc/{program}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(runner, signal.SIGKILL)
    await asyncio.sleep(0.2)
    assert (await here.fleet.show("papi"))["agent"]["status"] == "busy"  # the program lives on
    os.kill(program, signal.SIGKILL)
    row = await here.ended("papi")
    assert row["status"] == "failed" and "killed" in row["summary"]


async def test_history_of_a_lost_ledger_comes_back_from_the_task_itself(here: Here) -> None:
    await here.create("papi")
    await here.fleet.start("papi", "sleep 60")
    ledger = here.settings.directories.state / "fleet.db"
    await here.fleet.close()
    for path in ledger.parent.glob("fleet.db*"):
        path.unlink()
    fleet = open_fleet(here.settings, source="ai_controller")
    agent = (await fleet.show("papi"))["agent"]
    assert (agent["status"], agent["current_task"]) == ("busy", "sleep 60")
    await fleet.stop("papi")
    await fleet.close()


async def test_twenty_agents_work_at_once(here: Here) -> None:
    names = [f"agent-{number}" for number in range(20)]
    await asyncio.gather(*(here.create(name) for name in names))
    await asyncio.gather(*(here.fleet.start(name, f"write who.txt {name}") for name in names))
    tasks = await asyncio.gather(*(here.ended(name) for name in names))
    assert {task["status"] for task in tasks} == {"completed"}
    assert [(here.tree(name) / "who.txt").read_text() for name in names] == names
    listed = await here.fleet.agents()
    assert listed["total_count"] == 20
    assert {row["status"] for row in listed["agents"]} == {"idle"}


async def test_two_controllers_starting_at_once_one_wins(here: Here) -> None:
    await here.create("papi")
    fleets = [here.restarted() for _ in range(6)]
    results = await asyncio.gather(
        *(fleet.start("papi", "sleep 60") for fleet in fleets), return_exceptions=True
    )
    errors = [result for result in results if isinstance(result, FleetError)]
    assert len(errors) == 5 and {error.kind for error in errors} == {"conflict"}
    assert (await here.fleet.history("papi"))["total_count"] == 1
    for fleet in fleets:
        await fleet.close()


async def test_delete_of_an_untouched_agent_leaves_no_trace(here: Here) -> None:
    await here.create("papi")
    gone = await here.fleet.delete("Papi")
    assert gone["message"] == "Agent 'papi' deleted successfully"
    assert not here.tree("papi").exists()
    assert git(here.project, "branch", "--list", "agent/*") == ""
    assert git(here.project, "worktree", "list").count("\n") == 0
    assert (await refused(here.fleet.show("papi")))["details"]["status"] == 404


async def test_delete_keeps_uncommitted_changes_on_the_branch_and_names_it(here: Here) -> None:
    await here.create("papi")
    await here.work("papi", "write notes.txt all is well")
    (here.tree("papi") / "README.md").write_text("Changed\n")
    gone = await here.fleet.delete("papi")
    assert "agent/papi" in gone["message"]
    assert git(here.project, "show", "agent/papi:notes.txt") == "all is well"
    assert git(here.project, "show", "agent/papi:README.md") == "Changed"
    assert git(here.project, "status", "--porcelain") == ""
    again = await here.create("papi")  # the kept branch is left alone
    assert again["agent"]["name"] == "papi"
    assert git(here.tree("papi"), "branch", "--show-current") == "agent/papi-2"


async def test_delete_keeps_commits_also_those_on_no_branch(here: Here) -> None:
    await here.create("papi")
    tree = here.tree("papi")
    git(tree, "checkout", "--quiet", "--detach")
    (tree / "deep.txt").write_text("thought")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "-m", "Deep")
    gone = await here.fleet.delete("papi")
    assert "agent/papi-kept" in gone["message"]
    assert git(here.project, "show", "agent/papi-kept:deep.txt") == "thought"


async def test_delete_in_the_middle_of_a_conflicted_merge_keeps_the_files(here: Here) -> None:
    await here.create("papi")
    tree = here.tree("papi")
    (here.project / "README.md").write_text("Theirs\n")
    git(here.project, "commit", "--quiet", "-am", "Theirs")
    (tree / "README.md").write_text("Ours\n")
    git(tree, "commit", "--quiet", "-am", "Ours")
    subprocess.run(["git", "-C", str(tree), "merge", "main"], capture_output=True, check=False)
    gone = await here.fleet.delete("papi")
    assert "agent/papi" in gone["message"]
    assert "<<<<<<<" in git(here.project, "show", "agent/papi:README.md")


async def test_delete_keeps_files_that_git_ignores_but_nothing_that_can_be_remade(
    here: Here,
) -> None:
    (here.project / ".gitignore").write_text(".env\ndata/\n*.pyc\nnode_modules/\n.venv\n.cache/\n")
    git(here.project, "add", "--all")
    git(here.project, "commit", "--quiet", "-m", "Ignore")
    await here.create("papi")
    tree = here.tree("papi")
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
    message = (await here.fleet.delete("papi"))["message"]
    (kept,) = (here.settings.directories.data / "kept").iterdir()
    assert f"kept in {kept}: .env, data/" in message and "agent/papi" in message
    found = [str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()]
    assert sorted(found) == sorted(made[:3])
    assert (kept / made[1]).read_text() == made[1]
    assert git(here.project, "show", "agent/papi:notes.txt") == "notes.txt"
    assert not tree.exists()


async def test_delete_keeps_a_worktree_with_submodules_and_their_commits(here: Here) -> None:
    inner = repository(here.project.parent / "inner")
    allow = ("-c", "protocol.file.allow=always")
    git(here.project, *allow, "submodule", "--quiet", "add", str(inner), "vendor")
    git(here.project, "commit", "--quiet", "-m", "Submodule")
    await here.create("empty")  # its submodule is not there: nothing to keep
    assert (await here.fleet.delete("empty"))["message"] == "Agent 'empty' deleted successfully"
    await here.create("papi")
    tree = here.tree("papi")
    git(tree, *allow, "submodule", "--quiet", "update", "--init")
    (tree / "vendor/README.md").write_text("Changed inside\n")
    git(tree / "vendor", "commit", "--quiet", "-am", "Inside")
    (tree / "vendor/more.txt").write_text("uncommitted")
    message = (await here.fleet.delete("papi"))["message"]
    (kept,) = (here.settings.directories.data / "kept").iterdir()
    assert str(kept) in message
    await here.create("papi")  # prunes the worktrees that are gone
    assert git(kept / "vendor", "log", "-1", "--format=%s") == "Inside"
    assert (kept / "vendor/more.txt").read_text() == "uncommitted"
    assert git(kept, "branch", "--show-current") == "agent/papi"


async def test_delete_keeps_a_directory_that_holds_another_repository(here: Here) -> None:
    await here.create("papi")
    repository(here.tree("papi") / "vendor/inner")
    gone = await here.fleet.delete("papi")
    (kept,) = (here.settings.directories.data / "kept").iterdir()
    assert str(kept) in gone["message"]
    assert (kept / "vendor/inner/README.md").exists()


async def test_delete_ends_the_running_task_first(here: Here) -> None:
    await here.create("papi")
    await here.fleet.start("papi", "sleep 60")
    program = json.loads((task_folder(here, "papi") / "process.json").read_text())["pid"]
    await here.fleet.delete("papi")
    assert gone(program)


async def test_a_project_without_git_is_copied_and_changes_are_kept(here: Here, home: Path) -> None:
    plain = home / "plain"
    (plain / "sub").mkdir(parents=True)
    (plain / "sub/file.txt").write_text("text")
    (plain / "loop").symlink_to(".")
    settings = configured(here, f'{CONFIG}\n[fleet.projects.Plain]\npath = "{plain}"\n')
    fleet = open_fleet(settings, source="human")
    await fleet.create("one", "plain", "coder", "x")
    await fleet.create("two", "PLAIN", "coder", "x")
    await fleet.start("two", "write sub/new.txt something")
    await ended(fleet, "two")
    assert not (plain / "sub/new.txt").exists()
    assert (await fleet.delete("one"))["message"] == "Agent 'one' deleted successfully"
    message = (await fleet.delete("two"))["message"]
    (kept,) = (settings.directories.data / "kept").iterdir()
    assert str(kept) in message
    assert (kept / "sub/new.txt").read_text() == "something"
    await fleet.close()


async def test_a_folder_of_a_repository_is_worked_on_inside_a_worktree(here: Here) -> None:
    settings = configured(
        here, f'{CONFIG}\n[fleet.projects.App]\npath = "{here.project / "src"}"\n'
    )
    fleet = open_fleet(settings, source="human")
    await fleet.create("papi", "app", "coder", "x")
    await fleet.start("papi", "look")
    await ended(fleet, "papi")
    assert here.heard("papi")[0]["cwd"] == str((here.tree("papi") / "src").resolve())
    await fleet.delete("papi")
    await fleet.close()


async def test_a_repository_without_a_commit_is_a_clear_400(here: Here, home: Path) -> None:
    empty = home / "empty"
    empty.mkdir()
    git(empty, "init", "--quiet")
    settings = configured(here, f'{CONFIG}\n[fleet.projects.E]\npath = "{empty}"\n')
    fleet = open_fleet(settings, source="human")
    error = await refused(fleet.create("papi", "E", "coder", "x"))
    assert error["error"] == "bad_request" and "no commit" in error["message"]
    await fleet.close()


async def test_a_worktree_that_git_cannot_finish_leaves_nothing_behind(here: Here) -> None:
    hook = here.project / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    hook.chmod(0o755)
    error = await refused(here.create("papi"))
    assert error["error"] == "unavailable" and "worktree" in error["message"]
    hook.unlink()
    assert not here.tree("papi").exists()
    assert git(here.project, "branch", "--list", "agent/*") == ""
    await here.create("papi")


async def test_a_directory_without_an_agent_is_set_aside_not_overwritten(here: Here) -> None:
    left = here.tree("papi")
    left.mkdir(parents=True)
    (left / "thought.txt").write_text("work")
    await here.create("papi")
    (kept,) = (here.settings.directories.data / "kept").iterdir()
    assert (kept / "thought.txt").read_text() == "work"


async def test_a_program_that_is_not_installed_is_503_and_creates_nothing(here: Here) -> None:
    fleet = open_fleet(configured(here, ""), source="human")
    error = await refused(fleet.create("papi", "demo", "coder", "x"))
    assert error["error"] == "unavailable" and "claude is not installed" in error["message"]
    assert not here.tree("papi").exists()
    await fleet.close()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ('[fleet]\nengine = "cloud"', "must be 'coder' or 'local'"),
        ("[fleet]\nprogram = 5", "fleet.program must be text"),
        ('[fleet]\nprogram = "nope"', "no program 'nope'"),
        ("fleet = 3", "must be a table"),
        ("[fleet.programs.x]\nfirst = []", "needs a command"),
        ('[fleet.programs.x]\ncommand = ["a"]\nflags = []', "no key flags"),
        ('[fleet.programs.x]\ncommand = ["a"]\nreadings = [{}]', "readings need a field"),
        ("[fleet.projects.x]", "fleet.projects.x.path is missing"),
        ('[fleet.projects.x]\npath = "here"', "must be absolute"),
    ],
)
async def test_settings_that_cannot_be_used_are_503_and_name_themselves(
    here: Here, config: str, words: str
) -> None:
    settings = configured(here, config)

    async def create() -> None:
        await open_fleet(settings, source="human").create("papi", "demo", "coder", "x")

    error = await refused(create())
    assert error["error"] == "unavailable" and words in error["message"]


async def test_configured_roles_replace_the_usual_ones_and_set_the_prompt(here: Here) -> None:
    roles = '[fleet.roles.tester]\ndisplay_name = "Tester"\nprompt = "Break things."\n'
    fleet = open_fleet(configured(here, CONFIG + roles), source="human")
    assert [role.name for role in (await fleet.roles("demo"))["roles"]] == ["tester"]
    await fleet.create("papi", "demo", "tester", "The parser")
    await fleet.start("papi", "go")
    await ended(fleet, "papi")
    assert here.heard("papi")[0]["arguments"][1] == (
        "Break things.\n\nYour specification:\nThe parser"
    )
    await fleet.close()


async def test_logs_show_the_program_s_output(here: Here) -> None:
    await here.create("papi")
    await here.work("papi", "crash 1")
    lines = [(line.who, line.text) for line in await here.fleet.transcript("papi")]
    assert ("errors", "something broke") in lines


def task_folder(here: Here, name: str) -> Path:
    (folder,) = (here.settings.directories.state / "agents" / name / "tasks").iterdir()
    return folder


def output(here: Here, name: str) -> str:
    path = task_folder(here, name) / "output"
    return path.read_text() if path.exists() else ""


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # no /proc on this system
        return False
    return state == "Z"


async def until(check: Any) -> None:
    deadline = time.monotonic() + 20
    while not check():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.02)
