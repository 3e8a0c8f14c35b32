"""A model that calls one tool and then says that it is done, for real MCP clients."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any

from tests.loopback_model import Answer, LoopbackModel, listening, text_block, text_item, tool_use

LAST_WORD = "All is done."


class ScriptedModel(LoopbackModel):
    """`results` is what the tool said, `called` whether it was there to be called, `asked` how
    often the person said something, `said` all that Claude Code sent as the person's words.
    """

    def __init__(self, tool: str, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.tool, self.arguments = tool, arguments
        self.results: list[dict[str, Any]] = []
        self.asked, self.called, self.said = 0, False, ""

    def for_claude(self, request: dict[str, Any]) -> Answer:
        """The tool call, once it is offered, and after its result the last word."""
        parts = [part for message in request.get("messages", []) for part in _parts(message)]
        results = [part for part in parts if part.get("type") == "tool_result"]
        self.said += "".join(f"{part['text']}\n" for part in parts if part.get("type") == "text")
        self.results += results
        offered = {tool.get("name") for tool in request.get("tools") or []}
        self.asked += bool(offered)  # requests without tools are the client's own errands
        if results or self.tool not in offered:
            return text_block(LAST_WORD)
        self.called = True
        return tool_use(self.tool, self.arguments)

    def for_codex(self, request: dict[str, Any]) -> Answer:
        """The same for Codex, which has the tools of a server below its name."""
        rows = request.get("input", [])
        results = [row for row in rows if row.get("type") == "function_call_output"]
        self.results += results
        namespace, _, tool = self.tool.rpartition("__")
        offered = {row.get("name") for row in request.get("tools") or []}
        if results or namespace not in offered:
            return text_item(LAST_WORD)
        self.called = True
        call = {"id": "fc_1", "call_id": "call_1", "namespace": namespace, "name": tool}
        return {"type": "function_call", **call, "arguments": json.dumps(self.arguments)}


def scripted_model(tool: str, arguments: dict[str, Any]) -> AbstractContextManager[ScriptedModel]:
    """A model that is there for the length of a block."""
    return listening(ScriptedModel(tool, arguments))


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else [text_block(content)]
