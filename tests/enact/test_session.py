"""The contract's example session, played against a real server process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.server import build_server
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire import list_changed
from tests.rig import SERVE, Http, Stdio, child_environment, text_of

Call = Callable[[str, dict[str, Any]], dict[str, Any]]
List = Callable[[], list[dict[str, Any]]]
CHANGED = "notifications/tools/list_changed"
META = [f"enact__{each}" for each in ("search", "learn", "install", "uninstall", "list", "run")]


def path_without_bwrap(folder: Path) -> str:
    """A PATH on which ordinary programs are found, but neither bubblewrap nor containers."""
    folder.mkdir()
    for name in ("sh", "cat", "env", "ls", "true", "touch", "git"):
        program = shutil.which(name)
        if program:
            (folder / name).symlink_to(program)
    return str(folder)


@pytest.fixture(params=["bubblewrap", "direct"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """A machine with and one without a sandbox."""
    if request.param == "direct":
        return {"PATH": path_without_bwrap(tmp_path / "bin"), "EXPECTED": "direct"}
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    return {"EXPECTED": "bubblewrap"}


@pytest.fixture(params=["stdio", "http"])
def server(
    request: pytest.FixtureRequest, environment: dict[str, str], work: Path
) -> Iterator[tuple[Call, List]]:
    if request.param == "stdio":
        with Stdio(**environment) as process:
            process.hello()
            yield (
                lambda name, arguments: process.call(name, **arguments),
                lambda: process.ask("tools/list")["result"]["tools"],
            )
            assert process.close() == 0
            assert process.bad_lines == []
        return
    with Http(**environment) as over_http:
        session = over_http.hello()

        def listed() -> list[dict[str, Any]]:
            body = {"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {}}
            return over_http.request(body, session=session)[2]["result"]["tools"]

        yield lambda name, arguments: over_http.call(session, name, arguments), listed


def answer(result: dict[str, Any]) -> Any:
    assert not result.get("isError"), result
    return result["structuredContent"]


def test_the_contracts_session_on_the_built_in_registry(
    server: tuple[Call, List], work: Path, home: Path, environment: dict[str, str]
) -> None:
    call, listed = server
    (work / "x.csv").write_text("city,rain\nOslo,12\nRome,3\n")
    assert set(META) <= {tool["name"] for tool in listed()}

    found = answer(call("enact__search", {"query": "csv analysis"}))
    assert found["results"][0]["name"] == "agentpack/csv/stats"
    assert "CSV" in found["results"][0]["description"]

    result = call("enact__learn", {"tool": "agentpack/csv/stats"})
    assert answer(result)["documentation"].startswith("# CSV statistics\n\n")
    assert json.loads(text_of(result)) == answer(result)
    assert not (home / ".enact").exists(), "reading writes nothing"

    installed = answer(call("enact__install", {"tool": "agentpack/csv/stats"}))
    assert installed == {
        "success": True,
        "message": "Installed agentpack/csv/stats@1.0.0. To run it, call agentpack__csv__stats; if"
        ' your client does not list that, call enact__run with tool: "agentpack/csv/stats".',
    }

    tool = next(tool for tool in listed() if tool["name"] == "agentpack__csv__stats")
    assert tool["inputSchema"]["required"] == ["file"]
    assert tool["inputSchema"]["properties"]["file"]["format"] == "file-path"
    assert tool["outputSchema"]["required"] == ["rows", "delimiter", "columns"]
    assert tool["annotations"]["readOnlyHint"] is True
    assert tool["title"] == "CSV statistics"

    result = call("agentpack__csv__stats", {"file": "x.csv"})
    assert answer(result)["rows"] == 2
    assert answer(result)["columns"][1]["mean"] == 7.5
    ran = result["_meta"]["fleet-agentpack/run"]
    assert (ran["exit_code"], ran["provider"]) == (0, environment["EXPECTED"])

    assert answer(call("enact__list", {}))["tools"][0]["mcp_tools"] == ["agentpack__csv__stats"]
    again = answer(call("enact__run", {"tool": "agentpack/csv/stats", "args": {"file": "x.csv"}}))
    assert again["output"]["rows"] == 2
    assert again["provider"] == environment["EXPECTED"]

    gone = answer(call("enact__uninstall", {"tool": "agentpack/csv/stats"}))
    assert gone == {"success": True, "message": "Uninstalled agentpack/csv/stats@1.0.0"}
    assert "agentpack__csv__stats" not in {tool["name"] for tool in listed()}
    assert json.loads((home / ".enact" / "tools.json").read_text()) == {"tools": {}}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_the_contracts_session_with_a_real_client(kind: str, mode: Any, work: Path) -> None:
    (work / "x.csv").write_text("city,rain\nOslo,12\nRome,3\n")
    with contextlib.ExitStack() as stack:
        if kind == "stdio":
            command, *words = SERVE
            transport: Any = StdioTransport(command, words, env=child_environment())
        else:
            server = stack.enter_context(Http())
            transport = StreamableHttpTransport(f"http://127.0.0.1:{server.port}/mcp")
        changed = asyncio.Event()

        async def heard(message: Any) -> None:
            if "list_changed" in str(getattr(message, "method", message)):
                changed.set()

        async with Client(transport, message_handler=heard, mode=mode) as client:

            async def ask(called: str, /, **arguments: Any) -> Any:
                return (await client.call_tool(called, arguments)).structured_content

            found = await ask("enact__search", query="csv analysis")
            name = found["results"][0]["name"]
            assert (await ask("enact__learn", tool=name))["documentation"].startswith("# CSV")
            assert (await ask("enact__install", tool=name))["success"] is True
            if mode == "legacy":  # the later protocol tells only those who subscribe
                await asyncio.wait_for(changed.wait(), 20)
            mcp_name = name.replace("/", "__")
            assert mcp_name in {tool.name for tool in await client.list_tools()}
            assert (await ask(mcp_name, file="x.csv"))["rows"] == 2
            assert (await ask("enact__uninstall", tool=name))["success"] is True


def test_bad_arguments_and_unknown_tools_are_results_in_the_domains_shape(work: Path) -> None:
    with Stdio() as process:
        process.hello()
        for arguments in (
            {},
            {"query": 5},
            {"query": "x", "limit": "many"},
            {"query": "x", "y": 1},
        ):
            result = process.call("enact__search", **arguments)
            assert result["isError"] is True
            assert result["structuredContent"]["success"] is False
            assert result["structuredContent"]["error"]["code"] == "INVALID_ARGUMENTS"
        for limit in (0, -1, 2.5):
            result = process.call("enact__search", query="x", limit=limit)
            assert result["structuredContent"]["error"]["code"] == "INVALID_ARGUMENTS"
        for tool in ("../../x", "a/../../../b/c", "a\\b", "a?b/c", "a#b/c", "%2e%2e/x", "x", ""):
            for meta in ("enact__learn", "enact__install", "enact__uninstall", "enact__run"):
                result = process.call(meta, tool=tool)
                assert result["structuredContent"]["error"]["code"] == "INVALID_ARGUMENTS", tool
        process.call("enact__install", tool="agentpack/csv/stats")
        result = process.call("agentpack__csv__stats", file=5)
        assert result["structuredContent"]["error"]["code"] == "INVALID_ARGUMENTS"
        assert "file" in result["structuredContent"]["error"]["message"]


def test_clients_hear_of_an_install_at_once_also_by_another_process(home: Path) -> None:
    from tests.enact.kit import make_service

    with Stdio() as process:
        process.hello()
        process.call("enact__install", tool="agentpack/json/query")
        process.wait_for_notification("notifications/tools/list_changed")
        process.ask("tools/list")
        process.notifications.clear()
        make_service(home).install("agentpack/text/diff")
        process.wait_for_notification("notifications/tools/list_changed")
        names = {tool["name"] for tool in process.ask("tools/list")["result"]["tools"]}
        assert {"agentpack__json__query", "agentpack__text__diff"} <= names


async def test_clients_hear_of_a_change_once_and_of_nothing_else(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "x.csv").write_text("a\n1\n")
    looked, heard = [], []
    fingerprint = EnactService.fingerprint

    def counted(service: EnactService) -> object:
        looked.append(1)
        return fingerprint(service)

    async def hear(message: Any) -> None:
        heard.append(getattr(message, "method", str(message)))

    async def told(*calls: tuple[str, dict[str, Any]]) -> int:
        heard.clear()
        for name, arguments in calls:
            await client.call_tool(name, arguments)
        rounds = len(looked) + 3  # after the third look, what the second found has been sent
        async with asyncio.timeout(30):
            while len(looked) < rounds:
                await asyncio.sleep(0.01)
        await client.ping()  # whatever was sent before its answer has been read now
        return heard.count(CHANGED)

    monkeypatch.setattr(EnactService, "fingerprint", counted)
    monkeypatch.setattr(list_changed, "open_watch", lambda: None)  # looks at intervals instead
    monkeypatch.setattr(list_changed, "POLL_INTERVAL_S", 0.05)
    stats = {"tool": "agentpack/csv/stats"}
    run_once = ("enact__run", {**stats, "args": {"file": "x.csv"}})
    server = build_server(Settings.read())
    async with Client(server, message_handler=hear, mode="legacy") as client:
        assert await told(("enact__list", {}), ("enact__search", {"query": "csv"}), run_once) == 0
        assert await told(("enact__install", stats)) == 1
        assert await told(("enact__install", stats), ("enact__learn", stats), run_once) == 0
        assert await told(("agentpack__csv__stats", {"file": "x.csv"})) == 0
        assert await told(("enact__uninstall", stats)) == 1


def test_a_call_that_is_cancelled_leaves_no_process(work: Path, home: Path) -> None:
    from tests.enact.kit import add_tool, use_directory

    registry = home / "registry"
    add_tool(registry, "slow/sleeper", scripts={"run": "sleep 60.125"})
    use_directory(home, registry, execution={"default": "local"})
    with Stdio() as process:
        process.hello()
        number = process.send("tools/call", name="enact__run", arguments={"tool": "slow/sleeper"})
        wait_until(lambda: running("60.125"))
        process.notify("notifications/cancelled", requestId=number)
        wait_until(lambda: not running("60.125"))
        assert process.call("enact__list")["structuredContent"]["tools"] == []


def wait_until(fact: Callable[[], bool], timeout_s: float = 15) -> None:
    ends = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.05)


def running(argument: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words:
            return True
    return False
