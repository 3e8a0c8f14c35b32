"""How much `list_agents` and `show_agent` cost beyond the HTTP requests that they need.

    python benchmarks/fleet.py

A loopback server in a process of its own replays Coder's recorded answers for fleets of 10, 100 and
1,000 agents. Each tool is compared with the bare httpx requests that it has to make (the same ones,
those that do not wait for each other at once, bodies read and decoded), alternating within one run.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fleet.fakecoder import METADATA, fleet_of, recorded
from tests.fleet.stage import TOKEN, service

SIZES = (10, 100, 1000)
ROUNDS = {10: 150, 100: 60, 1000: 12}
PARAMETERS = [{"name": "agent_role", "value": "coder"}, {"name": "agent_spec", "value": "Green"}]


def serve(size: int, ready: Any) -> None:
    """Answer a fleet's requests from prepared bytes until killed."""
    rows = fleet_of(size)
    pages = [
        _answer(json.dumps({"workspaces": rows[start : start + 100], "count": size}))
        for start in range(0, size, 100)
    ]
    one = _answer(json.dumps(rows[0]))
    parameters, status = _answer(json.dumps(PARAMETERS)), _answer('{"status":"stable"}')
    metadata = _answer(recorded("show_agent", METADATA), "text/event-stream")

    def find(target: str) -> bytes:
        url = urlsplit(target)
        if url.path == "/api/v2/workspaces":
            return pages[int(parse_qs(url.query)["offset"][0]) // 100]
        if url.path.endswith("/parameters"):
            return parameters
        if url.path.endswith("/watch-metadata"):
            return metadata
        return status if url.path.endswith("/status") else one

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                writer.write(find(head.split(b" ", 2)[1].decode()))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def _answer(body: str, kind: str = "application/json; charset=utf-8") -> bytes:
    content = body.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def bare_list(http: httpx.AsyncClient, size: int) -> None:
    for start in range(0, size, 100):
        params = {"q": "owner:me param:agent_role", "limit": 100, "offset": start}
        (await http.get("/api/v2/workspaces", params=params)).json()


async def bare_show(http: httpx.AsyncClient) -> None:
    workspace = (await http.get("/api/v2/users/me/workspace/agent-0")).json()
    build = workspace["latest_build"]
    agent = build["resources"][0]["agents"][0]

    async def metadata() -> None:
        async with http.stream("GET", f"/api/v2/workspaceagents/{agent['id']}/watch-metadata") as r:
            async for line in r.aiter_lines():
                if line.startswith("data:"):
                    json.loads(line[5:])
                    return

    async def get(path: str) -> None:
        (await http.get(path)).json()

    await asyncio.gather(
        get(f"/api/v2/workspacebuilds/{build['id']}/parameters"),
        metadata(),
        get("/@fleet/agent-0.main/apps/claude-code/status"),
    )


async def compare(
    ours: Callable[[], Awaitable[Any]], bare: Callable[[], Awaitable[Any]], rounds: int
) -> tuple[float, float]:
    """The medians of two ways of doing a thing, taken in turns so that both meet the same noise."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 3):
        for work, kept in zip((ours, bare), times, strict=True):
            started = time.perf_counter()
            await work()
            if number >= 3:
                kept.append(time.perf_counter() - started)
    return statistics.median(times[0]), statistics.median(times[1])


async def measure(size: int, port: int, folder: Path) -> list[tuple[str, float, float]]:
    url = f"http://127.0.0.1:{port}"
    fleet = service(folder / f"{size}.db", url, sleep=asyncio.sleep)
    headers = {"Coder-Session-Token": TOKEN}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as http:
        listed = await compare(fleet.agents, lambda: bare_list(http, size), ROUNDS[size])
        shown = await compare(lambda: fleet.show("agent-0"), lambda: bare_show(http), 100)
    await fleet.close()
    return [("list_agents", *listed), ("show_agent", *shown)]


def main() -> None:
    context = multiprocessing.get_context("spawn")
    print(f"{'agents':>7}  {'tool':<12} {'ours':>10} {'bare httpx':>11} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            receiving, sending = context.Pipe(duplex=False)
            server = context.Process(target=serve, args=(size, sending), daemon=True)
            server.start()
            rows = asyncio.run(measure(size, receiving.recv(), Path(folder)))
            server.terminate()
            server.join()
            for tool, ours, bare in rows:
                print(
                    f"{size:>7}  {tool:<12} {ours * 1000:>7.2f} ms {bare * 1000:>8.2f} ms"
                    f" {ours / bare:>6.2f}"
                )


if __name__ == "__main__":
    main()
