"""Answers that fit, of every domain, through a real client in both eras; the rest can be read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp.shared.exceptions import MCPError

from fleet_agentpack.config import LEAST_BYTES
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.local.agents import AgentFolders, LocalAgent
from fleet_agentpack.fleet.local.streams import Streams
from fleet_agentpack.kit.pages import RowPages, TextPages
from fleet_agentpack.settings import RESULT_BYTES, Settings
from fleet_agentpack.wire.limits import KeptPages
from fleet_agentpack.wire.server import build_server
from tests.climpt.project import write_echo
from tests.enact.kit import add_tool, needs_bwrap, use_directory
from tests.rig import Http, Stdio, text_of

Open = Callable[..., AbstractAsyncContextManager[Client[Any]]]


@pytest.fixture(params=["legacy", "auto"])
def connect(request: pytest.FixtureRequest) -> Open:
    """Opens a client in memory; its answers are small unless told otherwise."""

    def made(result_bytes: int = LEAST_BYTES, **more: Any) -> Client[Any]:
        settings = replace(Settings.read(), result_bytes=result_bytes, **more)
        return Client(build_server(settings), mode=request.param)

    return made


async def call(client: Client[Any], name: str, most: int = LEAST_BYTES, /, **given: Any) -> Any:
    """The structured content of an answer that fits."""
    result = await client.call_tool(name, given, raise_on_error=False)
    text = result.content[0].text
    assert len(text.encode()) <= most
    assert json.loads(text) == result.structured_content
    return result.structured_content


async def read(client: Client[Any], how: str) -> str:
    (content,) = await client.read_resource(how.removeprefix("read "))
    assert len(content.text.encode()) <= RESULT_BYTES
    return content.text


async def rows_of(client: Client[Any], holder: dict[str, Any], field: str) -> list[Any]:
    """The rows of an answer and of all the pages that follow."""
    rows = [*holder[field]]
    while "omitted" in holder:
        holder = json.loads(await read(client, holder["omitted"]["how"]))
        rows += holder[field]
    return rows


def make_pack(folder: Path, skills: int, files: int) -> str:
    modules = ""
    for n in range(skills):
        refs = folder / f"modules/s{n}/refs"
        refs.mkdir(parents=True)
        for k in range(files - 1):
            (refs / f"f{k}.md").write_text(f"text {n} {k}\n")
        (refs.parent / "SKILL.md").write_text(f"---\nname: s{n}\ndescription: d\n---\nhello\n")
        modules += (
            f"- {{id: skill:s{n}, type: skill, tags: [base],"
            f" source: {{local_path: {{path: modules/s{n}}}}}}}\n"
        )
    (folder / "agentpack.yaml").write_text(
        "version: 1\nprofiles: {default: {include_tags: [base]}}\n"
        f"targets: {{codex: {{mode: files, scope: user}}}}\nmodules:\n{modules}"
    )
    return str(folder)


# agentpack


async def test_a_plan_of_2500_files_fits_with_true_totals(connect: Open, home: Path) -> None:
    repo = make_pack(home / "pack", 50, 50)
    async with connect(RESULT_BYTES) as client:
        for tool, field, kind in (("plan", "changes", "create"), ("status", "drift", "missing")):
            answer = await call(client, tool, RESULT_BYTES, repo=repo)
            data = answer["data"]
            assert data["summary"][kind] == 2500
            omitted = data["omitted"]
            assert omitted["count"] == 2500 - len(data[field]) and len(data[field]) > 20
            assert omitted["how"].startswith(f"read agentpack://{tool}/")
            assert omitted["how"].endswith("?page=2")
            directories = omitted["directories"]
            assert sum(row[kind] for row in directories) == omitted["count"]
            assert {row["target"] for row in directories} == {"codex"}
            assert f"{home}/.codex/skills/s9/refs" in [row["directory"] for row in directories]
            rows = await rows_of(client, data, field)
            assert len({row["path"] for row in rows}) == len(rows) == 2500
        diff = (await call(client, "diff", RESULT_BYTES, repo=repo))["data"]
        assert diff["summary"]["create"] == 2500 and "omitted" in diff
        shown, _, note = diff["text"].partition("… [")
        assert shown.endswith("\n") and "+hello\n" in shown
        rest = await read_text(client, note.partition(": ")[2].rstrip("]"), "\n")
        files = (shown + rest).count("\n+++ b/")
        assert files > 500 and rest.endswith(f"… cut: {files} of 2500 file(s) are shown whole\n")
        with pytest.raises(MCPError, match=r"has [0-9]+ pages; there is no page 999"):
            await read(client, omitted["how"].replace("=2", "=999"))
        with pytest.raises(MCPError, match="page is a number"):
            await read(client, omitted["how"].replace("=2", "=two"))


async def test_what_is_deleted_or_overwritten_is_shown_first(connect: Open, home: Path) -> None:
    repo = make_pack(home / "pack", 4, 20)
    async with connect(RESULT_BYTES) as client:
        await call(client, "deploy_apply", RESULT_BYTES, repo=repo, yes=True)
    (home / "pack/modules/s3/refs/f9.md").unlink()
    (home / "pack/modules/s2/SKILL.md").write_text("---\nname: s2\ndescription: d\n---\nnew\n")
    for n in range(40):
        (home / f"pack/modules/s0/refs/a{n}.md").write_text("new\n")
    async with connect() as client:
        data = (await call(client, "plan", repo=repo))["data"]
        assert data["summary"] == {"create": 40, "delete": 1, "update": 1}
        assert [row["op"] for row in data["changes"]][:3] == ["delete", "update", "create"]
        assert "omitted" in data


async def test_snapshots_are_a_collection_and_one_of_them_fits(connect: Open, home: Path) -> None:
    repo = make_pack(home / "pack", 1, 60)
    async with connect() as client:
        ids = []
        for n in range(30):
            (home / "pack/modules/s0/refs/f1.md").write_text(f"{n}")
            done = await call(client, "deploy_apply", repo=repo, yes=True)
            ids.append(done["data"]["snapshot_id"])
        first = json.loads(await read(client, "agentpack://snapshots"))["data"]
        assert first["omitted"]["how"] == "read agentpack://snapshots?page=2"
        rows = await rows_of(client, first, "snapshots")
        assert [row["id"] for row in rows] == ids[::-1]
        one = json.loads(await read(client, f"agentpack://snapshots/{ids[0]}"))
        assert one["data"]["snapshot"]["id"] == ids[0] and "omitted" in one["data"]
        whole = await read_text(client, one["data"]["omitted"]["how"])
        assert len(json.loads(whole)["changes"]) >= 60


async def read_text(client: Client[Any], how: str, line_end: str = "") -> str:
    """A text from a page on to its end; its pages end with lines, or in the middle of one."""
    text, going_on = "", True
    while going_on:
        page = await read(client, how)
        page, going_on, note = page.rpartition("\n… [page ")
        text += page + line_end if going_on else note
        how = note.partition("; ")[2].rstrip("]\n")
    return text


# fleet


async def test_busy_agents_come_first_and_the_total_is_true(connect: Open, home: Path) -> None:
    state = home / ".local/state/fleet-agentpack"
    ledger = Ledger(state / "fleet.db")
    folders = AgentFolders(state / "agents", Streams(ledger))
    for n in range(150):
        spec = "Line of the spec\n" * 600
        agent = LocalAgent(
            f"id-{n}", f"agent-{n:03d}", "demo", str(home), str(home if n != 7 else home / "gone"),
            None, "coder", spec, "", "claude", time.time(),
        )  # fmt: skip
        folders.add(agent)
    for n in (90, 140):
        ledger.claim(_task(f"id-{n}", f"agent-{n:03d}"))
    ledger.close()
    async with connect() as client:
        listed = await call(client, "list_agents")
        assert listed["total_count"] == 150
        assert [row["name"] for row in listed["agents"][:3]] == [
            "agent-090", "agent-140", "agent-000"
        ]  # fmt: skip
        assert listed["omitted"]["how"] == "read fleet://agents?page=2"
        assert listed == json.loads(await read(client, "fleet://agents"))
        rows = await rows_of(client, listed, "agents")
        assert len({row["name"] for row in rows}) == 150 and rows[-1]["name"] == "agent-007"
        shown = await call(client, "show_agent", agent_name="agent-001")
        spec = shown["agent"]["spec"]
        assert spec.startswith("Line of the spec\n") and "more characters: read fleet://" in spec
        assert shown["agent"].keys() > {"name", "status", "metadata", "omitted"}
        assert json.loads(await read(client, "fleet://agents/agent-001"))["agent"]["spec"]
        with pytest.raises(MCPError, match="Call list_agents"):
            await read(client, "fleet://agents/nobody")


def _task(workspace: str, agent: str) -> Any:
    from fleet_agentpack.fleet.models import Task
    from fleet_agentpack.fleet.service import utc_now

    return Task(
        f"task-{workspace}",
        workspace,
        agent,
        "Work",
        "pending",
        "human",
        utc_now(),
        build=workspace,
    )


# forge


async def test_300_definitions_fit_and_a_prompt_is_never_cut(connect: Open, work: Path) -> None:
    prompt = "Be thorough and brief. " * 2000
    for n in range(300):
        folder = work / f".fractary/agents/agent-{n:03d}"
        folder.mkdir(parents=True)
        text = f"name: agent-{n:03d}\ntype: agent\ndescription: Does a thing\nversion: 1.0.0\n"
        more = f"system_prompt: {prompt}\n" if n == 5 else ""
        (folder / "agent.yaml").write_text(text + more)
    async with connect() as client:
        listed = await call(client, "fractary_forge_agent_list", limit=1000)
        assert (listed["total"], listed["limit"], listed["offset"]) == (300, 1000, 0)
        assert listed["omitted"]["count"] == 300 - len(listed["agents"])
        assert len(await rows_of(client, listed, "agents")) == 300
        every = json.loads(await read(client, "forge://agents"))
        assert every["omitted"]["how"] == "read forge://agents?page=2"
        assert len(await rows_of(client, every, "agents")) == 300
        info = await call(client, "fractary_forge_agent_info", 60_000, name="agent-005")
        assert info["prompt"].strip() == prompt.strip()
        assert [text for text in info["warnings"] if text.startswith("prompt has 4")]


# climpt


async def test_a_climpt_prompt_is_never_cut(connect: Open, work: Path) -> None:
    body = "Do this and that.\n" * 3000
    write_echo(work, body)
    async with connect() as client:
        given = {"agent": "climpt", "c1": "test", "c2": "echo", "c3": "input"}
        result = await client.call_tool("execute", given, raise_on_error=False)
        assert result.content[0].text.strip() == body.strip()
        shown = json.loads(await read(client, "climpt://commands/test/echo/input"))
        assert shown["description"] == "Echo the input"


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("tool", "given", "kept"),
    [
        ("plan", {LONG: 1}, "errors"),
        ("rollback", {"yes": True, "to": LONG}, "errors"),
        ("show_agent", {"agent_name": LONG}, "details"),
        ("create_agent", {LONG: LONG}, "details"),
        ("enact__run", {"tool": LONG}, "error"),
        ("fractary_forge_agent_info", {"name": LONG}, "suggestions"),
        ("fractary_forge_agent_list", {LONG: 1}, "suggestions"),
        ("execute", {"agent": "climpt", "c1": LONG, "c2": "b", "c3": "c"}, "error"),
        (f"plan{LONG}", {}, "details"),
    ],
)
async def test_errors_fit_too(
    connect: Open, tool: str, given: dict[str, Any], kept: str, work: Path
) -> None:
    write_echo(work, "Echo.\n")
    async with connect() as client:
        assert kept in await call(client, tool, **given)


# enact

TEXT = "".join(f"line {n}\n" for n in range(2000))
JSON_ROWS = {"rows": [{"n": n} for n in range(2000)]}


@needs_bwrap
async def test_output_of_tools_beyond_the_bound_is_a_resource(connect: Open, home: Path) -> None:
    registry = home / "registry"
    use_directory(home, registry)
    rows = {"type": "array", "items": {"type": "object"}}
    loose = {"type": "object", "properties": {"rows": rows}}
    strict = {"type": "object", "properties": {"rows": {**rows, "minItems": 2000}}}
    files = {"out.txt": TEXT, "out.json": json.dumps(JSON_ROWS)}
    add_tool(registry, "a/text", scripts={"run": "cat out.txt"}, files=files)
    add_tool(registry, "a/fails", scripts={"run": "sh fail.sh"},
             files={"fail.sh": "cat out.txt; exit 3", **files})  # fmt: skip
    for name, schema in (("a/json", loose), ("a/strict", strict)):
        script = {"command": "cat out.json", "outputSchema": schema}
        add_tool(registry, name, scripts={"run": script}, files=files)
    async with connect() as client:
        for name in ("a/text", "a/json", "a/strict"):
            await call(client, "enact__install", tool=name)
        ran = await call(client, "enact__run", tool="a/text")
        assert ran["exit_code"] == 0 and ran["output"].startswith("line 0\nline 1\n")
        shown = ran["output"].partition("… [")[0]
        assert shown + await read_text(client, ran["omitted"]["how"], "\n") == TEXT

        result = await client.call_tool("a__text", {}, raise_on_error=False)
        assert len(result.content[0].text) <= LEAST_BYTES
        assert result.content[0].text == result.structured_content["text"]
        assert "enact://answers/a__text/" in result.structured_content["omitted"]["how"]

        cut = await call(client, "a__json")
        assert cut["rows"][:2] == [{"n": 0}, {"n": 1}]
        assert cut["omitted"]["count"] == 2000 - len(cut["rows"])
        assert json.loads(await read_text(client, cut["omitted"]["how"])) == JSON_ROWS

        error = (await call(client, "a__strict"))["error"]
        assert error["code"] == "OUTPUT_TOO_LARGE"
        how = error["next_actions"][0].removesuffix(" for the output")
        assert json.loads(await read_text(client, how)) == JSON_ROWS

        failed = (await call(client, "enact__run", tool="a/fails"))["error"]
        assert failed["code"] == "EXECUTION_FAILED" and failed["details"]["exit_code"] == 3
        assert "more characters: read enact://answers/enact__run/" in failed["details"]["stdout"]
        how = "read" + failed["details"]["stdout"].rpartition("read")[2].rstrip("]")
        whole = json.loads(await read_text(client, how))
        assert whole["error"]["details"]["exit_code"] == 3
        assert len(whole["error"]["details"]["stdout"]) == 4000

        skills = json.loads(await read(client, "skill://"))
        assert [tool["name"] for tool in skills["tools"]] == ["a/json", "a/strict", "a/text"]
        assert "Call `a__text`." in await read(client, "skill://a/text")
        with pytest.raises(MCPError, match=r"skill:// has 1 page; there is no page 2"):
            await read(client, "skill://?page=2")
        with pytest.raises(MCPError, match="not installed"):
            await read(client, "skill://a/fails")


async def test_documentation_is_never_cut(connect: Open, home: Path) -> None:
    registry = home / "registry"
    use_directory(home, registry)
    guide = "---\nname: a/doc\nversion: 1.0.0\ndescription: d\ncommand: echo\n---\n\n# Guide\n\n"
    folder = add_tool(registry, "a/doc")
    (folder / "enact.yaml").unlink()
    (folder / "enact.md").write_text(guide + "All of it matters.\n" * 2000)
    async with connect() as client:
        learned = await call(client, "enact__learn", 60_000, tool="a/doc")
        assert learned["documentation"].count("All of it matters.") == 2000
        assert learned["warnings"][-1].endswith("bytes; it is never cut.")


# What is kept


def test_the_newest_are_kept_within_number_and_bytes() -> None:
    kept = KeptPages(most=3, most_bytes=100)
    for n in range(5):
        kept.put(None, f"x://{n}", TextPages(("a" * 30,)))
    assert [bool(kept.get(None, f"x://{n}")) for n in range(5)] == [False, False, True, True, True]
    kept.put(None, "x://large", RowPages("rows", ("b" * 500,), (1,)))
    assert kept.get(None, "x://large") and not kept.get(None, "x://4")
    kept.put("other", "x://4", TextPages(("c",)))
    assert kept.get("other", "x://4") and not kept.get(None, "x://4")
    kept.forget("other")
    assert not kept.get("other", "x://4")


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("agentpack://plan/0123456789", "Call plan again."),
        pytest.param(f"agentpack://plan/{'x' * 100_000}", "Call plan again.", id="long"),
        ("agentpack://deploy_apply/0123456789?page=2", "agentpack://snapshots has every apply."),
        ("forge://answers/fractary_forge_fork_list/0123", "Call fractary_forge_fork_list again."),
    ],
)
async def test_what_is_not_kept_any_longer_says_what_to_call(
    connect: Open, address: str, advice: str
) -> None:
    async with connect() as client:
        with pytest.raises(MCPError, match="does not exist, or no longer does") as caught:
            await read(client, address)
        assert str(caught.value).endswith(advice)
        assert len(str(caught.value)) < 500


async def test_a_prefix_and_a_selection_hold_here_too(connect: Open, home: Path) -> None:
    repo = make_pack(home / "pack", 2, 40)
    async with connect(only=("agentpack",), prefix="x_") as client:
        resources = [str(each.uri) for each in await client.list_resources()]
        assert resources == ["agentpack://snapshots"]
        data = (await call(client, "x_plan", repo=repo))["data"]
        assert len(await rows_of(client, data, "changes")) == 80
        with pytest.raises(MCPError, match="Call x_plan again"):
            await read(client, "agentpack://plan/0123456789")
        with pytest.raises(MCPError, match="Resource not found"):
            await read(client, "forge://agents")


async def test_the_collections_are_named_and_nothing_else(connect: Open) -> None:
    async with connect() as client:
        assert sorted(str(each.uri) for each in await client.list_resources()) == [
            "agentpack://snapshots",
            "fleet://agents",
            "forge://agents",
            "forge://plugins",
            "forge://tools",
            "skill://",
        ]


def test_the_bound_of_the_configuration_holds_on_stdio(home: Path) -> None:
    repo = make_pack(home / "pack", 2, 40)
    config = home / "config.toml"
    config.write_text("[limits]\nresult_bytes = 5000\n")
    with Stdio(FLEET_AGENTPACK_CONFIG=str(config)) as server:
        server.hello()
        result = server.call("plan", repo=repo)
        assert 3000 < len(text_of(result)) <= 5000
        how = result["structuredContent"]["data"]["omitted"]["how"].removeprefix("read ")
        page = server.ask("resources/read", uri=how)["result"]["contents"][0]
        assert json.loads(page["text"])["page"] == 2 and len(page["text"]) <= 5000


@pytest.mark.enable_socket
def test_only_the_session_that_got_an_answer_reads_its_rest(home: Path) -> None:
    repo = make_pack(home / "pack", 4, 40)
    with Http() as server:
        one, two = server.hello(), server.hello()
        data = server.call(one, "plan", {"repo": repo})["structuredContent"]["data"]
        uri = data["omitted"]["how"].removeprefix("read ")
        body = {"jsonrpc": "2.0", "id": 9, "method": "resources/read", "params": {"uri": uri}}
        assert "result" in server.request(body, session=one)[2]
        assert "does not exist" in server.request(body, session=two)[2]["error"]["message"]
        server.request(None, session=one, method="DELETE")
