"""M4: slow calls that stop everything else."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fastmcp import Client

from fleet_agentpack.server import build_server
from fleet_agentpack.settings import Settings
from fleet_agentpack.wire.peers import Peers
from fleet_agentpack.wire.queues import AT_ONCE, Queues
from tests.enact.attacks.publisher import NAME, publish
from tests.enact.kit import use_directory
from tests.rig import Http, eventually, modern_meta

SLEEPS = 45
WAITS = 'sh -c \'mktemp "$1/XXXXXX"; until [ -e "$1/end" ]; do sleep 0.1; done\' sh {{folder}}'
ANOTHER = """
import http.client, json, sys
port, head, body = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
connection.request("POST", "/mcp", body, head)
print(connection.getresponse().read().decode())
"""


async def test_slow_runs_stop_nothing_else(home: Path) -> None:
    begun = home / "begun"
    service = publish(home, scripts={"run": f"sh -c 'touch {begun}; sleep 600'"})
    use_directory(home, home / "registry", execution={"default": "local"})
    service.install(NAME)
    async with Client(build_server(Settings.read())) as client:
        await client.call_tool("enact__list")
        calls = [("eve__tool", {}), ("enact__run", {"tool": NAME})]
        runs = [asyncio.create_task(client.call_tool(*calls[n % 2])) for n in range(SLEEPS)]
        while not begun.exists():
            await asyncio.sleep(0.02)
        await client.call_tool("enact__list")
        await client.call_tool("fractary_forge_config_get", {"key": "x"}, raise_on_error=False)
        assert not any(run.done() for run in runs)
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


async def test_each_client_and_kind_has_its_own_places() -> None:
    queues = Queues()
    for _ in range(AT_ONCE):
        queues.place("one", "slow").acquire_nowait()
    assert queues.place("one", "slow").value == 0
    assert queues.place("two", "slow").value == queues.place("one", "enact").value == AT_ONCE
    queues.tidy("one", "slow")
    assert queues.place("one", "slow").value == 0  # it is in use
    for client, kind in (("two", "slow"), ("one", "enact")):
        queues.tidy(client, kind)
    assert list(queues._places) == [("one", "slow")]


def modern(name: str, client: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """A call without a handshake, and its headers."""
    meta = modern_meta() | {"io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"}}
    params = {"name": name, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    version = {"MCP-Protocol-Version": "2026-07-28"}
    return body, {**version, "Mcp-Method": "tools/call", "Mcp-Name": name}


def test_a_client_without_a_session_has_one_queue_for_all_its_connections(
    home: Path, work: Path
) -> None:
    publish(home, scripts={"run": WAITS}).install(NAME)
    use_directory(home, home / "registry", execution={"default": "local"})
    places = {each: work / each for each in ("first", "second", "third")}
    for place in places.values():
        place.mkdir()

    def started(each: str) -> int:
        return len(list(places[each].iterdir()))

    with Http() as server, ThreadPoolExecutor(3 * AT_ONCE) as pool:

        def call(each: str, client: str) -> Any:
            body, head = modern("eve__tool", client, folder=str(places[each]))
            return pool.submit(server.request, body, **head)

        mine = [call("first", "one") for _ in range(2 * AT_ONCE)]
        eventually(lambda: started("first") >= AT_ONCE)
        body, head = modern("eve__tool", "one", folder=str(places["second"]))
        head |= {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        argv = [sys.executable, "-c", ANOTHER, str(server.port), json.dumps(head), json.dumps(body)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
            try:
                eventually(lambda: started("second"))  # another program, with the same name
                others = call("third", "two")
                eventually(lambda: started("third"))  # another client in the same program
                assert started("first") == AT_ONCE
            finally:
                for place in places.values():
                    (place / "end").touch()
            answers = [each.result()[2] for each in [*mine, others]]
            assert all("error" not in each for each in answers)
            assert "content" in other.communicate(timeout=60)[0]


def test_the_program_behind_a_connection_is_known_also_when_its_number_is_used_again() -> None:
    peers = Peers()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = listener.getsockname()
        for _ in range(3):
            with socket.create_connection(here) as one, socket.create_connection(here) as two:
                found = {peers.program(each.getsockname(), here) for each in (one, two)}
                if sys.platform == "linux":
                    assert found == {(Path("/proc/self").readlink().name)}
    assert peers.program(("127.0.0.1", 1), here) is None
    assert peers.program(("203.0.113.7", 1), here) is None
