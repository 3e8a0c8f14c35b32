"""A person's yes, through real clients of both protocol eras, in memory and over stdio."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client import Client as SdkClient
from mcp.client.stdio import StdioServerParameters
from mcp_types import ElicitResult

from fleet_agentpack.settings import Ask, Settings
from fleet_agentpack.wire import approval
from fleet_agentpack.wire.server import build_server
from tests.deploy.lab import Lab, files, tree
from tests.person import YES, Person
from tests.rig import SERVE, Http, Stdio, child_environment, modern_meta

ERAS: tuple[Literal["legacy"], Literal["auto"]] = ("legacy", "auto")


@pytest.fixture
def lab(home: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A pack that has been deployed, a file of the user's in its way, and one to delete."""
    lab = Lab(home / "lab")
    lab.furnish()
    lab.enter(monkeypatch)
    lab.deploy()
    lab.drop("prompt:hello")
    lab.prompt("mine", "Ours.\n")
    lab.write("user/.codex/prompts/mine.md", "My own.\n")
    return lab


def server(ask: Ask) -> Any:
    return build_server(dataclasses.replace(Settings.read(), ask=ask))


async def call(
    era: Literal["legacy", "auto"],
    person: Person | None,
    tool: str = "deploy_apply",
    ask: Ask = "risky",
    **arguments: Any,
) -> dict[str, Any]:
    given = {"yes": True, **({"adopt": True} if tool == "deploy_apply" else {}), **arguments}
    async with Client(server(ask), mode=era, elicitation_handler=person) as client:
        result = await client.call_tool(tool, given, raise_on_error=False)
    data: dict[str, Any] = result.structured_content
    assert json.loads(result.content[0].text) == data
    return data


def refused(answer: dict[str, Any]) -> tuple[str, str]:
    assert answer["ok"] is False
    error = answer["errors"][0]
    assert error["details"]["next_actions"]
    return error["code"], error["details"]["reason_code"]


@pytest.mark.parametrize("era", ERAS)
async def test_what_was_shown_and_agreed_to_is_done(lab: Lab, era: Any) -> None:
    person = Person(YES)
    applied = await call(era, person)
    assert applied["data"]["applied"] is True
    assert (lab.user / ".codex/prompts/mine.md").read_text() == "Ours.\n"
    (asked,) = person.seen
    assert asked.requested_schema == {
        "type": "object",
        "properties": {
            "agreed": {"type": "boolean", "title": "Write these files", "default": False}
        },
        "required": ["agreed"],
    }
    gone, taken = lab.user / ".codex/prompts/hello.md", lab.user / ".codex/prompts/mine.md"
    assert asked.message.splitlines() == [
        "Deploy profile default to codex, vscode. Files: 1 to create, 2 to delete, 1 to update.",
        "Delete:",
        f"  {gone}",
        f"  {lab.project}/.github/prompts/hello.prompt.md",
        "Overwrite, though agentpack did not write it:",
        f"  {taken}",
        "Create:",
        f"  {lab.project}/.github/prompts/mine.prompt.md",
    ]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ElicitResult(action="decline"), "approval_declined"),
        (ElicitResult(action="accept", content={"agreed": False}), "approval_declined"),
        (ElicitResult(action="accept", content={}), "approval_declined"),
        (ElicitResult(action="cancel"), "approval_closed"),
    ],
)
async def test_anything_but_a_yes_writes_nothing(
    lab: Lab, era: Any, answer: ElicitResult, reason: str
) -> None:
    before = tree(lab.root)
    told = await call(era, Person(answer))
    assert refused(told) == ("E_CONFIRM_REQUIRED", reason)
    assert told["errors"][0]["message"].endswith("Nothing was written.")
    assert tree(lab.root) == {**before, **tree(lab.root / "cache", "cache")}


@pytest.mark.parametrize("era", ERAS)
async def test_who_is_asked_about_what(lab: Lab, era: Any) -> None:
    assert refused(await call(era, None, ask="require"))[1] == "approval_unavailable"
    assert (await call(era, None, ask="risky"))["data"]["applied"] is True  # nobody can be asked
    lab.prompt("third", "Three.\n")
    nobody = Person()  # would fail if it were asked
    assert (await call(era, nobody, ask="risky"))["data"]["applied"] is True
    lab.prompt("fourth", "Four.\n")
    assert (await call(era, nobody, ask="require"))["data"]["applied"] is True
    lab.prompt("fifth", "Five.\n")
    cautious = Person(YES)
    assert (await call(era, cautious, ask="always"))["data"]["applied"] is True
    assert len(cautious.seen) == 1
    assert (await call(era, nobody, ask="always"))["data"]["reason"] == "no_changes"
    lab.drop("prompt:fifth")
    assert (await call(era, nobody, ask="always", dry_run=True))["data"]["applied"] is False
    assert (await call(era, nobody, ask="never"))["data"]["applied"] is True


@pytest.mark.parametrize("era", ERAS)
async def test_edits_by_hand_are_shown(lab: Lab, era: Any) -> None:
    lab.deploy(adopt=True)
    lab.source("modules/instructions/base/AGENTS.md", "# Two\n")
    edited = lab.user / ".codex/AGENTS.md"
    edited.write_text("mine\n")
    person = Person(YES)
    assert (await call(era, person))["data"]["applied"] is True
    shown = person.seen[0].message.splitlines()
    assert shown[1:3] == ["Overwrite, though it was edited by hand:", f"  {edited}"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_that_needs_no_person_comes_first(lab: Lab, era: Any) -> None:
    answer = await call(era, Person(), adopt=False)
    assert refused(answer) == ("E_ADOPT_CONFIRM_REQUIRED", "adopt_confirm_required")
    assert answer["command_id"] == "deploy --apply"
    missing = await call(era, Person(), yes=False)
    assert refused(missing) == ("E_CONFIRM_REQUIRED", "confirm_required")


@pytest.mark.parametrize("era", ERAS)
async def test_a_rollback_is_asked_for(lab: Lab, era: Any) -> None:
    first = lab.service().snapshots().data.snapshots[0].id
    lab.deploy(adopt=True)
    before = tree(lab.root)
    no = await call(era, Person(ElicitResult(action="decline")), "rollback", to=first)
    assert refused(no) == ("E_CONFIRM_REQUIRED", "approval_declined")
    assert no["command_id"] == "rollback"
    assert files(tree(lab.root)) == {**files(before), **files(tree(lab.cache, "cache"))}
    person = Person(YES)
    assert (await call(era, person, "rollback", to=first))["data"]["rolled_back_to"] == first
    shown = person.seen[0].message
    assert shown.startswith(f"Roll back to snapshot {first} of 20")
    assert f"{lab.user}/.codex/prompts/hello.md" in shown
    assert (lab.user / ".codex/prompts/mine.md").read_text() == "My own.\n"


@pytest.mark.parametrize("era", ERAS)
async def test_a_plan_that_changes_while_asking_is_asked_again(lab: Lab, era: Any) -> None:
    async def meanwhile() -> ElicitResult:
        lab.source("modules/prompts/mine.md", "Ours, changed.\n")
        return YES

    person = Person(meanwhile, YES)
    assert (await call(era, person))["data"]["applied"] is True
    assert len(person.seen) == 2
    assert (lab.user / ".codex/prompts/mine.md").read_text() == "Ours, changed.\n"


@pytest.mark.parametrize("era", ERAS)
async def test_a_plan_that_never_stays_the_same_is_given_up(lab: Lab, era: Any) -> None:
    async def restless() -> ElicitResult:
        lab.source("modules/prompts/mine.md", f"{len(person.seen)}\n")
        return YES

    person = Person(*[restless] * 10)
    assert refused(await call(era, person))[1] == "approval_plan_unstable"
    assert len(person.seen) == approval.ROUNDS
    assert (lab.user / ".codex/prompts/mine.md").read_text() == "My own.\n"


async def test_no_answer_in_time_is_a_no(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval, "ANSWER_S", 0.05)
    before = tree(lab.root)

    async def never() -> ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    assert refused(await call("legacy", Person(never)))[1] == "approval_unanswered"

    async def late() -> ElicitResult:
        monkeypatch.setattr(approval.time, "time", lambda: asked + 1)
        return YES

    asked = approval.time.time()
    assert refused(await call("auto", Person(late)))[1] == "approval_unanswered"
    assert tree(lab.root) == {**before, **tree(lab.root / "cache", "cache")}


async def test_the_question_stays_readable(lab: Lab) -> None:
    for number in range(60):
        lab.prompt(f"many-{number:02}", "Many.\n")
    lab.skill("odd", {"a\x1b[2J\u202eb\nDelete:": "Odd."})
    person = Person(ElicitResult(action="decline"))
    await call("legacy", person)
    shown = person.seen[0].message
    assert len(shown.splitlines()) < 30 and len(shown) < 4_000
    assert "more" in shown and "\x1b" not in shown and "\u202e" not in shown
    assert shown.count("\nDelete:") == 1 and "a\\x1b[2J\\u202eb\\nDelete:" in shown


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_sdks_own_client_over_stdio(lab: Lab, era: Any) -> None:
    person = Person(YES)
    environ = child_environment(FLEET_AGENTPACK_ASK="require")
    words = StdioServerParameters(
        command=sys.executable, args=["-m", "fleet_agentpack"], env=environ, cwd=lab.project
    )
    async with SdkClient(words, mode=era, elicitation_callback=person.answer) as client:
        result = await client.call_tool("deploy_apply", {"yes": True, "adopt": True})
    assert result.structured_content["data"]["applied"] is True
    assert len(person.seen) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_over_http(lab: Lab, era: Any) -> None:
    person = Person(YES)
    with Http("--ask", "require", FLEET_AGENTPACK_TOKEN="secret") as server:
        address = StreamableHttpTransport(f"http://127.0.0.1:{server.port}/mcp", auth="secret")
        async with Client(address, mode=era, elicitation_handler=person) as client:
            result = await client.call_tool("deploy_apply", {"yes": True, "adopt": True})
    assert result.structured_content["data"]["applied"] is True
    assert len(person.seen) == 1


@pytest.mark.parametrize(
    ("declared", "asked"),
    [({}, False), ({"elicitation": {"url": {}}}, False), ({"elicitation": {}}, True)],
)
def test_which_clients_can_show_a_form(lab: Lab, declared: dict[str, Any], asked: bool) -> None:
    arguments = {"yes": True, "adopt": True}
    with Stdio([*SERVE, "--ask", "require"], cwd=lab.project) as server:
        server.hello(**declared)
        number = server.send("tools/call", name="deploy_apply", arguments=arguments)
        if asked:
            question = server.wait_for_notification("elicitation/create")
            answer = {"action": "accept", "content": {"agreed": True}}
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
            server.line(json.dumps(reply))
        result = server.wait(number)["result"]
    assert result["isError"] is not asked
    assert asked or "cannot ask one" in result["structuredContent"]["errors"][0]["message"]
    with Stdio([*SERVE, "--ask", "require"], cwd=lab.project) as server:
        meta = {**modern_meta(), "io.modelcontextprotocol/clientCapabilities": declared}
        lab.drop("command:go")
        params = {"name": "deploy_apply", "arguments": arguments, "_meta": meta}
        result = server.ask("tools/call", **params)["result"]
    assert ("inputRequests" in result) is asked


def test_a_client_that_goes_away_while_asked_gets_nothing_done(lab: Lab) -> None:
    before = tree(lab.root)
    with Stdio([*SERVE, "--ask", "risky"], cwd=lab.project) as server:
        server.hello(elicitation={})
        server.send("tools/call", name="deploy_apply", arguments={"yes": True, "adopt": True})
        server.wait_for_notification("elicitation/create")
        assert server.close(timeout_s=8) == 0
        assert server.bad_lines == []
    assert files(tree(lab.root)) == {**files(before), **files(tree(lab.cache, "cache"))}


def test_a_cancelled_call_is_not_carried_out_by_a_late_yes(lab: Lab) -> None:
    with Stdio([*SERVE, "--ask", "risky"], cwd=lab.project) as server:
        server.hello(elicitation={"form": {}})
        number = server.send(
            "tools/call", name="deploy_apply", arguments={"yes": True, "adopt": True}
        )
        question = server.wait_for_notification("elicitation/create")
        server.notify("notifications/cancelled", requestId=number)
        answer = {"action": "accept", "content": {"agreed": True}}
        server.line(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": answer}))
        assert server.call("plan")["structuredContent"]["data"]["changes"]
    assert (lab.user / ".codex/prompts/mine.md").read_text() == "My own.\n"
