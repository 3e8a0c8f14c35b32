"""Serves over stdio: the wire out of everybody else's reach, every request answered, a quick end.

Only `Wire.claim` may run before the heavy imports, so nothing heavy is imported at the top.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import re
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastmcp import FastMCP

DRAIN_TIMEOUT_S = 10.0  # how long requests under way at end of input may still take
EXIT_GRACE_S = 2.0  # how long a closing server may take before it is ended anyway
CHUNK = 1 << 16

_HANDSHAKE_ID = "fleet-agentpack:handshake"
_NEEDS_NO_HANDSHAKE = ("initialize", "ping", "server/discover")
_ENDLESS = ("subscriptions/listen",)
_PROTOCOL_KEY = "io.modelcontextprotocol/protocolVersion"
_HANDSHAKE = (
    {
        "jsonrpc": "2.0",
        "id": _HANDSHAKE_ID,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "pipe", "version": "0"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)
_ANSWER = re.compile(
    r'\{"jsonrpc":"2\.0","id":("(?:[^"\\]|\\.)*"|-?[0-9]+),"(?:result|error)":', re.DOTALL
)


@dataclass(frozen=True)
class Wire:
    """The two descriptors that carry JSON-RPC."""

    reading: int
    writing: int

    @classmethod
    def claim(cls) -> Wire:
        """Move standard input and output away, so that nothing else reads or writes the wire.

        From here on, standard input is empty and standard output is standard error.
        """
        wire = cls(_duplicate(0, os.O_RDONLY), _duplicate(1, os.O_WRONLY))
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        try:
            os.dup2(2, 1)
        except OSError:
            os.dup2(null, 1)
        os.close(null)
        return wire


def _duplicate(descriptor: int, flags: int) -> int:
    try:
        duplicate = os.dup(descriptor)
    except OSError:  # the caller closed it
        duplicate = os.open(os.devnull, flags)
    if os.name == "nt":
        import msvcrt

        msvcrt.setmode(duplicate, os.O_BINARY)  # type: ignore[attr-defined,unused-ignore]
    return duplicate


class Pending:
    """The requests that still want an answer."""

    def __init__(self) -> None:
        self._ids: set[str | int] = set()
        self._none = asyncio.Event()
        self._none.set()

    def asked(self, message: dict[str, Any]) -> None:
        """Note a message from the client."""
        method, number = message.get("method"), message.get("id")
        if method == "notifications/cancelled":
            params = message.get("params")
            self.answered(params.get("requestId") if isinstance(params, dict) else None)
        elif isinstance(method, str) and _is_id(number) and method not in _ENDLESS:
            self._ids.add(number)
            self._none.clear()

    def answered(self, number: object) -> None:
        """Note an answer to the client."""
        if isinstance(number, str | int):
            self._ids.discard(number)
        if not self._ids:
            self._none.set()

    async def drained(self) -> None:
        """Wait until nothing is under way, within limits."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._none.wait(), DRAIN_TIMEOUT_S)


class Input:
    """Lines from the wire, read by a thread that never keeps the process alive."""

    def __init__(self, descriptor: int, pending: Pending) -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._pending = pending
        self._greeted = False
        self._ready: list[str] = []
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(descriptor, loop), daemon=True).start()

    def _read(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        def hand_over(line: bytes | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._lines.put_nowait, line)

        rest: list[bytes] = []
        with contextlib.suppress(OSError):
            while chunk := os.read(descriptor, CHUNK):
                head, *lines = chunk.split(b"\n")
                rest.append(head)
                for line in lines:
                    hand_over(b"".join(rest))
                    rest = [line]
        if any(rest):
            hand_over(b"".join(rest))
        hand_over(None)

    def __aiter__(self) -> Input:
        return self

    async def __anext__(self) -> str:
        if not self._ready:
            self._ready = list(await self._next_lines())
        return self._ready.pop(0)

    async def _next_lines(self) -> Iterator[str]:
        raw = await self._lines.get()
        if raw is None:
            await self._pending.drained()
            raise StopAsyncIteration
        line = raw.decode("utf-8", "replace")
        message = _message(line)
        if message is None:
            return iter([line])
        self._pending.asked(message)
        first, self._greeted = not self._greeted, True
        if first and _wants_handshake(message):
            return iter([*map(json.dumps, _HANDSHAKE), line])
        return iter([line])


class Output:
    """Lines to the wire, written by a thread so that a slow reader stops nothing else."""

    def __init__(self, descriptor: int, pending: Pending) -> None:
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._pending = pending
        self._thread = threading.Thread(target=self._write, args=(descriptor,), daemon=True)
        self._thread.start()

    def _write(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):  # nobody reads any more
            while (line := self._lines.get()) is not None:
                view = memoryview(line)
                while view:
                    view = view[os.write(descriptor, view) :]

    async def write(self, text: str) -> None:
        """Queue one message, unless it answers the handshake that we made up."""
        number = _answered_id(text)
        if number == _HANDSHAKE_ID:
            return
        self._lines.put(text.encode())
        if number is not None:
            self._pending.answered(number)

    async def flush(self) -> None:
        """Nothing to do: lines are written as they come."""

    def close(self) -> None:
        """Write what is queued."""
        self._lines.put(None)
        self._thread.join(EXIT_GRACE_S)


def _message(line: str) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and message.get("jsonrpc") == "2.0" else None


def _is_id(value: object) -> TypeGuard[str | int]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _wants_handshake(message: dict[str, Any]) -> bool:
    """Whether a first message is a request that neither shakes hands nor names its protocol."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return (
        isinstance(message.get("method"), str)
        and _is_id(message.get("id"))
        and message["method"] not in _NEEDS_NO_HANDSHAKE
        and not (isinstance(meta, dict) and _PROTOCOL_KEY in meta)
    )


def _answered_id(text: str) -> object:
    match = _ANSWER.match(text)
    return json.loads(match[1]) if match else None


def run_stdio(mcp: FastMCP[Any], wire: Wire) -> int:
    """Serve until end of input or a signal; returns the exit status."""
    status = asyncio.run(_serve(mcp, wire))
    # A tool that ignores its cancellation must not keep the process.
    last_resort = threading.Timer(EXIT_GRACE_S, os._exit, (status,))
    last_resort.daemon = True
    last_resort.start()
    return status


async def _serve(mcp: FastMCP[Any], wire: Wire) -> int:
    from fastmcp.server.context import reset_transport, set_transport
    from mcp.server.stdio import stdio_server

    pending = Pending()
    lines, out = Input(wire.reading, pending), Output(wire.writing, pending)
    ended = _Signals()
    token = set_transport("stdio")
    try:
        async with mcp._lifespan_manager(), stdio_server(lines, out) as (read, write):  # type: ignore[arg-type]
            await mcp._mcp_server.run(read, write, mcp._mcp_server.create_initialization_options())
    except BaseException:  # torn down in the middle, the SDK's tasks complain in several ways
        if not ended.status:
            raise
    finally:
        reset_transport(token)
        out.close()
    return ended.status


class _Signals:
    """Ends the running task on Ctrl-C or SIGTERM, and the process if the task does not obey."""

    def __init__(self) -> None:
        self.status = 0
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def end(number: int) -> None:
            if self.status:
                os._exit(self.status)
            self.status = 128 + number
            loop.call_later(EXIT_GRACE_S, os._exit, self.status)
            if task:
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(
                NotImplementedError, RuntimeError
            ):  # Windows; not the main thread
                loop.add_signal_handler(number, end, number)
