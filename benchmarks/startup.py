"""Start-up, memory and call latency: ours, plain FastMCP and the bare SDK, interleaved.

    python benchmarks/startup.py [--rounds 15] [--calls 1500]

Every server offers as many tools. Ratios are to plain FastMCP; times are medians of the rounds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

SERVERS = Path(__file__).resolve().parent / "servers"
ROOT = SERVERS.parent.parent
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "benchmark", "version": "0"},
    },
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@dataclass
class Figures:
    """What was measured of one server."""

    initialize: list[float] = field(default_factory=list)
    listed: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    stdio_calls: list[float] = field(default_factory=list)
    http_calls: list[float] = field(default_factory=list)


class Process:
    """A server on stdio."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd=env["HOME"],
        )

    def send(self, message: dict) -> None:
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, message: dict) -> dict:
        self.send(message)
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == message["id"]:
                return answer

    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def environment(home: str) -> dict[str, str]:
    env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return env | {"HOME": home, "PYTHONPATH": str(ROOT)}


def measure_start(command: list[str], env: dict[str, str], figures: Figures) -> int:
    server = Process(command, env)
    server.ask(HELLO)
    figures.initialize.append(server.elapsed_ms())
    server.send(READY)
    answer = server.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
    figures.listed.append(server.elapsed_ms())
    figures.memory.append(server.memory_mb())
    server.end()
    return len(answer["result"]["tools"])


def call(number: int) -> dict:
    params = {"name": "noop", "arguments": {"text": "x"}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def measure_stdio_calls(
    servers: dict[str, Process], figures: dict[str, Figures], count: int
) -> None:
    for number in range(10, 10 + count):
        for name, server in servers.items():
            start = time.perf_counter()
            answer = server.ask(call(number))
            figures[name].stdio_calls.append((time.perf_counter() - start) * 1000)
            assert answer["result"]["structuredContent"] == {"text": "x"}, answer


class HttpClient:
    """One session over a kept connection."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [*command, str(port)], env=env, cwd=env["HOME"], stderr=subprocess.DEVNULL
        )
        self.headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        while True:
            try:
                self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                self.connection.connect()
                break
            except OSError:
                time.sleep(0.05)
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.headers["Mcp-Session-Id"] = self.post(HELLO).headers["Mcp-Session-Id"]
        self.post(READY)

    def post(self, message: dict) -> http.client.HTTPResponse:
        self.connection.request("POST", "/mcp", json.dumps(message).encode(), self.headers)
        answer = self.connection.getresponse()
        answer.read()
        assert answer.status < 300, answer.status
        return answer

    def end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()


def measure_http_calls(
    clients: dict[str, HttpClient], figures: dict[str, Figures], count: int
) -> None:
    for number in range(10, 10 + count):
        for name, client in clients.items():
            start = time.perf_counter()
            client.post(call(number))
            figures[name].http_calls.append((time.perf_counter() - start) * 1000)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def report(figures: dict[str, Figures], tools: int, rounds: int, calls: int) -> str:
    base = figures["plain FastMCP"]

    def cell(value: float, reference: float, unit: str) -> str:
        return f"{value:.1f} {unit} ({value / reference:.2f}×)"

    lines = [
        f"{tools} tools, {rounds} rounds, {calls} calls; ratios to plain FastMCP in the same run",
        "",
        "| server | to `initialize` | to `tools/list` | memory "
        "| call p50, stdio | p99 | call p50, HTTP | p99 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in figures.items():
        row = [name]
        for mine, theirs, unit in (
            (found.initialize, base.initialize, "ms"),
            (found.listed, base.listed, "ms"),
            (found.memory, base.memory, "MB"),
        ):
            row.append(cell(statistics.median(mine), statistics.median(theirs), unit))
        for mine, theirs in (
            (found.stdio_calls, base.stdio_calls),
            (found.http_calls, base.http_calls),
        ):
            for share in (0.5, 0.99):
                value = f"{percentile(mine, share):.2f} ms" if mine else "–"
                ratio = (
                    f" ({percentile(mine, share) / percentile(theirs, share):.2f}×)" if mine else ""
                )
                row.append(value + ratio)
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        env = environment(home)
        python = sys.executable
        scratch = Figures()
        product = [python, "-m", "fleet_agentpack"]
        tools = measure_start(product, env, scratch)
        starts = {
            "fleet-agentpack": product,
            "plain FastMCP": [python, str(SERVERS / "plain_fastmcp.py"), str(tools - 1)],
            "bare SDK": [python, str(SERVERS / "bare_sdk.py"), str(tools - 1)],
        }
        figures = {name: Figures() for name in starts}
        for command in starts.values():  # byte code and disk cache
            assert measure_start(command, env, scratch) == tools
        for _ in range(options.rounds):
            for name, command in starts.items():
                measure_start(command, env, figures[name])
        calls = starts | {"fleet-agentpack": [python, str(SERVERS / "ours.py")]}
        servers = {name: Process(command, env) for name, command in calls.items()}
        for server in servers.values():
            server.ask(HELLO)
            server.send(READY)
        measure_stdio_calls(servers, figures, options.calls)
        for server in servers.values():
            server.end()
        clients = {
            name: HttpClient(command, env) for name, command in calls.items() if name != "bare SDK"
        }
        measure_http_calls(clients, figures, options.calls)
        for client in clients.values():
            client.end()
        print(report(figures, tools, options.rounds, options.calls))


if __name__ == "__main__":
    main()
