"""A model on loopback that calls one tool and then says that it is done, for real MCP clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

API_KEY = "sk-test-none-0123456789abcdef"


class ScriptedModel(ThreadingHTTPServer):
    """Speaks as much of the Messages API as Claude Code needs, and of the Responses API as Codex
    does; `results` is what the tool said, `called` whether it was there to be called, `asked` how
    often the person said something, `said` all that Claude Code sent as the person's words.
    """

    daemon_threads = True

    def __init__(self, tool: str, arguments: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tool, self.arguments = tool, arguments
        self.results: list[dict[str, Any]] = []
        self.asked, self.called, self.said = 0, False, ""

    @property
    def environ(self) -> dict[str, str]:
        """What makes Claude Code use this model, and leave the network alone."""
        return {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.server_port}",
            "ANTHROPIC_API_KEY": API_KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def next_block(self, request: dict[str, Any]) -> dict[str, Any]:
        """The tool call, once it is offered, and after its result the last word."""
        parts = [part for message in request.get("messages", []) for part in _parts(message)]
        results = [part for part in parts if part.get("type") == "tool_result"]
        self.said += "".join(f"{part['text']}\n" for part in parts if part.get("type") == "text")
        self.results += results
        offered = {tool.get("name") for tool in request.get("tools") or []}
        self.asked += bool(offered)  # requests without tools are the client's own errands
        if results or self.tool not in offered:
            return {"type": "text", "text": "All is done."}
        self.called = True
        return {"type": "tool_use", "id": "toolu_1", "name": self.tool, "input": self.arguments}

    def next_item(self, request: dict[str, Any]) -> dict[str, Any]:
        """The same for Codex, which has the tools of a server below its name."""
        rows = request.get("input", [])
        results = [row for row in rows if row.get("type") == "function_call_output"]
        self.results += results
        namespace, _, tool = self.tool.rpartition("__")
        offered = {row.get("name") for row in request.get("tools") or []}
        if results or namespace not in offered:
            said = [{"type": "output_text", "text": "All is done."}]
            return {"type": "message", "id": "m1", "role": "assistant", "content": said}
        self.called = True
        return {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "namespace": namespace,
            "name": tool,
            "arguments": json.dumps(self.arguments),
        }


@contextmanager
def scripted_model(tool: str, arguments: dict[str, Any]) -> Iterator[ScriptedModel]:
    """A model that is there for the length of a block."""
    model = ScriptedModel(tool, arguments)
    thread = threading.Thread(target=model.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.shutdown()
        model.server_close()
        thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedModel

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(b"")

    def do_GET(self) -> None:
        self._send(b'{"data": []}')

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if "count_tokens" in self.path:
            self._send(b'{"input_tokens": 1}')
            return
        if "/responses" in self.path:
            self._stream_item(self.server.next_item(request))
            return
        block = self.server.next_block(request)
        message = _message(request.get("model", "scripted"))
        if not request.get("stream"):
            self._send(json.dumps({**message, "content": [block], **_ending(block)}).encode())
            return
        self._stream(_stream(message, block))

    def _stream_item(self, item: dict[str, Any]) -> None:
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        self._stream(
            [
                {"type": "response.created", "response": {"id": "resp_1"}},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
            ]
        )

    def _stream(self, events: list[dict[str, Any]]) -> None:
        text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
        self._send(text.encode(), "text/event-stream")

    def _send(self, data: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _message(model: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _ending(block: dict[str, Any]) -> dict[str, Any]:
    stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
    return {"stop_reason": stop, "stop_sequence": None}


def _stream(message: dict[str, Any], block: dict[str, Any]) -> list[dict[str, Any]]:
    if block["type"] == "tool_use":
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        empty = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": _ending(block), "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
