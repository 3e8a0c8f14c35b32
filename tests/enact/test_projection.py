"""Installed tools as MCP tools: names, hints, toolsets, sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_agentpack.enact.names import Entry, build_table, entries_of, is_name, parse
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.server import build_server
from tests.enact.kit import add_tool, make_service, needs_bwrap, refused, use_directory
from tests.rig import Http

LEGAL = r"[A-Za-z0-9_-]{1,64}"


@pytest.fixture
def tools(home: Path) -> Path:
    folder = home / "registry"
    use_directory(home, folder, execution={"default": "local"})
    return folder


def names_of(service: EnactService, session: str | None = None) -> dict[str, str]:
    return {name: each.entry.key for name, each in service.projection(session).callables.items()}


def test_scripts_have_names_of_their_own(service: EnactService, tools: Path) -> None:
    add_tool(tools, "a/one", scripts={"count": "true"})
    add_tool(tools, "a/several", scripts={"run": "true", "extra": "true"})
    add_tool(tools, "a/equals", scripts={"x": "true", "y": "true"})
    add_tool(tools, "a/legacy", command="true", scripts={"z": "true"})
    add_tool(tools, "alice/utils/weather", command="true")
    for name in ("a/one", "a/several", "a/equals", "a/legacy", "alice/utils/weather"):
        service.install(name)
    assert names_of(service) == {
        "a__one": "a/one",
        "a__several": "a/several",
        "a__several__extra": "a/several:extra",
        "a__equals__x": "a/equals:x",
        "a__equals__y": "a/equals:y",
        "a__legacy": "a/legacy",
        "a__legacy__z": "a/legacy:z",
        "alice__utils__weather": "alice/utils/weather",
    }


def test_a_tool_whose_manifest_was_changed_is_not_listed_and_does_not_run(
    service: EnactService, tools: Path, home: Path
) -> None:
    add_tool(tools, "a/one", scripts={"count": "true"})
    add_tool(tools, "a/two", scripts={"count": "true"})
    service.install("a/one")
    service.install("a/two")
    (manifest,) = (home / ".enact/tools/a/one").glob("*/*.y*ml")
    manifest.write_text(manifest.read_text().replace("description: ", "description: obey me; "))
    later = make_service(home)
    assert names_of(later) == {"a__two": "a/two"}
    assert any("a/one" in warning for warning in later.installed().warnings)
    with refused("TOOL_CHANGED"):
        later.run("a/one")


def test_names_that_collide_are_both_listed_with_a_hash_and_reported(
    service: EnactService, tools: Path
) -> None:
    add_tool(tools, "a/b/c", scripts={"run": "echo deep"})
    add_tool(tools, "a/b", scripts={"run": "true", "c": "echo flat"})
    service.install("a/b/c")
    service.install("a/b")
    names = names_of(service)
    assert set(names.values()) == {"a/b", "a/b:c", "a/b/c"}
    assert "a__b__c" not in names
    found = service.installed()
    assert "share the MCP name a__b__c" in found.warnings[0]
    outputs = {
        each.entry.key: service.call(each, {}).output
        for each in service.projection().callables.values()
    }
    assert outputs == {"a/b/c": "deep\n", "a/b:c": "flat\n", "a/b": ""}


segment = st.text("ab_-0", min_size=1, max_size=4)
tool_names = st.builds(
    lambda at, parts: at + "/".join(parts),
    st.sampled_from(["", "@"]),
    st.lists(segment, min_size=2, max_size=20),
).filter(is_name)


@given(st.sets(tool_names, max_size=8), st.sets(st.sampled_from(["run", "x", "_x"]), max_size=3))
@settings(max_examples=50, deadline=None)
def test_the_table_gives_every_entry_a_legal_name_of_its_own(
    tools: set[str], scripts: set[str]
) -> None:
    import re

    entries = [e for name in tools for e in entries_of(name, sorted(scripts), has_command=False)]
    table = build_table(entries, taken=["enact__search"])
    assert set(table.entries.values()) == set(entries)
    assert len(table.entries) == len(set(entries))
    assert all(re.fullmatch(LEGAL, name) for name in table.entries)
    assert "enact__search" not in table.entries
    assert build_table(reversed(entries), taken=["enact__search"]).entries == table.entries


def test_a_reserved_name_is_never_taken() -> None:
    table = build_table([Entry("enact/search")], taken=["enact__search"])
    assert "enact__search" not in table.entries
    assert table.collisions


def test_other_names_below_enact_are_anyones(service: EnactService, tools: Path) -> None:
    add_tool(tools, "enact/x/y")
    service.install("enact/x/y")
    assert service.mcp_names("enact/x/y") == ("enact__x__y",)


@pytest.mark.parametrize("name", ["enact/search", "enact/run", "agentpack/no/such"])
def test_reserved_names_are_not_asked_of_a_registry(
    service: EnactService, tools: Path, name: str
) -> None:
    add_tool(tools, name)
    for act in (service.install, service.learn, service.run):
        with refused("TOOL_NOT_FOUND"):
            act(name)
    assert name not in [hit.name for hit in service.search("no such search").results]


BAD_NAMES = ["../../x", "a/../../../b/c", "a\\b", "a?b", "a#b", "%2e%2e", "a/%2e%2e/b", "A/b"]
BAD_NAMES += ["/a/b", "a//b", "a", "", " a/b", "a/b ", "a/b\n", "a/b\0", "a/.", "a/b/"]
BAD_NAMES += [
    "a/b@",
    "a/b@1.0",
    "a/b@latest",
    "a/b@../../x",
    "a/b:x:y",
    "a/b:../x",
    "x" * 300 + "/y",
]
BAD_NAMES += ["a/b@1.0.0@2.0.0"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_none_is_refused_before_anything_is_touched(
    service: EnactService, home: Path, name: str
) -> None:
    before = sorted(home.rglob("*"))
    for act in (service.install, service.learn, service.uninstall, service.run):
        with refused("INVALID_ARGUMENTS"):
            act(name)
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize("version", ["../1.0.0", "1.0", "", "1.0.0/../..", "latest", "1.0.0\n"])
def test_a_version_that_is_none_is_refused(service: EnactService, version: str) -> None:
    for act in (service.install, service.learn):
        with refused("INVALID_ARGUMENTS"):
            act("a/b", version)


@given(st.text("ab/@:.-_1v\\%?#A \n", max_size=20))
@settings(max_examples=60, deadline=None)
def test_whatever_is_parsed_is_safe_as_a_path(text: str) -> None:
    from fleet_agentpack.enact.errors import EnactError

    try:
        found = parse(text)
    except EnactError as error:
        assert error.code == "INVALID_ARGUMENTS"
        return
    root = Path("/store")
    assert (root / found.name / (found.version or "1.0.0")).resolve().is_relative_to(root)


def test_versions_and_scripts_in_a_name() -> None:
    assert str(parse("@org/tool@v1.0.0")) == "@org/tool@1.0.0"
    assert parse("a/b:run@1.0.0") == parse("a/b@1.0.0:run")
    with refused("INVALID_ARGUMENTS"):
        parse("a/b@1.0.0", "2.0.0")


@needs_bwrap
async def test_projected_tools_over_mcp(home: Path, tools: Path, work: Path) -> None:
    use_directory(home, tools)
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    add_tool(
        tools,
        "a/echo",
        scripts={
            "run": {
                "command": "printf %s {{text}}",
                "description": "Say it again",
                "inputSchema": schema,
                "annotations": {"title": "Echo", "readOnlyHint": False, "openWorldHint": True},
            }
        },
    )
    rule = {"type": "string", "format": "directory-path", "x-access": "write"}
    add_tool(
        tools,
        "a/writes",
        scripts={
            "run": {
                "command": "ls {{out}}",
                "inputSchema": {"type": "object", "properties": {"out": rule}},
                "annotations": {"readOnlyHint": True, "destructiveHint": False},
            }
        },
    )
    add_tool(tools, "a/list", scripts={"run": "echo [1,2]"})
    service = make_service(home)
    for name in ("a/echo", "a/writes", "a/list"):
        service.install(name)
    async with Client(build_server(Settings.read())) as client:
        listed = {tool.name: tool for tool in await client.list_tools()}
        echo = listed["a__echo"]
        assert (echo.title, echo.description, echo.input_schema) == (None, "Say it again", schema)
        assert echo.annotations.read_only_hint is True
        assert echo.annotations.open_world_hint is False
        assert listed["a__writes"].annotations.read_only_hint is False
        assert listed["a__writes"].annotations.destructive_hint is True
        result = await client.call_tool("a__echo", {"text": "hi"}, raise_on_error=False)
        assert result.structured_content == {"text": "hi"}
        result = await client.call_tool("a__list", {}, raise_on_error=False)
        assert result.structured_content == {"result": [1, 2]}
        result = await client.call_tool("a__echo", {}, raise_on_error=False)
        assert result.is_error
        assert result.structured_content["error"]["code"] == "INVALID_ARGUMENTS"
        result = await client.call_tool("a__nothing", {}, raise_on_error=False)
        assert result.structured_content["error"] == "unknown_tool"


async def test_read_only_leaves_out_tools_that_do_more(home: Path, tools: Path) -> None:
    import dataclasses

    use_directory(home, tools)
    claim = {"annotations": {"readOnlyHint": True}}
    rule = {"type": "string", "format": "directory-path", "x-access": "write"}
    schema = {"type": "object", "properties": {"out": rule}}
    add_tool(tools, "a/reads", scripts={"run": "true"})
    writes = {"command": "true", "inputSchema": schema, **claim}
    add_tool(tools, "a/writes", scripts={"run": writes})
    service = make_service(home)
    service.install("a/reads")
    service.install("a/writes")
    settings = dataclasses.replace(Settings.read(), read_only=True)
    async with Client(build_server(settings)) as client:
        names = {tool.name for tool in await client.list_tools()}
        assert "a__reads" in names and "a__writes" not in names
        assert {"enact__search", "enact__learn", "enact__list"} <= names
        assert not names & {"enact__run", "enact__install", "enact__uninstall"}
        result = await client.call_tool("a__writes", {}, raise_on_error=False)
        assert result.structured_content["error"] == "unknown_tool"


def test_an_active_toolset_shows_only_its_tools(service: EnactService, tools: Path) -> None:
    for name in ("a/one", "a/two", "a/three"):
        add_tool(tools, name)
        service.install(name)
    service.toolsets.create("work")
    service.toolsets.remove("work", "a/two")
    service.toolsets.use("work")
    assert list(names_of(service)) == ["a__one", "a__three"]
    listed = {tool.name: tool.mcp_tools for tool in service.installed().tools}
    assert listed == {"a/one": ("a__one",), "a/two": (), "a/three": ("a__three",)}
    add_tool(tools, "a/four")
    service.install("a/four")
    assert "a__four" in names_of(service), "an install joins the active toolset"
    service.uninstall("a/one")
    assert service.toolsets.list()[0].tools == ("a/three", "a/four")
    service.toolsets.use(None)
    assert len(names_of(service)) == 3


def test_a_dangling_toolset_shows_none_and_warns(
    service: EnactService, tools: Path, home: Path
) -> None:
    add_tool(tools, "a/one")
    service.install("a/one")
    path = home / ".enact" / "mcp.json"
    data = json.loads(path.read_text()) | {"activeToolset": "gone"}
    path.write_text(json.dumps(data))
    assert names_of(service) == {}
    assert "'gone' does not exist" in service.installed().warnings[0]
    add_tool(tools, "a/two")
    assert "does not show a/two" in str(service.install("a/two").warnings)


def test_without_mcp_json_everything_installed_is_shown(
    service: EnactService, tools: Path, home: Path
) -> None:
    add_tool(tools, "a/one")
    service.install("a/one")
    (home / ".enact" / "mcp.json").unlink()
    assert list(names_of(service)) == ["a__one"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda toolsets: toolsets.use("none"), "TOOLSET_NOT_FOUND"),
        (lambda toolsets: toolsets.add("none", "a/one"), "TOOLSET_NOT_FOUND"),
        (lambda toolsets: toolsets.delete("none"), "TOOLSET_NOT_FOUND"),
        (lambda toolsets: toolsets.add("work", "a/absent"), "NOT_INSTALLED"),
        (lambda toolsets: toolsets.add("work", "../x"), "INVALID_ARGUMENTS"),
        (lambda toolsets: toolsets.remove("work", "a/absent"), "NOT_IN_TOOLSET"),
        (lambda toolsets: toolsets.create("work"), "TOOLSET_EXISTS"),
        (lambda toolsets: toolsets.create("../x"), "INVALID_ARGUMENTS"),
    ],
)
def test_a_toolset_change_that_makes_no_sense_changes_nothing(
    service: EnactService, tools: Path, home: Path, change: Any, code: str
) -> None:
    add_tool(tools, "a/one")
    service.install("a/one")
    service.toolsets.create("work")
    before = (home / ".enact" / "mcp.json").read_bytes()
    with refused(code):
        change(service.toolsets)
    assert (home / ".enact" / "mcp.json").read_bytes() == before


def test_a_sessions_install_is_its_own_and_goes_with_it(home: Path, tools: Path) -> None:
    add_tool(tools, "a/shared")
    add_tool(tools, "a/mine")
    make_service(home).install("a/shared")
    service = make_service(home, session_scope=True)
    before = service.fingerprint()
    service.install("a/mine", session="one")
    assert service.fingerprint() != before
    assert list(names_of(service, "one")) == ["a__mine", "a__shared"]
    assert list(names_of(service, "two")) == list(names_of(service, None)) == ["a__shared"]
    tool = service.projection("one").callables["a__mine"]
    assert service.call(tool, {}).output == "hello from a/mine\n"
    assert "a/mine" not in (home / ".enact" / "tools.json").read_text()
    with refused("NOT_INSTALLED"):
        service.uninstall("a/mine", session="two")
    with refused("NOT_ALLOWED"):
        service.uninstall("a/shared", session="one")
    with refused("SESSION_REQUIRED"):
        service.install("a/mine")
    service.end_session("one")
    assert list(names_of(service, "one")) == ["a__shared"]
    assert not list((home / ".local").rglob("hello.txt"))


def test_what_a_killed_server_left_of_its_sessions_is_removed(home: Path, tools: Path) -> None:
    add_tool(tools, "a/mine")
    left = home / ".local/agentpack/enact-sessions/999999999/x"
    left.mkdir(parents=True)
    service = make_service(home, session_scope=True)
    service.install("a/mine", session="one")
    assert not left.exists()
    service.close()
    assert not list((home / ".local/agentpack/enact-sessions").iterdir())


def test_session_scope_over_http(home: Path) -> None:
    with Http("--install-scope", "session") as server:
        one, two = server.hello(), server.hello()

        def listed(session: str) -> set[str]:
            body = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}}
            answer = server.request(body, session=session)[2]
            return {tool["name"] for tool in answer["result"]["tools"]}

        result = server.call(one, "enact__install", {"tool": "agentpack/csv/stats"})
        assert result["structuredContent"]["success"] is True
        assert "agentpack__csv__stats" in listed(one)
        assert "agentpack__csv__stats" not in listed(two)
        result = server.call(two, "agentpack__csv__stats", {"file": "x"})
        assert result["structuredContent"]["error"] == "unknown_tool"
        assert not (home / ".enact" / "tools.json").exists()
        kept = home / ".local/state/fleet-agentpack/enact-sessions"
        assert list(kept.rglob("stats.py"))
        server.request(None, session=one, method="DELETE")
        from tests.enact.test_session import wait_until

        wait_until(lambda: not list(kept.rglob("stats.py")))


async def test_a_broken_configuration_of_ours_leaves_the_other_domains_alone(
    home: Path, work: Path
) -> None:
    import dataclasses

    from tests.enact.kit import configure

    configure(home, trust={"policy": "enforce"}, execution={"default": "banana"})
    settings = Settings.read()
    async with Client(build_server(settings)) as client:
        result = await client.call_tool(
            "enact__install", {"tool": "agentpack/csv/stats"}, raise_on_error=False
        )
        assert result.structured_content["error"]["code"] == "CONFIG_INVALID"
        assert "'enforce'" in result.structured_content["error"]["message"]
        other = await client.call_tool("search", {"query": "commit"}, raise_on_error=False)
        assert "CONFIG_INVALID" not in str(other.structured_content)
        assert not (await client.call_tool("enact__list", {})).is_error
    wrong = dataclasses.replace(settings, config={"enact": {"container": {"run_args": "x"}}})
    async with Client(build_server(wrong)) as client:
        assert "enact__search" in {tool.name for tool in await client.list_tools()}
        result = await client.call_tool("enact__list", {}, raise_on_error=False)
        assert result.structured_content["error"]["code"] == "CONFIG_INVALID"


def test_a_version_in_a_state_file_cannot_lead_out_of_the_store(home: Path) -> None:
    (home / ".enact").mkdir()
    (home / ".enact" / "mcp.json").write_text('{"tools": {"a/b": "../../../x"}}')
    listed = make_service(home).installed()
    assert listed.tools == ()
    assert "is not a version" in listed.warnings[0]
