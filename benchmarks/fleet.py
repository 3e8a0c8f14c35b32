"""How much `list_agents` and `show_agent` cost beyond the HTTP requests that they need.

    python benchmarks/fleet.py             # on Coder
    python benchmarks/fleet.py --local     # on this machine; see local_fleet.py

A loopback server in a process of its own replays Coder's recorded answers for fleets of 10, 100 and
1,000 agents. Each tool is compared with the bare httpx requests that it has to make: the same ones,
those that do not wait for each other at once, once with the bodies only read and once with the JSON
decoded (`json.loads`), all three in turns within one run.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fleet_agentpack.fleet.coder.client import PAGES_AT_ONCE
from tests.fleet.fakecoder import METADATA, fleet_of, recorded
from tests.fleet.stage import TOKEN, service

SIZES = (10, 100, 1000)
ROUNDS = {10: 200, 100: 200, 1000: 20}
PARAMETERS = [{"name": "agent_role", "value": "coder"}, {"name": "agent_spec", "value": "Green"}]


def serve(size: int, ready: Any) -> None:
    """Answer a fleet's requests from prepared bytes until killed."""
    rows = fleet_of(size)
    pages = [
        _answer({"workspaces": rows[start : start + 100], "count": size})
        for start in range(0, size, 100)
    ]
    one, build = _answer(rows[0]), rows[0]["latest_build"]["id"].encode()
    parameters, status = _answer(PARAMETERS), _answer({"status": "stable"})
    metadata = _answer(recorded("show_agent", METADATA), "text/event-stream")

    def find(target: str) -> bytes:
        url = urlsplit(target)
        if url.path == "/api/v2/workspaces":
            return pages[int(parse_qs(url.query)["offset"][0]) // 100]
        if url.path.endswith("/parameters"):
            return parameters
        if url.path.endswith("/watch-metadata"):
            return metadata
        if url.path.endswith("/status"):
            return status
        # A build that nobody has seen: its parameters have to be asked for.
        return one.replace(build, str(uuid4()).encode()) if url.path.endswith("/new-one") else one

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


def _answer(body: Any, kind: str = "application/json; charset=utf-8") -> bytes:
    """An answer on the wire; JSON is compact, as Coder's is."""
    text = body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))
    content = text.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


Read = Callable[[bytes], Any]  # what the bare requests do with a body


async def bare_list(http: httpx.AsyncClient, size: int, read: Read) -> None:
    async def page(start: int) -> None:
        params = {"q": "owner:me param:agent_role", "limit": 100, "offset": start}
        read((await http.get("/api/v2/workspaces", params=params)).content)

    await page(0)
    starts = range(100, size, 100)
    for first in range(0, len(starts), PAGES_AT_ONCE):
        await asyncio.gather(*map(page, starts[first : first + PAGES_AT_ONCE]))


async def bare_show(http: httpx.AsyncClient, read: Read) -> None:
    async def get(path: str) -> None:
        read((await http.get(path)).content)

    async def metadata() -> None:
        async with http.stream("GET", "/api/v2/workspaceagents/some-id/watch-metadata") as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    read(line[5:].encode())
                    return

    await get("/api/v2/users/me/workspace/agent-0")
    await asyncio.gather(
        get("/api/v2/workspacebuilds/some-id/parameters"),
        metadata(),
        get("/@fleet/agent-0.main/apps/claude-code/status"),
    )


async def compare(rounds: int, *ways: Callable[[], Awaitable[Any]]) -> list[float]:
    """The medians of several ways of doing a thing, in turns, so that all meet the same noise."""
    times: list[list[float]] = [[] for _ in ways]
    turns = list(zip(ways, times, strict=True))
    for number in range(rounds + 3):
        random.shuffle(turns)
        for work, kept in turns:
            started = time.perf_counter()
            await work()
            if number >= 3:
                kept.append(time.perf_counter() - started)
    return [statistics.median(kept) for kept in times]


async def measure(size: int, port: int, folder: Path) -> list[tuple[str, list[float]]]:
    url = f"http://127.0.0.1:{port}"
    headers = {"Coder-Session-Token": TOKEN}
    fleet = service(folder / f"{size}.db", url, sleep=asyncio.sleep)

    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as http:
        listed = await compare(
            ROUNDS[size],
            fleet.agents,
            lambda: bare_list(http, size, len),
            lambda: bare_list(http, size, json.loads),
        )
        shown = await compare(
            100,
            lambda: fleet.show("agent-0"),
            lambda: bare_show(http, len),
            lambda: bare_show(http, json.loads),
        )
        first = await compare(
            100,
            lambda: fleet.show("new-one"),
            lambda: bare_show(http, len),
            lambda: bare_show(http, json.loads),
        )
    await fleet.close()
    return [("list_agents", listed), ("show_agent, first", first), ("show_agent, again", shown)]


def main() -> None:
    context = multiprocessing.get_context("spawn")
    print(
        f"{'agents':>7}  {'tool':<18} {'ours':>10} {'bare':>10} {'ratio':>6}"
        f" {'decoded':>10} {'ratio':>6}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            receiving, sending = context.Pipe(duplex=False)
            server = context.Process(target=serve, args=(size, sending), daemon=True)
            server.start()
            rows = asyncio.run(measure(size, receiving.recv(), Path(folder)))
            server.terminate()
            server.join()
            for tool, (ours, bare, decoded) in rows:
                print(
                    f"{size:>7}  {tool:<18} {ours * 1000:>7.2f} ms"
                    f" {bare * 1000:>7.2f} ms {ours / bare:>6.2f}"
                    f" {decoded * 1000:>7.2f} ms {ours / decoded:>6.2f}"
                )


if __name__ == "__main__":
    if "--local" in sys.argv:
        from benchmarks import local_fleet

        sys.exit(local_fleet.main())
    else:
        main()
