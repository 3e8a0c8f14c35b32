"""A model on loopback that plays a script for real coding agents: no account, no network.

Steps are played anew for each message of the user: `{"write": NAME, "text": TEXT}`,
`{"run": COMMAND}`, `{"say": TEXT}` (ends the turn; a script without one ends with "Done."),
`{"fail": STATUS}`. It speaks the Anthropic Messages API (Claude Code) and the OpenAI Responses API
(Codex).
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = dict[str, Any]
API_KEY = "sk-test-none-0123456789abcdef"
_PLACE = re.compile(r"[Ww]orking directory:\s*(\S+?)(?:\\n|\s|\")")


class ScriptModel(ThreadingHTTPServer):
    """`steps` may be replaced between tasks; `results` is what programs said about their steps."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.steps: list[Step] = []
        self.results: list[str] = []
        self.requests: list[str] = []  # the whole conversation, as it was sent

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def step(self, done: int) -> Step:
        """The step after so many results."""
        step = self.steps[done] if done < len(self.steps) else {"say": "Done."}
        if "wait" in step:
            time.sleep(step["wait"])
        return step

    def for_claude(self, body: dict[str, Any]) -> Step | dict[str, Any]:
        """The next block of a message, or a step that fails."""
        messages = body.get("messages", [])
        if not any(tool.get("name") == "Bash" for tool in body.get("tools") or []):
            return {"type": "text", "text": "ok"}  # an errand of the client's own
        self.requests.append(json.dumps(messages))
        done = 0
        for message in reversed(messages):
            content = message["content"]
            parts = content if isinstance(content, list) else []
            results = [part for part in parts if part.get("type") == "tool_result"]
            if message["role"] == "user" and not results:
                break
            self.results += [json.dumps(part.get("content")) for part in results]
            done += len(results)
        step = self.step(done)
        if "fail" in step:
            return step
        if "write" in step:
            place = _PLACE.search(json.dumps(body.get("system", "")) + json.dumps(messages))
            path = f"{place[1] if place else '.'}/{step['write']}"
            given = {"file_path": path, "content": step["text"]}
            return {"type": "tool_use", "id": new_id("toolu"), "name": "Write", "input": given}
        if "run" in step:
            given = {"command": step["run"], "description": "step"}
            return {"type": "tool_use", "id": new_id("toolu"), "name": "Bash", "input": given}
        return {"type": "text", "text": step["say"]}

    def for_codex(self, body: dict[str, Any]) -> Step | dict[str, Any]:
        """The next item of a response, or a step that fails."""
        rows = body.get("input", [])
        self.requests.append(json.dumps(rows))
        done = 0
        for row in reversed(rows):
            if row.get("role") == "user":
                break
            if row.get("type", "").endswith("_output"):
                self.results.append(json.dumps(row.get("output")))
                done += 1
        names = [tool.get("name") or tool.get("type") for tool in body.get("tools") or []]
        step = self.step(done) if names else {"say": "ok"}
        if "fail" in step:
            return step
        command = step.get("run")
        if "write" in step:
            command = f"cat > {step['write']} <<'END'\n{step['text'].rstrip()}\nEND"
        if command is None:
            said = [{"type": "output_text", "text": step["say"]}]
            return {"type": "message", "id": "m1", "role": "assistant", "content": said}
        tool = next(n for n in ("exec_command", "shell_command", "shell") if n in names)
        given = {"exec_command": {"cmd": command}, "shell_command": {"command": command}}
        arguments = json.dumps(given.get(tool, {"command": ["bash", "-lc", command]}))
        call = {"id": f"fc_{done}", "call_id": f"call_{done}", "name": tool, "arguments": arguments}
        return {"type": "function_call", **call}


def new_id(kind: str) -> str:
    """Messages with one id are one message for a program that reads its conversation again."""
    return f"{kind}_{uuid.uuid4().hex[:16]}"


@contextmanager
def script_model() -> Iterator[ScriptModel]:
    """A model that is there for the length of a block."""
    model = ScriptModel()
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
    server: ScriptModel

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        self._send(200, b'{"data": [], "models": []}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if "count_tokens" in self.path:
            return self._send(200, b'{"input_tokens": 10}')
        codex = "/responses" in self.path
        answer = self.server.for_codex(body) if codex else self.server.for_claude(body)
        if "fail" in answer:
            error = {"type": "overloaded_error", "message": "scripted"}
            return self._send(
                answer["fail"], json.dumps({"type": "error", "error": error}).encode()
            )
        events = _response(answer) if codex else _message(body, answer)
        if not codex and not body.get("stream"):
            message = {**events[0]["message"], "content": [answer], "stop_reason": _stop(answer)}
            return self._send(200, json.dumps(message).encode())
        text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
        return self._send(200, text.encode(), "text/event-stream")

    def _send(self, status: int, data: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _stop(block: dict[str, Any]) -> str:
    return "tool_use" if block["type"] == "tool_use" else "end_turn"


def _message(body: dict[str, Any], block: dict[str, Any]) -> list[dict[str, Any]]:
    usage = {"input_tokens": 100, "output_tokens": 20}
    message = {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "m"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    if block["type"] == "tool_use":
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        empty = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    ending = {"stop_reason": _stop(block), "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ending, "usage": usage},
        {"type": "message_stop"},
    ]


def _response(item: dict[str, Any]) -> list[dict[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
    ]
