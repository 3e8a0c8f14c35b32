"""Start-up, memory and call latency: ours, plain FastMCP and the bare SDK, interleaved.

    python benchmarks/startup.py [--rounds 15] [--calls 1500] [--other NAME=COMMAND] [--readme]

Every server offers as many tools. Ratios are to plain FastMCP; times are medians of the rounds.
Ours is started as users do: by its console script, and where uv is installed also by the script of
`uv tool install` and by `uvx`. `--other` adds another command, such as an older version's script.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shlex
import shutil
import socket
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
RATIO_DIGITS = 3
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@dataclass
class Figures:
    """What was measured of one server."""

    listed: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    first_call: list[float] = field(default_factory=list)
    wake_ups: float | None = None
    stdio_calls: list[float] = field(default_factory=list)
    http_calls: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Start:
    """How a server is started, and a call that it answers."""

    command: list[str]
    call: dict


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

    def cpu_ms(self) -> float:
        """Of the server and of what it has waited for, such as uvx's own work."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") * 1000

    def wake_ups(self, seconds: float) -> float:
        def switches() -> int:
            tasks = Path(f"/proc/{self.process.pid}/task").glob("*/status")
            lines = [line for task in tasks for line in task.read_text().splitlines()]
            return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))

        time.sleep(1)  # what follows the last answer is over
        before = switches()
        time.sleep(seconds)
        return (switches() - before) / seconds

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def environment(home: str) -> dict[str, str]:
    kept = {name for name in os.environ if name.startswith("UV_")} | {
        "PATH",
        "LANG",
        "SSL_CERT_FILE",
    }
    return {name: os.environ[name] for name in kept & os.environ.keys()} | {"HOME": home}


def measure_start(start: Start, env: dict[str, str], figures: Figures) -> int:
    """From the start to the list of tools, and on to the answer of the first call."""
    server = Process(start.command, env)
    server.ask(HELLO)
    server.send(READY)
    answer = server.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
    figures.listed.append(server.elapsed_ms())
    figures.cpu.append(server.cpu_ms())
    figures.memory.append(server.memory_mb())
    if figures.wake_ups is None:
        figures.wake_ups = server.wake_ups(5)
        server.end()
        return measure_start(start, env, figures)
    server.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": start.call})
    figures.first_call.append(server.elapsed_ms())
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


def cell(mine: list[float], theirs: list[float], unit: str, share: float = 0.5) -> str:
    if not mine or not theirs:
        return "–"
    value, reference = percentile(mine, share), percentile(theirs, share)
    return f"{value:.{2 if value < 10 else 0}f} {unit} ({value / reference:.{RATIO_DIGITS}f}×)"


def report(starts: dict[str, Figures], calls: dict[str, Figures], facts: str) -> str:
    base = starts["plain FastMCP"]
    lines = [
        f"{facts}; ratios to plain FastMCP in the same run",
        "",
        "| server | to `tools/list` | CPU until then | memory until then "
        "| to the first call's answer | wake-ups a second, idle |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in starts.items():
        cells = [
            cell(found.listed, base.listed, "ms"),
            cell(found.cpu, base.cpu, "ms"),
            cell(found.memory, base.memory, "MB"),
            cell(found.first_call, base.first_call, "ms"),
            f"{found.wake_ups:.1f}",
        ]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    if not calls:
        return "\n".join(lines)
    base = calls["plain FastMCP"]
    lines += [
        "",
        "| server | call p50, stdio | p99 | call p50, HTTP | p99 |",
        "|---|---|---|---|---|",
    ]
    for name, found in calls.items():
        cells = [
            cell(mine, theirs, "ms", share)
            for mine, theirs in (
                (found.stdio_calls, base.stdio_calls),
                (found.http_calls, base.http_calls),
            )
            for share in (0.5, 0.99)
        ]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def our_starts(python: str, env: dict[str, str]) -> dict[str, Start]:
    """Ours in every way that a user has here."""
    call = {"name": "fractary_forge_config_get", "arguments": {"key": "x"}}
    script = Path(python).parent / "fleet-agentpack"
    starts = {"fleet-agentpack": Start([str(script)], call)}
    uv = shutil.which("uv")
    if uv:
        kept = {"UV_TOOL_DIR": f"{env['HOME']}/tools", "UV_TOOL_BIN_DIR": f"{env['HOME']}/bin"}
        done = subprocess.run(
            [uv, "tool", "install", "-q", "--python", python, "-c", "constraints.txt", str(ROOT)],
            env=os.environ | kept,
            cwd=ROOT,
        )
        if done.returncode == 0:
            installed = [f"{env['HOME']}/bin/fleet-agentpack"]
            starts["the same by `uv tool install`"] = Start(installed, call)
        words = [uv, "tool", "run", "-q", "--python", python, "--from", str(ROOT)]
        starts["the same by `uvx`"] = Start([*words, "fleet-agentpack"], call)
    return starts


def write_readme(table: str) -> None:
    readme = ROOT / "README.md"
    before, rest = readme.read_text(encoding="utf-8").split("<!-- startup -->")
    after = rest.split("<!-- /startup -->")[1]
    text = f"{before}<!-- startup -->\n{table}\n<!-- /startup -->{after}"
    readme.write_text(text, encoding="utf-8")


def measure_calls(starts: dict[str, Start], env: dict[str, str], count: int) -> dict[str, Figures]:
    ours = [sys.executable, str(SERVERS / "ours.py")]
    commands = {name: start.command for name, start in starts.items()} | {"fleet-agentpack": ours}
    figures = {name: Figures() for name in commands}
    servers = {name: Process(command, env) for name, command in commands.items()}
    for server in servers.values():
        server.ask(HELLO)
        server.send(READY)
    measure_stdio_calls(servers, figures, count)
    for server in servers.values():
        server.end()
    clients = {
        name: HttpClient(command, env) for name, command in commands.items() if name != "bare SDK"
    }
    measure_http_calls(clients, figures, count)
    for client in clients.values():
        client.end()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1500)
    parser.add_argument("--other", metavar="NAME=COMMAND", action="append", default=[])
    parser.add_argument("--readme", action="store_true", help="put the tables into the README")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        env = environment(home)
        python = sys.executable
        ours = our_starts(python, env)
        tools = measure_start(ours["fleet-agentpack"], env, Figures())
        noop = {"name": "noop", "arguments": {}}
        plain = {
            "plain FastMCP": Start(
                [python, str(SERVERS / "plain_fastmcp.py"), str(tools - 1)], noop
            ),
            "bare SDK": Start([python, str(SERVERS / "bare_sdk.py"), str(tools - 1)], noop),
        }
        other = {
            name: Start(shlex.split(command), ours["fleet-agentpack"].call)
            for name, command in (each.split("=", 1) for each in options.other)
        }
        starts = ours | plain | other
        for name, start in list(starts.items()):  # byte code and disk cache
            try:
                assert measure_start(start, env, Figures()) == tools
            except ValueError:  # such as uvx without a network
                print(f"left out, it does not start here: {name}", file=sys.stderr)
                del starts[name]
        figures = {name: Figures() for name in starts}
        for _ in range(options.rounds):
            for name, start in starts.items():
                measure_start(start, env, figures[name])
        chosen = {"fleet-agentpack": ours["fleet-agentpack"]} | plain
        calls = measure_calls(chosen, env, options.calls) if options.calls else {}
        facts = f"{tools} tools, {options.rounds} rounds, {options.calls} calls"
        table = report(figures, calls, facts)
        print(table)
        if options.readme:
            write_readme(table)


if __name__ == "__main__":
    main()
