"""How fast the tool registry is, as ratios within one run: `python benchmarks/enact.py`.

| measured | against | at most |
|---|---|---|
| `tools/list` with 500 installed tools | a server with 500 plain FastMCP tools | 1.1 |
| a call of a built-in tool at the service | the bare bwrap line: no filter, no limits | 1.3 |
| a cached search | an uncached one, registry 20 ms away | 0.05 |
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fastmcp import Client, FastMCP
from fastmcp.tools.base import Tool
from mcp_types import ToolAnnotations

from fleet_agentpack.enact.backends.bubblewrap import Bubblewrap
from fleet_agentpack.enact.backends.job import Job, with_our_python
from fleet_agentpack.enact.bundle import Package, PackedFile
from fleet_agentpack.enact.receipt import Receipt
from fleet_agentpack.enact.service import EnactService
from fleet_agentpack.kit import yaml12
from fleet_agentpack.settings import Directories, Settings
from fleet_agentpack.wire.server import build_server
from tests.enact.fake_registry import FakeRegistry, serving
from tests.enact.kit import configure, make_service, tool_bundle

TOOLS = 500
SCHEMA = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "format": "file-path", "description": "The file to read"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
    },
    "required": ["file"],
}


def main() -> int:
    """Measure, print the table, and tell whether every ratio holds."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        rows = [asyncio.run(measure_list(home / "list")), measure_search(home / "search")]
        rows.insert(1, measure_call(home / "call"))
    print(f"{'':34} {'ours':>9} {'other':>9} {'ratio':>7} {'limit':>6}")
    for name, ours, other, limit in rows:
        ratio = ours / other
        mark = "" if ratio <= limit else "  over"
        print(f"{name:34} {ours * 1e3:7.2f}ms {other * 1e3:7.2f}ms {ratio:7.3f} {limit:6}{mark}")
    return 0 if all(ours / other <= limit for _, ours, other, limit in rows) else 1


async def measure_list(home: Path) -> tuple[str, float, float, float]:
    """`tools/list` through an in-memory client, ours and plain tools by turns."""
    service = make_service(home)
    for number in range(TOOLS):
        install(service, f"bench/tool{number:03}")
    server = build_server(settings_of(home))
    plain: FastMCP[Any] = FastMCP("plain", dereference_schemas=False)
    meta = [tool for tool in await server.list_tools() if tool.name.startswith("enact__")]
    for number in range(TOOLS):
        plain.add_tool(plain_tool(f"bench__tool{number:03}"))
    for tool in meta:
        plain.add_tool(tool.model_copy())
    async with Client(server) as ours, Client(plain) as other:
        assert len(await ours.list_tools()) == len(await other.list_tools()) == TOOLS + len(meta)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(30):
            for client, kept in ((ours, times[0]), (other, times[1])):
                started = time.perf_counter()
                await client.list_tools()
                kept.append(time.perf_counter() - started)
    service.close()
    return f"tools/list, {TOOLS} tools", *map(statistics.median, times), 1.1


def install(service: EnactService, name: str) -> None:
    """Put a small tool into the store, past the network and the policy."""
    script = {"command": "python3 main.py {{file}}", "inputSchema": SCHEMA}
    manifest = {"name": name, "version": "1.0.0", "description": f"Tool {name} for the benchmark"}
    text = yaml12.dump({**manifest, "scripts": {"run": script}})
    package = Package({"enact.yaml": PackedFile(text.encode()), "main.py": PackedFile(b"")})
    receipt = Receipt(
        name=name,
        version="1.0.0",
        source="benchmark",
        digest="0" * 64,
        trust={"policy": "allow"},
        files=package.records(),
    )
    service.store.install(package, receipt)


def plain_tool(name: str) -> Tool:
    """A FastMCP tool that is listed like an installed one."""

    def run(file: str, limit: int = 10) -> str:
        return file

    tool = Tool.from_function(run, name=name, description=f"Tool {name} for the benchmark")
    hints = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
    same = {"parameters": SCHEMA, "output_schema": None, "annotations": hints}
    return tool.model_copy(update=same)


def settings_of(home: Path) -> Settings:
    """Settings of a user who lives in that home, serving this domain alone."""
    settings = Settings.read(environ={"PATH": os.environ["PATH"], "HOME": str(home)})
    folders = Directories(home / "config", home / "state", home / "cache", home / "data")
    return dataclasses.replace(settings, home=home, directories=folders, only=("enact",))


def named(argv: list[str]) -> list[str]:
    """A command line that names what ours hands over as descriptors, which are closed by now."""
    found: list[str] = []
    rest = iter(argv)
    for word in rest:
        if word == "--args":
            next(rest)
        elif word == "--ro-bind-fd":
            next(rest)
            place = next(rest)
            found += ["--ro-bind", place, place]
        else:
            found.append(word)
    return found


def measure_call(home: Path) -> tuple[str, float, float, float]:
    """A built-in tool through the service, and its bwrap command line alone, by turns."""
    service = make_service(home)
    service.install("agentpack/csv/stats")
    (home / "work" / "x.csv").write_text("a,b\n" + "1,2\n" * 1000)
    arguments = {"file": str(home / "work" / "x.csv")}
    tool = service.projection().callables["agentpack__csv__stats"]
    folder = service.store.folder("agentpack/csv/stats", "1.0.0").resolve()
    from fleet_agentpack.enact.arguments import Mount

    job = Job("bench", folder, ["python3", "stats.py"], mounts=[Mount(Path(arguments["file"]))])
    with Bubblewrap(os.environ["PATH"], home).prepared(with_our_python(job)) as start:
        argv, env = named(bare(list(start.command.argv))), dict(start.command.env)
    body = json.dumps(arguments).encode()

    def ours() -> None:
        assert service.call(tool, arguments).exit_code == 0

    def other() -> None:
        subprocess.run(argv, env=env, input=body, capture_output=True, check=True)

    took = by_turns(ours, other, 25)
    service.close()
    return "call of a built-in tool", *took, 1.3


def bare(argv: list[str]) -> list[str]:
    """A sandbox's command line without the filter of system calls and without limits."""
    begins = next(at for at, word in enumerate(argv) if word.endswith("/bwrap"))
    filtered = argv.index("--seccomp")
    return [*argv[begins:filtered], "--", *argv[argv.index("sh") + 1 :]]


def measure_search(home: Path) -> tuple[str, float, float, float]:
    """The same search with and without a kept answer."""
    registry = FakeRegistry(delay_s=0.02)
    for number in range(10):
        registry.publish(f"bench/tool{number}", "1.0.0", tool_bundle(f"bench/tool{number}"))
    with serving(registry):
        configure(home, registry={"url": registry.url})
        service = make_service(home)
        service.search("bench")
        numbers = iter(range(10_000))
        took = by_turns(
            lambda: service.search("bench"), lambda: service.search(f"bench {next(numbers)}"), 40
        )
        service.close()
    return "cached search", *took, 0.05


def by_turns(ours: Callable[[], Any], other: Callable[[], Any], times: int) -> tuple[float, float]:
    """The median of each, measured alternately so that both see the same machine."""
    taken: tuple[list[float], list[float]] = ([], [])
    for work in (ours, other):
        work()
    for _ in range(times):
        for work, kept in zip((ours, other), taken, strict=True):
            started = time.perf_counter()
            work()
            kept.append(time.perf_counter() - started)
    return statistics.median(taken[0]), statistics.median(taken[1])


if __name__ == "__main__":
    sys.exit(main())
