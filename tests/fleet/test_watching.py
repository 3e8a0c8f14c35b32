"""Watching agents: waiting for them, reading what they did, the history of those that are gone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from fleet_agentpack.fleet import results
from fleet_agentpack.fleet.awaiting import wait_for
from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.local import tasks
from fleet_agentpack.fleet.readable import OutputReader
from fleet_agentpack.kit.results import jsonable
from tests.fleet.local_fleet import LocalFleet
from tests.fleet.test_surfaces import call, client, command
from tests.rig import SERVE, Stdio, modern_meta


class Agents:
    """Agents that are busy for a number of looks."""

    def __init__(self, **looks: int) -> None:
        self.looks, self.asked, self.time = looks, 0, 0.0

    async def agents(self) -> results.AgentList:
        rows = [
            results.AgentSummary(name, "busy" if left else "idle", None)
            for name, left in self.looks.items()
        ]
        return results.AgentList(rows, len(rows))

    async def show(self, name: str) -> results.AgentShown:
        self.asked += 1
        if name not in self.looks:
            raise FleetError.no_such_agent(name)
        left = self.looks[name]
        self.looks[name] = max(0, left - 1)
        status: results.AgentStatus = "busy" if left else "idle"
        metadata = {} if left else {"fleet_mcp_last_outcome": "completed: done"}
        task = "Working" if left else None
        detail = results.AgentDetail(name, "id", status, "", "", "", task, "", "", metadata)
        return results.AgentShown(detail)

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    async def wait(self, *names: str, any_one: bool = False, timeout_s: float = 100) -> Any:
        told: list[tuple[float, float | None, str]] = []
        found = await wait_for(
            self,
            names,
            lambda *each: told.append(each),
            any_one=any_one,
            timeout_s=timeout_s,
            sleep=self.sleep,
            clock=lambda: self.time,
        )
        self.told = told
        return jsonable(found)


async def test_waiting_ends_when_all_are_done() -> None:
    fleet = Agents(papi=3, sony=1, rest=0)
    found = await fleet.wait()
    assert {row["name"] for row in found["done"]} == {"papi", "sony"}
    assert found["done"][0]["last_outcome"] == "completed: done"
    assert (found["still_busy"], found["timed_out"]) == ([], False)
    assert [each[0] for each in fleet.told] == sorted(each[0] for each in fleet.told)
    assert "papi: Working" in fleet.told[-1][2]


async def test_waiting_for_any_ends_with_the_first() -> None:
    found = await Agents(papi=30, sony=2).wait("papi", "sony", any_one=True)
    assert [row["name"] for row in found["done"]] == ["sony"]
    assert found["still_busy"] == [{"name": "papi", "current_task": "Working"}]
    assert found["timed_out"] is False


async def test_waiting_is_bounded_and_asks_less_and_less_often() -> None:
    fleet = Agents(papi=10_000)
    found = await fleet.wait("papi", timeout_s=240)
    assert found["timed_out"] is True and found["done"] == []
    assert fleet.time <= 241 and fleet.asked < 65


async def test_waiting_for_nobody_ends_at_once_and_for_an_unknown_one_is_404() -> None:
    assert await Agents(papi=0).wait() == {"done": [], "still_busy": [], "timed_out": False}
    with pytest.raises(FleetError, match="no agent called 'nobody'"):
        await Agents(papi=1).wait("nobody")


CLAUDE = [
    {"type": "system", "subtype": "init", "session_id": "1"},
    {"type": "assistant", "message": {"content": [{"type": "text", "text": "I will look."}]}},
    {
        "type": "assistant",
        "message": {
            "content": [
                {"type": "tool_use", "name": "Bash", "input": {"command": "pytest -q"}},
                {"type": "tool_use", "name": "Edit", "input": {"file_path": "a.py"}},
                {"type": "tool_use", "name": "Grep", "input": {"pattern": "x"}},
            ]
        },
    },
    {
        "type": "user",
        "message": {"content": [{"type": "tool_result", "is_error": True, "content": "denied"}]},
    },
    {"type": "assistant", "message": {"content": [{"type": "text", "text": "Done."}]}},
    {
        "type": "result",
        "result": "Done.",
        "duration_ms": 61_500,
        "num_turns": 3,
        "total_cost_usd": 0.1234,
    },
]
CODEX = [
    {"type": "thread.started", "thread_id": "1"},
    {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
    {
        "type": "item.completed",
        "item": {
            "type": "command_execution",
            "command": "make",
            "exit_code": 2,
            "aggregated_output": "no rule",
        },
    },
    {
        "type": "item.completed",
        "item": {"type": "file_change", "changes": [{"path": "b.py", "kind": "update"}]},
    },
    {"type": "item.completed", "item": {"type": "agent_message", "text": "Fixed."}},
    {"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 5}},
]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            CLAUDE,
            [
                ("said", "I will look."),
                ("ran", "pytest -q"),
                ("edited", "a.py"),
                ("used", "Grep x"),
                ("failed", "denied"),
                ("said", "Done."),
                ("ended", "62 s, 3 turns, $0.1234"),
            ],
        ),
        (
            CODEX,
            [
                ("ran", "make"),
                ("failed", "status 2: no rule"),
                ("edited", "b.py"),
                ("said", "Fixed."),
                ("ended", "10 input tokens, 5 output tokens"),
            ],
        ),
    ],
)
def test_the_output_of_programs_is_readable(rows: list[Any], told: list[tuple[str, str]]) -> None:
    reader = OutputReader()
    assert [event for row in rows for event in reader.events(json.dumps(row))] == told


@pytest.mark.parametrize(
    "line", ["{", "[1]", '{"type": "assistant", "message": 5}', '{"type": "result"}', "{" * 9999]
)
def test_output_of_any_other_form_fails_nothing(line: str) -> None:
    OutputReader().events(line)


async def test_a_log_that_is_followed_has_every_line_once(local: LocalFleet) -> None:
    await local.create("papi")
    await local.fleet.start("papi", "babble 3")
    following = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fleet_agentpack", "fleet", "logs", "papi", "-f"),
        cwd=local.project,
        stdout=subprocess.PIPE,
    )
    assert following.stdout
    seen = ""
    for number in range(3):
        while f"I say {number}." not in seen or f"error {number}." not in seen:
            line = await asyncio.wait_for(following.stdout.readline(), 60)
            assert line, seen
            seen += line.decode()
        (local.tree("papi") / f"heard-{number}").touch()
    seen += (await asyncio.wait_for(following.stdout.read(), 60)).decode()
    assert await following.wait() == 0
    for number in range(3):
        assert seen.count(f"I say {number}.") == seen.count(f"error {number}.") == 1, seen


async def test_the_log_of_a_long_task_begins_with_a_whole_line(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await local.create("papi")
    await local.work("papi", "go")
    whole = (await local.fleet.transcript("papi")).lines
    output = [line for line in whole if line.who == "output"]
    monkeypatch.setattr(tasks, "MAX_LOG", len(output[-1].text.encode()) + 20)
    cut = (await local.fleet.transcript("papi")).lines
    assert [line for line in cut if line.who == "output"] == output[-1:]


async def test_a_person_waits_watches_and_reads_the_history_of_a_deleted_agent(
    local: LocalFleet,
) -> None:
    command(local, "create", "papi", "--project", "demo", "--spec", "x")
    command(local, "start", "papi", "write", "notes.txt", "hello")
    waited = command(local, "wait", "papi", "--timeout", "60")
    assert "idle" in waited and "completed" in waited
    listed = command(local, "list")
    assert "LAST OUTCOME" in listed and "completed" in listed and "$0.25" in listed
    agent = (await local.fleet.show("papi")).agent
    assert agent.metadata["fleet_mcp_cost_usd"] == "0.2500"
    command(local, "delete", "papi", "--yes")
    for name in ("papi", "PAPI", agent.workspace_id):
        past = command(local, "history", name)
        assert "deleted" in past and "write notes.txt hello" in past
    command(local, "create", "papi", "--project", "demo", "--spec", "x")
    assert "No tasks" in command(local, "history", "papi")


async def test_an_agent_waits_sees_work_and_reads_resources(
    local: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await local.fleet.create("papi", "demo", "coder", "x")
    async with client(monkeypatch) as made:
        await call(made, "start_agent_task", agent_name="papi", task_description="write a.txt hi")
        failed, waited = await call(made, "wait_for_agents", agent_names=["papi"], timeout_s=60)
        assert not failed and waited["done"][0]["status"] == "idle"
        failed, error = await call(made, "wait_for_agents", timeout_s=241)
        assert failed and error["error"] == "bad_request"
        failed, work = await call(made, "show_agent_work", agent_name="papi")
        keys = ["branch", "base", "directory", "ahead", "files", "diff", "messages", "result"]
        assert not failed and list(work)[:8] == keys
        assert work["result"] and "a.txt" in work["diff"]

        async def read(address: str) -> str:
            (content,) = await made.read_resource(address)
            text: str = content.text
            return text

        assert await read("fleet://agents/papi/result") == work["result"]
        assert "a.txt" in await read("fleet://agents/papi/diff")
        assert json.loads(await read("fleet://agents/papi/log"))["lines"]
        _, shown = await call(made, "show_agent", agent_name="papi")
        address = f"fleet://history/{shown['agent']['workspace_id']}"
        assert json.loads(await read(address))["tasks"][0]["result"] == work["result"]
        await call(made, "delete_agent", agent_name="papi")
        failed, error = await call(made, "show_agent_task_history", agent_name="papi")
        assert failed and error["details"]["history"] == address
        assert json.loads(await read(address))["deleted_at"]


@pytest.mark.parametrize("era", ["handshake", "none"])
async def test_a_client_hears_when_a_resource_that_it_subscribed_to_changes(
    local: LocalFleet, era: str
) -> None:
    await local.fleet.create("papi", "demo", "coder", "x")
    address = "fleet://agents/papi/result"
    with Stdio([*SERVE, "--only", "fleet"], cwd=local.project) as server:
        if era == "handshake":
            assert server.hello()["capabilities"]["resources"]["subscribe"] is True
            assert "error" not in server.ask("resources/subscribe", uri=address)
        else:
            wanted = {"resourceSubscriptions": [address]}
            server.send("subscriptions/listen", notifications=wanted, _meta=modern_meta())
            server.wait_for_notification("notifications/subscriptions/acknowledged")
        await local.fleet.start("papi", "write a.txt hi")
        told = server.wait_for_notification("notifications/resources/updated", 30)
        assert told["params"]["uri"] == address
        assert server.close() == 0
    await local.ended("papi")
