"""A model that plays a script for real coding agents.

Steps are played anew for each message of the user: `{"write": NAME, "text": TEXT}`,
`{"run": COMMAND}`, `{"say": TEXT}` (ends the turn; a script without one ends with "Done."),
`{"fail": STATUS}`.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import AbstractContextManager
from typing import Any

from tests.loopback_model import Answer, LoopbackModel, listening, text_block, text_item, tool_use

Step = dict[str, Any]
_PLACE = re.compile(r"[Ww]orking directory:\s*(\S+?)(?:\\n|\s|\")")


class ScriptModel(LoopbackModel):
    """`steps` may be replaced between tasks; `results` is what programs said about their steps."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.results: list[str] = []
        self.requests: list[str] = []  # the whole conversation, as it was sent

    def step(self, done: int) -> Step:
        """The step after so many results."""
        step = self.steps[done] if done < len(self.steps) else {"say": "Done."}
        if "wait" in step:
            time.sleep(step["wait"])
        return step

    def for_claude(self, request: dict[str, Any]) -> Answer:
        """The next block of a message, or a step that fails."""
        messages = request.get("messages", [])
        if not any(tool.get("name") == "Bash" for tool in request.get("tools") or []):
            return text_block("ok")  # an errand of the client's own
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
            place = _PLACE.search(json.dumps(request.get("system", "")) + json.dumps(messages))
            path = f"{place[1] if place else '.'}/{step['write']}"
            return tool_use("Write", {"file_path": path, "content": step["text"]})
        if "run" in step:
            return tool_use("Bash", {"command": step["run"], "description": "step"})
        return text_block(step["say"])

    def for_codex(self, request: dict[str, Any]) -> Answer:
        """The next item of a response, or a step that fails."""
        rows = request.get("input", [])
        self.requests.append(json.dumps(rows))
        done = 0
        for row in reversed(rows):
            if row.get("role") == "user":
                break
            if row.get("type", "").endswith("_output"):
                self.results.append(json.dumps(row.get("output")))
                done += 1
        names = [tool.get("name") or tool.get("type") for tool in request.get("tools") or []]
        step = self.step(done) if names else {"say": "ok"}
        if "fail" in step:
            return step
        command = step.get("run")
        if "write" in step:
            command = f"cat > {step['write']} <<'END'\n{step['text'].rstrip()}\nEND"
        if command is None:
            return text_item(step["say"])
        tool = next(n for n in ("exec_command", "shell_command", "shell") if n in names)
        given = {"exec_command": {"cmd": command}, "shell_command": {"command": command}}
        arguments = json.dumps(given.get(tool, {"command": ["bash", "-lc", command]}))
        call = {"id": f"fc_{done}", "call_id": f"call_{done}", "name": tool, "arguments": arguments}
        return {"type": "function_call", **call}


def script_model() -> AbstractContextManager[ScriptModel]:
    """A model that is there for the length of a block."""
    return listening(ScriptModel())
