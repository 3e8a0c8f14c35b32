"""Single tools chosen, left out and renamed: what is listed, said and answered then."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
from fastmcp import Client

from fleet_agentpack import domains
from fleet_agentpack.kit.errors import AppError
from fleet_agentpack.settings import Settings, SettingsError
from fleet_agentpack.wire.provider import EXTRA, READS, DomainTools
from fleet_agentpack.wire.recorded import RecordedListing, known_tools
from fleet_agentpack.wire.selection import LONGEST_NAME, Selection, shortened
from fleet_agentpack.wire.server import assemble, build_server
from fleet_agentpack.wire.wording import tools_named, worded
from tests.rig import SERVE, Stdio, run

TOOLS = sorted(known_tools())
# Names that are no ordinary words: where one stands in a text, the tool is meant.
TELLING = re.compile("|".join(name for name in TOOLS if "_" in name))


def served(**chosen: Any) -> Client[Any]:
    return Client(build_server(dataclasses.replace(Settings.read(), **chosen)))


async def call(client: Client[Any], tool: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments, raise_on_error=False)
    return result.structured_content


def texts() -> list[str]:
    found = []
    for domain in domains.select():
        found += [domain.instructions, *domain.texts.values()]
        for tool in domain.tools.values():
            found += [tool._text, *tool._argument_texts.values()]
    return found


def test_every_text_that_names_tools_is_marked_up_soundly() -> None:
    for text in texts():
        assert set(tools_named(text)) <= set(TOOLS), text
        assert text.count("[") == text.count("]")
        assert not re.search(r"[\[\]{}]", worded(text, str)), text
        assert not TELLING.search(worded(text, lambda _: "")), text


@pytest.mark.parametrize("prefix", ["", "our_"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_alone_names_no_other(tool: str, prefix: str) -> None:
    recorded = RecordedListing.read(Selection(tools=(tool,), prefix=prefix), "The project is /p.")
    assert recorded
    (listed,) = json.loads(recorded.listing("tools/list", modern=False))["tools"]
    assert listed.pop("name") == prefix + tool
    assert listed["description"].endswith(".")
    handshake = json.loads(recorded.initialize("2025-11-25") or "")
    said = json.dumps(listed) + handshake["instructions"]
    said += recorded.listing("resources/list", modern=False)
    assert {prefix + name for name in TELLING.findall(said)} <= {prefix + tool}
    assert "The project is /p." in handshake["instructions"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Call it first[, then {b or c}].", "Call it first, then C."),
        ("One. [Call {a} first[; {c} undoes it].]", "One."),
        ("One. [Call {c}.] [Two {a}.] Three [sic].", "One. Call C. Three [sic]."),
        ("From {a}", ""),
        ("{a, c and d}: {c, d or e}", "C and D: C, D or E"),
        ("x {} [y]] {a.b}", "x {} [y]] {a.b}"),
    ],
)
def test_a_text_says_what_can_be_said(text: str, expected: str) -> None:
    assert worded(text, lambda name: name.upper() if name in "cde" else "") == expected


def test_a_name_that_is_too_long_ends_in_a_hash() -> None:
    assert shortened("a" * LONGEST_NAME, LONGEST_NAME) == "a" * LONGEST_NAME
    one, two = (shortened("a" * 60 + end, 50) for end in ("x", "y"))
    assert len(one) == len(two) == 50
    assert one != two


def test_instructions_promise_only_what_is_served() -> None:
    def told(**chosen: Any) -> str:
        recorded = RecordedListing.read(Selection(**chosen), "The project is /p.")
        assert recorded
        return str(json.loads(recorded.initialize("2025-11-25") or "")["instructions"])

    assert "Then follow the prompt that execute gives." in told()
    assert "the prompt" not in told(tools=("search",)).replace("ready prompts", "")
    assert "enact__install, then the tool by its own name" in told()
    assert "install" not in told(read_only=True)


async def test_with_a_prefix_everything_has_it() -> None:
    async with served(prefix="our_") as client:
        listed = [tool.name for tool in await client.list_tools()]
        assert len(listed) == len(TOOLS)
        assert all(name.startswith("our_") for name in listed)
        assert "Call our_plan, our_diff, our_deploy_apply." in client.instructions
        refused = await call(client, "our_rollback", to="x")
        assert refused["errors"][0]["code"] == "E_CONFIRM_REQUIRED"
        bare = await call(client, "plan")
        assert bare["details"] == {"tool": "plan", "similar": ["our_plan"]}


async def test_next_actions_name_the_tools_as_they_are_called_here() -> None:
    async with served(prefix="our_") as client:
        missing = await call(client, "our_fractary_forge_agent_info", name="nobody")
        assert missing["suggestions"] == ["List what there is: our_fractary_forge_agent_list"]
        unknown = await call(client, "our_show_agent", agent_name="nobody")
        assert unknown["message"].endswith("Call our_list_agents to see the names.")
        wrong = await call(client, "our_fractary_forge_fork_info", nom="x")
        assert wrong["message"].startswith("our_fractary_forge_fork_info: ")
        found = await call(client, "our_enact__learn", tool="agentpack/csv/stats")
        assert "call `our_enact__run`" in found["documentation"]
        # A registry's name for a tool is nobody's to change.
        run = (await call(client, "our_enact__run", tool="agentpack/csv/stats", args={}))["error"]
        assert run["message"] == "agentpack/csv/stats: file: required"
        assert run["details"]["tool"] == "agentpack/csv/stats"


async def test_next_actions_never_name_what_is_left_out() -> None:
    async with served(without=("fractary_forge_agent_list", "list_agents", "enact__run")) as client:
        missing = await call(client, "fractary_forge_agent_info", name="nobody")
        assert missing["suggestions"] == []
        unknown = await call(client, "show_agent", agent_name="nobody")
        assert unknown["message"] == "There is no agent called 'nobody'."
        found = await call(client, "enact__learn", tool="agentpack/csv/stats")
        assert "enact__run" not in found["documentation"]


async def test_drift_leads_to_no_tool_that_is_left_out(home: Any) -> None:
    build = dataclasses.replace(Settings.read())
    environ = {**build.environ, "AGENTPACK_HOME": str(home / "pack")}
    settings = dataclasses.replace(build, environ=environ)
    run("init", status=0, **environ)
    for read_only, expected in ((False, ["deploy_apply"]), (True, [])):
        server = build_server(dataclasses.replace(settings, read_only=read_only))
        async with Client(server) as client:
            status = (await call(client, "status"))["data"]
            detailed = status.get("next_actions_detailed", [])
            assert [each["action"] for each in detailed if each["action"] != "diff"] == expected
            assert ("deploy_apply" in json.dumps(status)) is not read_only


@pytest.mark.parametrize(
    ("chosen", "tool", "option"),
    [
        ({"read_only": True}, "rollback", "--read-only"),
        ({"only": ("fleet", "climpt")}, "plan", "--only fleet,climpt"),
        ({"tools": ("plan",)}, "diff", "--tools"),
        ({"tools": ("plan",)}, "enact__run", "--tools"),
        ({"without": ("search",)}, "search", "--without"),
        ({"without": ("search",), "prefix": "our_"}, "our_search", "--without"),
        ({"read_only": True, "prefix": "our_"}, "rollback", "--read-only"),
    ],
)
async def test_a_tool_that_is_left_out_says_why(
    chosen: dict[str, Any], tool: str, option: str
) -> None:
    async with served(**chosen) as client:
        assert await call(client, tool, to="x", yes=True) == {
            "error": "unknown_tool",
            "message": f"The tool {tool!r} is left out by {option}; the user can start the server"
            " without that option.",
            "details": {"tool": tool, "similar": []},
        }


async def test_a_prompt_is_offered_with_its_tools_alone() -> None:
    async with served(without=("fractary_forge_plugin_info",)) as client:
        names = [prompt.name for prompt in await client.list_prompts()]
        assert names == ["forge_setup_configuration", "forge_resolve_fork"]
    async with served(tools=("plan",)) as client:
        assert await client.list_prompts() == []
        (snapshots,) = await client.list_resources()
        assert snapshots.description == "The snapshots, newest first."
    async with served(prefix="our_") as client:
        prompt = await client.get_prompt("forge_search_plugins", {"task": "t"})
        assert "Call our_fractary_forge_plugin_search with" in prompt.messages[0].content.text


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ({"tools": ("plam",)}, "there is no tool 'plam' to choose or to leave out; did you mean"),
        ({"without": ("mars",)}, "`fleet-agentpack tools` lists them"),
        ({"only": ("fleet",), "tools": ("plan",)}, "there is no tool 'plan'"),
        ({"tools": ("rollback",), "read_only": True}, "leave no tool to serve"),
    ],
)
def test_names_that_choose_nothing_stop_the_start(chosen: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        build_server(dataclasses.replace(Settings.read(), **chosen))
    assert problem in str(caught.value)


def test_the_command_line_lists_what_a_server_would() -> None:
    words = ["--prefix", "our", "--tools", "plan,rollback", "--read-only", "tools"]
    listed = run(*words, status=0)
    assert "our_plan" in listed.stdout
    assert "rollback" not in listed.stdout


def test_installed_tools_follow_the_selection(home: Any) -> None:
    with Stdio() as server:
        server.hello()
        assert server.call("enact__install", tool="agentpack/csv/stats").get("isError") is not True
        names = {tool["name"] for tool in server.ask("tools/list")["result"]["tools"]}
        (stats,) = names - set(TOOLS)
    for front in ("on", "off"):
        for words, expected in (
            (["--prefix", "our", "--tools", f"plan,{stats}"], {"our_plan", f"our_{stats}"}),
            (["--only", "enact", "--without", f"{stats},enact__run"], {*ENACT} - {"enact__run"}),
        ):
            with Stdio([*SERVE, *words], FLEET_AGENTPACK_FRONT=front) as server:
                server.hello()
                listed = server.ask("tools/list")["result"]["tools"]
                assert {tool["name"] for tool in listed} == expected
                if f"our_{stats}" in expected:
                    answer = server.call(f"our_{stats}", file="none.csv")["structuredContent"]
                    assert answer["error"]["code"] != "unknown_tool"
                else:
                    answer = server.call(stats)["structuredContent"]
                    assert f"The tool {stats!r} is left out by --without" in answer["message"]


ENACT = [name for name, facts in known_tools().items() if facts.domain == "enact"]


class ToyError(AppError):
    """The toy's failures."""


toy = DomainTools(
    "toy",
    server_name="toy-alone",
    instructions="toy: for tests. [Call {plain}.] [{more} does more.]",
    error=ToyError,
    open_service=lambda _: object(),
)


@toy.tool(annotations=READS)
def plain() -> dict[str, str]:
    """Do something. [Then call {more}.]"""
    return {}


@toy.tool(annotations=READS, tags={EXTRA})
def more() -> dict[str, str]:
    """Do more."""
    return {"more": "yes"}


async def test_an_extra_is_there_unless_it_is_not_wanted() -> None:
    settings = Settings.read()
    async with Client(assemble(settings, [toy])) as client:
        assert [tool.name for tool in await client.list_tools()] == ["plain", "more"]
        assert await call(client, "more") == {"more": "yes"}
    async with Client(assemble(dataclasses.replace(settings, extras=False), [toy])) as client:
        (listed,) = await client.list_tools()
        assert (listed.name, listed.description) == ("plain", "Do something.")
        assert (await call(client, "more"))["message"].startswith(
            "The tool 'more' is left out by --no-extras;"
        )
