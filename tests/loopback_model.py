"""A model on loopback for real coding agents: no account, no network.

It speaks as much of the Anthropic Messages API as Claude Code needs, and of the OpenAI Responses
API as Codex does. What it says is a subclass's.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

API_KEY = "sk-test-none-0123456789abcdef"
CODEX = """
model = "scripted"
model_provider = "loopback"
[model_providers.loopback]
name = "loopback"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "LOOPBACK_KEY"
request_max_retries = 0
stream_max_retries = 0
"""

Answer = dict[str, Any]  # a block or an item as its API has it, or `{"fail": STATUS}`
M = TypeVar("M", bound="LoopbackModel")


class LoopbackModel(ThreadingHTTPServer):
    """Answers every request with what a subclass says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def environ(self) -> dict[str, str]:
        """What makes the programs use this model, and leave the network alone."""
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": API_KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "DISABLE_AUTOUPDATER": "1",
            "LOOPBACK_KEY": API_KEY,
        }

    @property
    def codex_config(self) -> str:
        """Codex' own configuration for this model."""
        return CODEX.format(url=self.url)

    def for_claude(self, request: dict[str, Any]) -> Answer:
        """The next block of a message."""
        raise NotImplementedError

    def for_codex(self, request: dict[str, Any]) -> Answer:
        """The next item of a response."""
        raise NotImplementedError


@contextmanager
def listening(model: M) -> Iterator[M]:
    """A model that is there for the length of a block."""
    thread = threading.Thread(target=model.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.shutdown()
        model.server_close()
        thread.join(5)


def text_block(text: str) -> Answer:
    """What Claude Code is told."""
    return {"type": "text", "text": text}


def text_item(text: str) -> Answer:
    """What Codex is told."""
    said = [{"type": "output_text", "text": text}]
    return {"type": "message", "id": "m1", "role": "assistant", "content": said}


def tool_use(name: str, given: dict[str, Any]) -> Answer:
    """A tool that Claude Code is to use."""
    return {"type": "tool_use", "id": new_id("toolu"), "name": name, "input": given}


def new_id(kind: str) -> str:
    """Messages with one id are one message for a program that reads its conversation again."""
    return f"{kind}_{uuid.uuid4().hex[:16]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LoopbackModel

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        self._send(200, b'{"data": [], "models": []}')

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if "count_tokens" in self.path:
            return self._send(200, b'{"input_tokens": 10}')
        codex = "/responses" in self.path
        answer = self.server.for_codex(request) if codex else self.server.for_claude(request)
        if "fail" in answer:
            error = {"type": "overloaded_error", "message": "scripted"}
            failure = json.dumps({"type": "error", "error": error})
            return self._send(answer["fail"], failure.encode())
        message = _message(request)
        if not codex and not request.get("stream"):
            whole = {**message, "content": [answer], **_ending(answer)}
            return self._send(200, json.dumps(whole).encode())
        events = _response(answer) if codex else _stream(message, answer)
        text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
        return self._send(200, text.encode(), "text/event-stream")

    def _send(self, status: int, data: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _message(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": request.get("model", "scripted"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 20},
    }


def _ending(block: Answer) -> dict[str, Any]:
    stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
    return {"stop_reason": stop, "stop_sequence": None}


def _stream(message: dict[str, Any], block: Answer) -> list[dict[str, Any]]:
    if block["type"] == "tool_use":
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        empty = text_block("")
        delta = {"type": "text_delta", "text": block["text"]}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": _ending(block), "usage": message["usage"]},
        {"type": "message_stop"},
    ]


def _response(item: Answer) -> list[dict[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
    ]
