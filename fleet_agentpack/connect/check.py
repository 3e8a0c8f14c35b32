"""Starts a server as a client would and lists its tools, with a minimal MCP client."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from fleet_agentpack.connect.client import Entry
from fleet_agentpack.kit.process import kill_group
from fleet_agentpack.kit.shapes import convert
from fleet_agentpack.version import __version__

T = TypeVar("T")

PROTOCOL = "2025-11-25"
HELLO: Mapping[str, object] = {
    "protocolVersion": PROTOCOL,
    "capabilities": {},
    "clientInfo": {"name": "fleet-agentpack-connect", "version": __version__},
}
# The variables that the MCP SDKs pass on to a server; every client passes at least these.
INHERITED = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
    *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PROCESSOR_ARCHITECTURE", "SYSTEMDRIVE"),
    *("SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE", "PATHEXT"),
)
LONGEST_MESSAGE = 16 * 2**20
ENDS_WITHIN_S = 3.0


class CheckError(Exception):
    """The server did not answer as expected; the message says how."""


@dataclass(frozen=True)
class Checked:
    """What the server answered."""

    server: str
    tools: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class ServerInfo:
    """What a server says of itself."""

    name: str = ""


@dataclass(frozen=True)
class Initialized:
    """The answer to the handshake."""

    serverInfo: ServerInfo = ServerInfo()


@dataclass(frozen=True)
class Tool:
    """A tool, as far as it matters here."""

    name: str


@dataclass(frozen=True)
class ToolPage:
    """The answer to `tools/list`."""

    tools: list[Tool]
    nextCursor: str | None = None


def check(
    entry: Entry, *, environ: Mapping[str, str], cwd: Path, timeout_s: float = 60.0
) -> Checked:
    """Start the entry's command, initialize and list its tools. Raises `CheckError`."""
    given = {name: environ[name] for name in INHERITED if name in environ}
    with tempfile.TemporaryFile() as complaints:
        started = time.perf_counter()
        try:
            server, tools = asyncio.run(
                _ask(entry, {**given, **entry.env}, cwd, complaints.fileno(), timeout_s)
            )
        except TimeoutError as error:
            raise CheckError(f"no answer within {timeout_s:g} s{_said(complaints)}") from error
        except OSError as error:
            raise CheckError(f"{entry.command} cannot be started: {error.strerror}") from error
        except CheckError as error:
            raise CheckError(f"{error}{_said(complaints)}") from error
        except ValueError as error:
            raise CheckError(f"its answer does not follow MCP{_said(complaints)}") from error
        return Checked(server, tools, time.perf_counter() - started)


async def _ask(
    entry: Entry, env: Mapping[str, str], cwd: Path, stderr: int, timeout_s: float
) -> tuple[str, tuple[str, ...]]:
    process = await asyncio.create_subprocess_exec(
        *entry.argv,
        env=env,
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        limit=LONGEST_MESSAGE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            return await _talk(process)
    finally:
        await _end(process)


async def _talk(process: asyncio.subprocess.Process) -> tuple[str, tuple[str, ...]]:
    answer = await _request(process, 1, "initialize", HELLO, Initialized)
    await _send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    tools: list[str] = []
    page: dict[str, object] = {}
    for number in range(2, 100):
        listed = await _request(process, number, "tools/list", page, ToolPage)
        tools += [tool.name for tool in listed.tools]
        if not listed.nextCursor:
            break
        page = {"cursor": listed.nextCursor}
    return answer.serverInfo.name, tuple(tools)


async def _request(
    process: asyncio.subprocess.Process,
    number: int,
    method: str,
    params: Mapping[str, object],
    shape: type[T],
) -> T:
    """Send a request and read until its answer; other messages are ignored."""
    await _send(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    if process.stdout is None:
        raise CheckError("no output")
    while line := await process.stdout.readline():
        try:
            message = json.loads(line)
        except ValueError as error:
            shown = line[:80].decode("utf-8", "replace").strip()
            raise CheckError(f"it printed something that is not MCP: {shown!r}") from error
        if isinstance(message, dict) and message.get("id") == number and "method" not in message:
            if "result" not in message:
                raise CheckError(f"{method} was refused: {message.get('error')}")
            return convert(shape, message["result"])
    raise CheckError(f"it exited before it answered {method}")


async def _send(process: asyncio.subprocess.Process, message: Mapping[str, object]) -> None:
    if process.stdin:
        with suppress(ConnectionError):  # then reading tells that it has ended
            process.stdin.write(json.dumps(message).encode() + b"\n")
            await process.stdin.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its input and let it end; kill it, and what it started, if it does not."""
    if process.stdin:
        process.stdin.close()
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            await process.wait()
    except TimeoutError:
        kill_group(process.pid)
        await process.wait()


def _said(complaints: BinaryIO) -> str:
    """The end of what the server wrote to standard error."""
    complaints.seek(0)
    text = complaints.read().decode("utf-8", "replace").strip()
    return f"; it said:\n{text[-1500:]}" if text else ""
