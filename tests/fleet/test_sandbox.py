"""What an agent's program sees and changes, and what its task says about what it could not."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from fleet_agentpack.fleet.engine import open_fleet
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.local import sandbox
from fleet_agentpack.fleet.local.programs import Order, load_programs
from fleet_agentpack.fleet.local.stream import MAX_LINE, Stream
from fleet_agentpack.fleet.local.streams import Streams
from fleet_agentpack.settings import Settings
from tests.fleet.local_fleet import CONFIG, LocalFleet, ended, git
from tests.fleet.test_local import processes_of
from tests.fleet.waiting import until

needs_sandbox = pytest.mark.skipif(
    sandbox.find_sandbox(Path("/nonexistent"), os.environ) is None,
    reason="bubblewrap does not work here",
)


def configured(local: LocalFleet, more: str) -> None:
    path = local.settings.config_path
    assert path
    path.write_text(CONFIG + more)
    local.settings = Settings.read()
    local.fleet = open_fleet(local.settings, source="ai_controller")


async def said(local: LocalFleet, command: str) -> str:
    """What a shell command says inside an agent's sandbox."""
    await local.work("papi", f"sh {command}")
    return (await local.fleet.work("papi")).result or ""


@needs_sandbox
async def test_of_the_home_an_agent_sees_only_what_its_role_lists(
    local: LocalFleet, home: Path
) -> None:
    for name in (".ssh/id_rsa", "shared/data.txt", "scratch/old.txt", "work/other/file"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"secret {name}")
    (home / ".gitconfig").write_text("[alias]\n\thello = !echo hello\n")
    roles = '[fleet.roles.coder]\nallow = ["~/shared", "~/scratch:rw"]\n'
    configured(local, roles)
    await local.create("papi")
    told = await said(
        local,
        f"cat {home}/.ssh/id_rsa {home}/work/other/file {local.project}/README.md;"
        f" cat {home}/shared/data.txt; git hello; echo new > {home}/scratch/new.txt;"
        f" echo x > {home}/shared/x; echo x > {home}/.bashrc; echo x > /etc/x; ls /root /home",
    )
    assert "secret shared/data.txt" in told and "hello" in told
    assert "id_rsa\n" not in told.replace("cat: ", "") or "secret .ssh" not in told
    assert "secret .ssh" not in told and "secret work" not in told and "A project" not in told
    assert (home / "scratch/new.txt").read_text() == "new\n"
    assert not (home / "shared/x").exists() and not (home / ".bashrc").exists()


@needs_sandbox
@pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("setpriv"), reason="becomes an ordinary user, as root can"
)
def test_an_ordinary_user_has_the_same_sandbox() -> None:
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder:
        home, tree, own = (Path(folder, name) for name in ("home", "home/tree", "home/own"))
        for path in (Path(folder), home, tree, own):
            path.mkdir(exist_ok=True)
            os.chown(path, nobody, nobody)
        (home / "secret.txt").write_text("hunter2")
        program = shutil.which("bwrap")
        assert program
        rules = sandbox.Sandbox(program, home, {"PATH": "/usr/bin:/bin", "HOME": str(home)})
        inside = rules.command(sandbox.Room(tree, tree, own, network=False))
        script = f"echo made > made; cat {home}/secret.txt; echo x > /etc/x; id -u; touch ~/mine"
        become = ["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups"]
        done = subprocess.run(
            [*become, *inside, "/bin/sh", "-c", script],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{nobody}\n" and (tree / "made").stat().st_uid == nobody
        assert (own / "mine").exists() and not (home / "mine").exists()


@needs_sandbox
async def test_the_program_s_own_home_lasts_and_is_not_the_user_s(
    local: LocalFleet, home: Path
) -> None:
    await local.create("papi")
    await said(local, f"mkdir -p {home}/.cache && echo kept > {home}/.cache/x")
    assert not (home / ".cache/x").exists()
    assert "kept" in await said(local, f"cat {home}/.cache/x")


@needs_sandbox
async def test_a_role_can_do_without_the_network(local: LocalFleet, socket_enabled: None) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    look = f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)'"
    await local.create("papi")
    assert (await said(local, look)).startswith("0:")
    configured(local, "[fleet.roles.coder]\nnetwork = false\n")
    assert (await said(local, look)).startswith("1:")
    server.close()


@needs_sandbox
async def test_what_a_task_started_ends_with_it(local: LocalFleet) -> None:
    await local.create("papi")
    row = await local.work("papi", "sh setsid nohup sleep 300 >/dev/null 2>&1 & echo up")
    assert row.status == "completed"
    await until(lambda: processes_of(row.id) == [])


async def test_without_a_sandbox_children_of_a_task_end_with_it_too(local: LocalFleet) -> None:
    configured(local, "")
    path = local.settings.config_path
    assert path
    path.write_text(CONFIG.replace("[fleet]", '[fleet]\nsandbox = "off"'))
    local.fleet = open_fleet(Settings.read(), source="human")
    await local.create("papi")
    row = await local.work("papi", "sh setsid nohup sleep 300 >/dev/null 2>&1 & echo up")
    assert row.status == "completed"
    await until(lambda: processes_of(row.id) == [])
    await local.work("papi", "write notes.txt text")  # committed and fetched all the same
    assert git(local.project, "show", "agent/papi:notes.txt") == "text"


async def test_a_task_is_ended_at_its_role_s_limit_and_says_so(local: LocalFleet) -> None:
    configured(local, "[fleet.roles.coder]\nmax_minutes = 0.01\n")
    await local.create("papi")
    row = await local.work("papi", "sleep 60")
    assert row.status == "failed" and "max_minutes" in row.summary


async def test_a_task_is_ended_at_its_role_s_cost_and_says_so(local: LocalFleet) -> None:
    configured(local, "[fleet.roles.coder]\nmax_cost_usd = 0.5\n")
    await local.create("papi")
    assert (await local.work("papi", "cheap")).status == "completed"  # 0.25
    begun = asyncio.get_running_loop().time()
    row = await local.work("papi", "spend 0.3 0.7 1.1")
    assert asyncio.get_running_loop().time() - begun < 30  # the program would go on for longer
    assert row.status == "failed" and "max_cost_usd" in row.summary and "0.5 USD" in row.summary
    assert row.cost_usd == 1.1
    assert (local.tree("papi") / "spent.txt").exists()  # what it had done is kept
    assert git(local.project, "show", "agent/papi:spent.txt") == "1.1"


async def test_a_program_that_ends_by_itself_beyond_its_cost_has_not_failed(
    local: LocalFleet,
) -> None:
    configured(local, "[fleet.roles.coder]\nmax_cost_usd = 0.2\n")
    await local.create("papi")
    assert (await local.work("papi", "quick")).status == "completed"


@pytest.mark.parametrize("program", ["claude"])
def test_a_program_that_can_watch_its_own_cost_is_told_its_limit(program: str) -> None:
    profile = load_programs({})[program]
    order = Order("t", "i", "s", False, "/d", True, max_cost_usd=2.5)
    argv, _ = profile.launch(order)
    assert argv[argv.index("--max-budget-usd") + 1] == "2.5"


@pytest.mark.parametrize("program", ["codex", "gemini"])
def test_a_limit_that_nobody_could_hold_is_refused(program: str) -> None:
    order = Order("t", "i", "s", False, "/d", True, max_cost_usd=2.5)
    with pytest.raises(FleetError, match="reports no cost"):
        load_programs({})[program].launch(order)


async def test_what_was_denied_is_named_with_how_to_allow_it(local: LocalFleet) -> None:
    await local.create("papi")
    row = await local.work("papi", "denied rm curl")
    assert row.status == "failed"  # nothing came of it
    told = (await local.fleet.work("papi")).result or ""
    assert "Denied: Bash: rm; Bash: curl." in told and "[fleet.roles.NAME]" in told
    (local.tree("papi") / "done.txt").write_text("something came of it")
    row = await local.work("papi", "denied rm")
    assert row.status == "completed" and "Denied: Bash: rm." in row.summary


async def test_a_question_at_the_end_needs_input_until_the_next_task(local: LocalFleet) -> None:
    await local.create("papi")
    await local.work("papi", "ask Shall I use **A or B?**")
    shown = (await local.fleet.show("papi")).agent
    assert shown.status == "idle"
    assert shown.metadata["fleet_mcp_attention"] == "needs_input"
    assert "A or B?" in shown.metadata["fleet_mcp_question"]
    await local.work("papi", "use B")
    assert "fleet_mcp_attention" not in (await local.fleet.show("papi")).agent.metadata
    assert local.heard("papi")[1]["arguments"][-2] == "--resume"


async def test_a_program_that_asks_with_its_own_tool_needs_input_too(local: LocalFleet) -> None:
    await local.create("papi")
    row = await local.work("papi", "choose Tabs or spaces?")
    assert "Denied" not in row.summary
    shown = (await local.fleet.show("papi")).agent
    assert shown.metadata["fleet_mcp_attention"] == "needs_input"
    assert shown.metadata["fleet_mcp_question"] == "Tabs or spaces?"


async def test_role_and_create_choose_the_program_and_the_model(local: LocalFleet) -> None:
    configured(local, '[fleet.roles.coder]\nmodel = "small"\nallow = ["git"]\n')
    await local.create("papi")
    await local.work("papi", "look")
    arguments = local.heard("papi")[0]["arguments"]
    assert arguments[:4] == ["--allow", "git", "--model", "small"]


@pytest.mark.parametrize("program", ["claude", "codex", "gemini"])
def test_own_approvals_are_off_only_inside_the_sandbox(program: str) -> None:
    profile = load_programs({})[program]
    off = {"--dangerously-skip-permissions", "--dangerously-bypass-approvals-and-sandbox", "yolo"}
    inside, _ = profile.launch(Order("t", "i", "s", False, "/d", True))
    alone, _ = profile.launch(Order("t", "i", "s", False, "/d", False))
    assert off & set(inside) and not off & set(alone)


def test_a_list_reads_no_output_again(tmp_path: Path) -> None:
    output, streams = tmp_path / "output", Streams(Ledger(tmp_path / "fleet.db"))
    output.write_text('{"type": "system", "subtype": "init", "session_id": "a"}\n')
    with output.open("ab") as stream:
        stream.truncate(60_000_000)  # sparse
    readings = load_programs({})["claude"].readings
    first = streams.load("task")
    assert first.advance(output, readings, ended=True)
    streams.save("task", first)
    assert first.result.session == "a"
    again = streams.load("task")
    assert not again.advance(output, readings, ended=True) and again.offset == 60_000_000
    with output.open("ab") as stream:
        stream.write(b'\n{"type": "result", "result": "end"}\n')
    assert again.advance(output, readings, ended=True)
    assert again.result.text == "end" and again.result.session == "a"
    again.whole = True
    streams.save("task", again)
    streams.save("task", first)  # by a process that was slower
    assert streams.load("task") == again


def test_the_rest_of_a_line_that_is_too_long_is_no_line(tmp_path: Path) -> None:
    output, stream = tmp_path / "output", Stream()
    result = b'{"type": "result", "result": "forged"}\n'
    output.write_bytes(b"x" * (MAX_LINE + 1))
    readings = load_programs({})["claude"].readings
    stream.advance(output, readings, ended=False)
    with output.open("ab") as more:
        more.write(result)
    stream.advance(output, readings, ended=True)
    assert stream.result.text is None


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (['{"type": "system", "subtype": "init"}'], None),
        (
            [
                '{"type": "assistant", "message": {"content": [{"type": "text", "text": "I\\nlook"}'
                "]}}"
            ],
            "I look",
        ),
        (
            [
                '{"type": "assistant", "message": {"content": [{"type": "text", "text": "So"}, '
                '{"type": "tool_use", "name": "Bash", "input": {"command": "pytest -q"}}]}}',
                '{"type": "user", "message": {"content": [{"type": "tool_result"}]}}',
            ],
            "ran pytest -q",
        ),
        (
            [
                '{"type": "item.started", "item": {"type": "command_execution", "command": "ls"}}',
                '{"type": "turn.completed", "usage": {}}',
            ],
            "ran ls",
        ),
        (["Building", "", "Testing"], "Testing"),
    ],
)
def test_the_newest_report_is_what_the_program_said_or_did_last(
    rows: list[str], told: str | None, tmp_path: Path
) -> None:
    output, stream = tmp_path / "output", Stream()
    output.write_text("".join(f"{row}\n" for row in rows))
    stream.advance(output, (), ended=False)
    assert stream.result.progress == told


async def test_the_current_task_is_the_newest_report_since_it_began(local: LocalFleet) -> None:
    await local.create("papi")
    await local.fleet.start("papi", "report Reading the tests")
    await until(lambda: "Reading the tests" in (local.output("papi")))
    for fleet in (local.fleet, local.restarted()):
        assert (await fleet.agents()).agents[0].current_task == "Reading the tests"
        assert (await fleet.show("papi")).agent.current_task == "Reading the tests"
    await local.fleet.stop("papi")
    await local.fleet.start("papi", "sleep 60")
    assert (await local.fleet.agents()).agents[0].current_task == "sleep 60"
    await local.fleet.stop("papi")


async def test_agents_with_large_logs_are_listed_without_reading_them(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        await local.create(name)
        await local.work(name, "go")
    for path in (local.settings.directories.state / "agents").glob("*/tasks/*/output"):
        os.truncate(path, 60_000_000)
    fleet = local.restarted()
    await fleet.agents()  # reads what is new, once
    reads: list[Path] = []
    take = Stream.advance

    def counted(self: Stream, output: Path, *args: object, **more: object) -> bool:
        before = self.offset
        news = take(self, output, *args, **more)  # type: ignore[arg-type]
        if self.offset != before:
            reads.append(output)
        return news

    monkeypatch.setattr(Stream, "advance", counted)
    later = local.restarted()
    assert {row.status for row in (await later.agents()).agents} == {"idle"}
    assert reads == []
    for each in (fleet, later):
        await each.close()


async def test_a_start_that_fails_leaves_no_task_behind(local: LocalFleet) -> None:
    configured(local, "")
    await local.create("papi")
    await local.work("papi", "one")
    path = local.settings.config_path
    assert path
    path.write_text(CONFIG.replace("[fleet]", '[fleet]\nsandbox = "off"'))
    fleet = open_fleet(Settings.read(), source="human")
    tree = local.tree("papi")
    tree.rename(tree.with_name("away"))
    with pytest.raises(Exception, match="offline"):
        await fleet.start("papi", "two")
    tree.with_name("away").rename(tree)
    await fleet.start("papi", "three")
    assert (await ended(fleet, "papi")).status == "completed"
    assert (await fleet.history("papi")).total_count == 2
    await fleet.close()
