"""Our stand-ins for FastMCP's parts still sit where FastMCP looks."""

from __future__ import annotations

import subprocess
import sys

from fastmcp import Client

from fleet_agentpack.wire.server import build_server
from fleet_agentpack.wire.session_state import MemoryState
from tests.rig import child_environment


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
