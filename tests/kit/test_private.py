"""What we use of other libraries' private parts is still there, and is not missed when it goes."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
from fastmcp import Client

from fleet_agentpack.kit import private
from fleet_agentpack.kit.private import MemoryState
from fleet_agentpack.wire.server import build_server
from tests.rig import ALL_TOOLS, Stdio, child_environment


async def test_the_state_store_is_ours_and_its_own_is_never_imported() -> None:
    server = build_server()
    assert isinstance(server._state_store, MemoryState)
    for mode in ("legacy", "auto"):
        async with Client(server, mode=mode) as client:
            assert len(await client.list_tools()) >= 4


async def test_state_can_be_kept_and_forgotten() -> None:
    state = MemoryState()
    await state.put(key="a", value=1, ttl=5)
    assert await state.get(key="a") == 1
    assert await state.delete(key="a") is True
    assert await state.delete(key="a") is False
    assert await state.get(key="a") is None


def test_serving_imports_no_more_than_it_needs_and_leaves_the_environment_to_children() -> None:
    code = (
        "import asyncio, os, sys; from fleet_agentpack.wire.server import build_server\n"
        "asyncio.run(build_server().list_tools())\n"
        "print({name.split('.')[0] for name in sys.modules} & set(sys.argv[1:]))\n"
        "print({name: os.environ[name] for name in os.environ if name.startswith('FASTMCP_')})"
    )
    needless = ["griffe", "key_value", "beartype", "httpx", "sqlite3"]
    done = subprocess.run(
        [sys.executable, "-c", code, *needless],
        capture_output=True,
        text=True,
        env=child_environment(FASTMCP_X="kept"),
    )
    assert done.stdout.splitlines() == ["set()", "{'FASTMCP_X': 'kept'}"], done.stderr


def test_every_part_is_where_we_look_for_it() -> None:
    server = build_server()
    assert private.can_serve_streams(server)
    inner = private.protocol_server(server)
    assert inner is not None
    assert inner.get_capabilities().logging is None
    root = private.sigstore_trust_root()
    assert root is not None
    assert "certificateAuthorities" in json.loads(root.read_bytes())


def test_a_part_that_is_gone_is_done_without() -> None:
    gone = SimpleNamespace()
    private.install_memory_state(gone)
    private.advertise_no_logging(gone)
    assert not hasattr(gone, "_FastMCP__state_store")
    assert private.protocol_server(gone) is None
    assert private.protocol_server(SimpleNamespace(_mcp_server=gone)) is None
    assert not private.can_serve_streams(gone)
    assert private.connection_of(None) is None
    assert private.connection_of(gone) is None
    assert private.connection_of(SimpleNamespace(session=SimpleNamespace(_connection=gone))) is None


def test_models_are_built_at_once_where_pydantic_hides_its_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "pydantic._internal._config"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with private.models_built_on_first_use():
        pass


def test_without_its_inner_server_fastmcp_serves_stdio_itself() -> None:
    code = (
        "import sys; from fleet_agentpack.wire import stdio\n"
        "stdio.can_serve_streams = lambda server: False\n"
        "from fleet_agentpack.cli import run; sys.exit(run([]))"
    )
    with Stdio([sys.executable, "-c", code]) as server:
        assert server.hello()["serverInfo"]["name"] == "agentpack"
        assert len(server.ask("tools/list")["result"]["tools"]) == ALL_TOOLS
        assert server.call("list_agent_projects")["structuredContent"]["projects"] == []
        assert server.close() == 0
        assert server.bad_lines == []


async def test_without_connections_nobody_is_told_and_every_call_still_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("call", "list_changed"):
        monkeypatch.setattr(f"fleet_agentpack.wire.{module}.connection_of", lambda _: None)
    for mode in ("legacy", "auto"):
        async with Client(build_server(), mode=mode) as client:
            found = await client.call_tool("enact__list", {})
            assert found.structured_content["tools"] == []
