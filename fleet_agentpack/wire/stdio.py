"""Serves over stdio: every request answered, whatever else is on the line, and a quick end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fastmcp.server.context import reset_transport, set_transport
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from fleet_agentpack.kit.private import can_serve_streams, serve_streams
from fleet_agentpack.wire.descriptors import NOTHING_LEFT, Handover, read_some, write_some
from fleet_agentpack.wire.known_shapes import REPLAYED_ID

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from fleet_agentpack.wire.descriptors import ClaimedStdio

DRAIN_TIMEOUT_S = 10.0  # how long requests under way at end of input may still take
EXIT_GRACE_S = 2.0  # how long a closing server may take before it is ended anyway
CHUNK = 1 << 16

_CANCELLED = "notifications/cancelled"
_ENDLESS = ("subscriptions/listen",)
_PROTOCOL_KEY = "io.modelcontextprotocol/protocolVersion"
_INVALID = "Not a JSON-RPC 2.0 message with a string or whole number as id, or nested too deeply."
_HANDSHAKE = (
    JSONRPCRequest(
        jsonrpc="2.0",
        id=REPLAYED_ID,
        method="initialize",
        params={
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "pipe", "version": "0"},
        },
    ),
    JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"),
)


class Pending:
    """The requests that still want an answer: the client's, and ours to the client."""

    def __init__(self) -> None:
        self._ids: Counter[RequestId] = Counter()
        self._questions: dict[RequestId, None] = {}
        self._settled = asyncio.Event()
        self._settled.set()

    def received(self, message: JSONRPCMessage) -> None:
        """Note a message from the client."""
        if isinstance(message, JSONRPCRequest) and message.method not in _ENDLESS:
            self._ids[message.id] += 1
            self._settled.clear()
        if isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
            self._done((message.params or {}).get("requestId"))
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._questions.pop(message.id, None)

    def sent(self, message: JSONRPCMessage) -> None:
        """Note a message to the client."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._done(message.id)
        if isinstance(message, JSONRPCRequest):
            self._questions[message.id] = None
            self._settled.set()

    def forget(self) -> None:
        """Wait for none of them any longer."""
        self._ids.clear()
        self._settled.set()

    async def drained(self) -> JSONRPCError | None:
        """After the end of input, wait until nothing is under way, within limits.

        A call that waits for the client's answer would never end: what comes back then is the
        answer to give it.
        """
        if self._ids and not self._questions:
            self._settled.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), DRAIN_TIMEOUT_S)
        if not self._ids or not self._questions:
            return None
        number, _ = self._questions.popitem()
        closed = ErrorData(code=CONNECTION_CLOSED, message="The client has gone.")
        return JSONRPCError(jsonrpc="2.0", id=number, error=closed)

    def _done(self, number: object) -> None:
        if isinstance(number, str | int) and number in self._ids:
            self._ids[number] -= 1
            if not self._ids[number]:
                del self._ids[number]
        if not self._ids:
            self._settled.set()


class Output:
    """Messages to the client, written by a thread so that a slow reader stops nothing else."""

    def __init__(self, descriptor: int, pending: Pending, unwritten: bytes = b"") -> None:
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lines.put(unwritten)
        self._pending = pending
        self._thread = threading.Thread(target=self._write, args=(descriptor,), daemon=True)
        self._loop = asyncio.get_running_loop()
        self.when_nobody_reads: Callable[[], None] = pending.forget
        self._thread.start()

    def _write(self, descriptor: int) -> None:
        try:
            while (line := self._lines.get()) is not None:
                view = memoryview(line)
                while view:
                    view = view[write_some(descriptor, view) :]
        except OSError:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self.when_nobody_reads)

    async def send(self, item: SessionMessage) -> None:
        """Queue one message; an answer settles its request."""
        self._pending.sent(item.message)
        self.put(item.message)

    def put(self, message: JSONRPCMessage) -> None:
        """Queue one message now, unless it answers a request that was not the client's."""
        if getattr(message, "id", None) != REPLAYED_ID:
            self._lines.put(encoded(message) + b"\n")

    async def aclose(self) -> None:
        """Nothing to do: `finish` writes what is queued."""

    async def __aenter__(self) -> Output:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def finish(self, timeout_s: float) -> None:
        """Write what is queued, as long as somebody reads it."""
        self._lines.put(None)
        self._thread.join(timeout_s)


class Input:
    """Messages from the client, read by a thread that never keeps the process alive."""

    def __init__(self, descriptor: int, pending: Pending, out: Output, unread: bytes = b"") -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._pending, self._out = pending, out
        self._messages: deque[JSONRPCMessage] = deque()
        self._greeted = False
        self._ended = False
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(descriptor, unread, loop), daemon=True).start()

    def _read(self, descriptor: int, unread: bytes, loop: asyncio.AbstractEventLoop) -> None:
        def hand_over(line: bytes | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._lines.put_nowait, line)

        rest: list[bytes] = []
        with contextlib.suppress(OSError):
            while chunk := unread or read_some(descriptor, CHUNK):
                unread = b""
                head, *lines = chunk.split(b"\n")
                rest.append(head)
                for line in lines:
                    hand_over(b"".join(rest))
                    rest = [line]
        if any(rest):
            hand_over(b"".join(rest))
        hand_over(None)

    def end(self) -> None:
        """Take the input for ended, and no answer for wanted."""
        self._pending.forget()
        self._lines.put_nowait(None)

    async def receive(self) -> SessionMessage:
        """The next message; raises `StopAsyncIteration` when there is none."""
        while not self._messages:
            line = None if self._ended else await self._lines.get()
            if line is None:
                self._ended = True
                self._messages.append(await self._last_message())
                break
            for message in self._read_line(line.decode("utf-8", "replace").strip()):
                self._admit(message)
        return SessionMessage(self._messages.popleft())

    async def _last_message(self) -> JSONRPCMessage:
        """What is still to be told after the end of input; raises `StopAsyncIteration`."""
        closed = await self._pending.drained()
        if closed is None:
            _end_anyway(self._out, 0, DRAIN_TIMEOUT_S)
            raise StopAsyncIteration
        return closed

    def __aiter__(self) -> Input:
        return self

    __anext__ = receive

    async def aclose(self) -> None:
        """Nothing to do: the thread ends with the process."""

    async def __aenter__(self) -> Input:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def _admit(self, message: JSONRPCMessage) -> None:
        self._pending.received(message)
        if isinstance(message, JSONRPCRequest) and not self._greeted and message.method != "ping":
            self._greeted = True
            if _wants_handshake(message):
                self._messages.extend(_HANDSHAKE)
        self._messages.append(message)

    def _read_line(self, line: str) -> Iterator[JSONRPCMessage]:
        """A line's message; a batch's messages, each answered on a line of its own."""
        if not line:
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            if isinstance(message, JSONRPCRequest):
                yield message
                return
        except ValidationError:
            pass
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            self._refuse(None, PARSE_ERROR, "This line is not usable JSON.")
            return
        for item in data if isinstance(data, list) else [data]:
            found = _message(item)
            if found:
                yield found
            elif not _is_answer(item):
                self._refuse(item, INVALID_REQUEST, _INVALID)

    def _refuse(self, item: Any, code: int, message: str) -> None:
        number = item.get("id") if isinstance(item, dict) else None
        usable = isinstance(number, str | int) and not isinstance(number, bool)
        error = ErrorData(code=code, message=message)
        # Not `send`: a request that is under way may have the same id, and still wants its answer.
        self._out.put(JSONRPCError(jsonrpc="2.0", id=number if usable else None, error=error))


def encoded(message: JSONRPCMessage) -> bytes:
    """A message as it goes over the wire."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except PydanticSerializationError:  # halves of characters, such as in odd file names
        plain = message.model_dump(by_alias=True, exclude_unset=True)
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def _message(item: Any) -> JSONRPCMessage | None:
    """An item as a message, halves of characters replaced; None for what is no message."""
    try:
        text = json.dumps(item, ensure_ascii=False).encode("utf-8", "replace")
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except (ValidationError, RecursionError):
        return None
    # Who sends an id, even an unusable one, waits for an answer.
    return None if isinstance(message, JSONRPCNotification) and "id" in item else message


def _is_answer(item: Any) -> bool:
    return isinstance(item, dict) and "method" not in item and ("result" in item or "error" in item)


def _wants_handshake(message: JSONRPCRequest) -> bool:
    """Whether a first request neither shakes hands nor names its protocol."""
    meta = (message.params or {}).get("_meta")
    named = isinstance(meta, dict) and _PROTOCOL_KEY in meta
    return message.method not in ("initialize", "server/discover") and not named


def run_stdio(mcp: FastMCP[Any], wire: ClaimedStdio, left: Handover = NOTHING_LEFT) -> int:
    """Serve until end of input or a signal; returns the exit status."""
    if not can_serve_streams(mcp):
        wire.give_back(left)
        asyncio.run(mcp.run_stdio_async(show_banner=False))
        return 0
    return asyncio.run(_serve(mcp, wire, left))


def _end_anyway(out: Output, status: int, after_s: float) -> None:
    """A tool that ignores its cancellation must not keep the process."""

    def end() -> None:
        time.sleep(after_s)
        out.finish(DRAIN_TIMEOUT_S)
        os._exit(status)

    threading.Thread(target=end, daemon=True).start()


async def _serve(mcp: FastMCP[Any], wire: ClaimedStdio, left: Handover) -> int:
    ended = _Signals()  # first: from here on a signal ends it quietly
    pending = Pending()
    out = Output(wire.writing, pending, left.unwritten)
    messages = Input(wire.reading, pending, out, left.unread)
    out.when_nobody_reads = messages.end
    token = set_transport("stdio")
    try:
        await serve_streams(mcp, messages, out)
    except BaseException:  # torn down in the middle, the SDK's tasks complain in several ways
        if not ended.status:
            raise
    finally:
        reset_transport(token)
        _end_anyway(out, ended.status, EXIT_GRACE_S)
        out.finish(EXIT_GRACE_S if ended.status else DRAIN_TIMEOUT_S)
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
