"""Speaks raw JSON-RPC to a server process, on stdio or HTTP, as a client would."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.warm import EXAMPLE as EXAMPLE
from tests.warm import ROOT, SERVE, WarmProcess, can_start

# How Coder's session tokens look; none of them belongs into a file of ours.
# What all tools together are, the extras too, and what is left where forge is not served.
ALL_TOOLS = len(json.loads((ROOT / "tests/wire/surface.json").read_text(encoding="utf-8")))
WITHOUT_FORGE = ALL_TOOLS - 18
SESSION_TOKEN = re.compile(r"[A-Za-z0-9]{10}-[A-Za-z0-9]{22}")
MODERN = "2026-07-28"


def modern_meta() -> dict[str, Any]:
    """What a client without a handshake sends with every request."""
    prefix = "io.modelcontextprotocol/"
    return {
        f"{prefix}protocolVersion": MODERN,
        f"{prefix}clientInfo": {"name": "rig", "version": "0"},
        f"{prefix}clientCapabilities": {},
    }


def child_environment(**more: str) -> dict[str, str]:
    """The test's own environment, with the checkout importable."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **more}


def start(
    command: Sequence[str] = SERVE,
    *,
    cwd: Path | None = None,
    cold: bool = False,
    together: bool = False,
    **env: str,
) -> subprocess.Popen[bytes] | WarmProcess:
    """Start a program, its streams as pipes; `cold` where its own start is what is tested."""
    whole = child_environment(**env)
    if not cold and can_start(command, whole):
        return WarmProcess(command, cwd, whole, together=together)
    pipe = subprocess.PIPE
    errors = subprocess.STDOUT if together else pipe
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=whole, cwd=cwd)


class Stdio:
    """A server process on stdio; every line of its standard output must be one JSON-RPC message."""

    def __init__(
        self,
        command: Sequence[str] = SERVE,
        *,
        cwd: Path | None = None,
        cold: bool = False,
        **env: str,
    ) -> None:
        self.process = start(command, cwd=cwd, cold=cold, **env)
        self.folder = cwd or Path.cwd()
        self.bad_lines: list[bytes] = []
        self.notifications: list[dict[str, Any]] = []
        self.errors = b""
        self._answers: dict[Any, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self._number = 0
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._drain, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            try:
                message = json.loads(line)
                assert message["jsonrpc"] == "2.0"
            except (ValueError, TypeError, KeyError, AssertionError):
                self.bad_lines.append(line)
                continue
            with self._arrived:
                if "id" in message and "method" not in message:
                    self._answers[message["id"]] = message
                else:
                    self.notifications.append(message)
                self._arrived.notify_all()

    def _drain(self) -> None:
        for line in self.process.stderr:
            self.errors += line

    def line(self, text: str) -> None:
        self.raw(text.encode() + b"\n")

    def raw(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def notify(self, method: str, **params: Any) -> None:
        self.line(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    def send(self, method: str, **params: Any) -> int:
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.line(json.dumps(request))
        return self._number

    def wait(self, number: Any, timeout_s: float = 30) -> dict[str, Any]:
        with self._arrived:
            if not self._arrived.wait_for(lambda: number in self._answers, timeout_s):
                raise TimeoutError(f"no answer to {number}; stderr: {self.errors.decode()[-2000:]}")
            return self._answers.pop(number)

    def wait_for_notification(self, method: str, timeout_s: float = 15) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [note for note in self.notifications if note["method"] == method]

        with self._arrived:
            if not self._arrived.wait_for(lambda: bool(found()), timeout_s):
                raise TimeoutError(f"no {method}; stderr: {self.errors.decode()[-2000:]}")
            return found()[0]

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.wait(self.send(method, **params))

    def hello(self, version: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
        answer = self.ask(
            "initialize",
            protocolVersion=version,
            capabilities=capabilities,
            clientInfo={"name": "rig", "version": "0"},
        )
        self.notify("notifications/initialized")
        return answer["result"]

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        answer = self.ask("tools/call", name=name, arguments=arguments)
        assert "result" in answer, answer
        return answer["result"]

    def close(self, timeout_s: float = 15) -> int:
        self.process.stdin.close()
        status = self.process.wait(timeout_s)
        self.join()
        return status

    def join(self) -> None:
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> Stdio:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def pipe(
    lines: str, command: Sequence[str] = SERVE, *, cold: bool = False, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """Pipe lines into a server and let it end by itself."""
    process = start(command, cold=cold, **env)
    out, errors = process.communicate(lines.encode(), 60)
    return subprocess.CompletedProcess(command, process.wait(), out, errors)


def run(
    *words: str, stdin: str = "", cwd: Path | None = None, status: int | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of `fleet-agentpack`; `status` is how it has to end."""
    process = start([*SERVE, *words], cwd=cwd, **env)
    out, errors = (each.decode() for each in process.communicate(stdin.encode(), 120))
    done = subprocess.CompletedProcess(words, process.wait(), out, errors)
    assert status in (None, done.returncode), f"{words}: {out}{errors}"
    return done


def text_of(result: dict[str, Any]) -> str:
    """The text of a tool result."""
    return "".join(block["text"] for block in result["content"])


def eventually(holds: Callable[[], object], timeout_s: float = 60) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


NO_TOKEN = ["--no-token"]


class Http:
    """A server process on HTTP."""

    def __init__(
        self,
        *options: str,
        command: Sequence[str] | None = None,
        own_token: bool = False,
        **env: str,
    ) -> None:
        self.port = free_port()
        has_token = own_token or "--token-file" in options or "FLEET_AGENTPACK_TOKEN" in env
        words = (
            [*command, "--http", str(self.port)]
            if command
            else [*SERVE, "--http", "--port", str(self.port), *([] if has_token else NO_TOKEN)]
        )
        self.process = start([*words, *options], together=True, **env)
        self.output = b""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()
        self._wait_until_up()

    def _drain(self) -> None:
        for line in self.process.stdout:
            self.output += line

    def _wait_until_up(self) -> None:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise TimeoutError(self.output.decode())

    def request(
        self,
        body: Any,
        *,
        session: str | None = None,
        method: str = "POST",
        path: str = "/mcp",
        **headers: str,
    ) -> tuple[int, str | None, Any]:
        """Status, session id and the last JSON message of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            head = {
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
            }
            head |= {"Mcp-Session-Id": session} if session else {}
            head |= {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, raw, head)
            answer = connection.getresponse()
            text = answer.read().decode()
            data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
            try:
                message = json.loads(data[-1] if data else text)
            except ValueError:
                message = text
            return answer.status, answer.headers.get("Mcp-Session-Id"), message
        finally:
            connection.close()

    def hello(self, **headers: str) -> str:
        """Shake hands; returns the session id."""
        status, session, _ = self.request(initialize(), **headers)
        assert status == 200 and session
        self.request(
            {"jsonrpc": "2.0", "method": "notifications/initialized"}, session=session, **headers
        )
        return session

    def call(
        self, session: str, name: str, arguments: dict[str, Any], number: int = 2, **headers: str
    ) -> Any:
        """The result of a tool call."""
        params = {"name": name, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        _, _, message = self.request(body, session=session, **headers)
        return message["result"]

    def end(self) -> int:
        """Ask it to end; returns the status."""
        self.process.terminate()
        status = self.process.wait(15)
        self._thread.join(5)
        return status

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._thread.join(5)
        self.process.stdin.close()
        self.process.stdout.close()


def initialize(version: str = "2025-11-25") -> dict[str, Any]:
    """An initialize request."""
    info = {"name": "rig", "version": "0"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
