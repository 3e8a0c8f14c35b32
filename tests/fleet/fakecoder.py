"""A Coder in memory, made of recorded answers: any number of agents, any kind of trouble."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID, uuid5

import httpx

from tests.cassette import Cassette
from tests.fleet.stage import CASSETTES

SPACE = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
LONG_AGO = "2026-01-01T00:00:00Z"
JSON = {"content-type": "application/json; charset=utf-8"}


def recorded(cassette: str, path: str) -> Any:
    """The first recorded answer for a path, or for the end of one, as data or as text."""
    text = _recorded_text(cassette, path)
    return json.loads(text) if text.startswith(("{", "[")) else text


@cache
def _recorded_text(cassette: str, path: str) -> str:
    answers = Cassette.load(CASSETTES / f"{cassette}.yaml").answers
    found = next(
        answer
        for key, answer in answers.items()
        if "/".join(key[1]).endswith(path) and key[0] == "GET" and not key[2]
    )
    text: str = found[0]["body"]["string"]
    return text


def fleet_of(size: int) -> list[dict[str, Any]]:
    """Workspaces as the recording has them, each with ids and a name of its own."""
    pattern = json.dumps(recorded("list_agents", "/api/v2/users/me/workspace/alpha"))
    known = json.loads(pattern)
    build = known["latest_build"]["id"]
    agent = known["latest_build"]["resources"][0]["agents"][0]["id"]
    rows = []
    for number in range(size):
        text = pattern.replace(known["id"], str(uuid5(SPACE, f"workspace {number}")))
        text = text.replace(build, str(uuid5(SPACE, f"build {number}")))
        text = text.replace(agent, str(uuid5(SPACE, f"agent {number}")))
        row = {**json.loads(text), "name": f"agent-{number}"}
        row["latest_build"]["created_at"] = LONG_AGO
        rows.append(row)
    return rows


@dataclass
class FakeCoder(httpx.AsyncBaseTransport):
    """Answers what a fleet asks, from a list of workspaces."""

    workspaces: list[dict[str, Any]]
    busy: bool = False
    parameters: dict[str, str] = field(
        default_factory=lambda: {"agent_role": "coder", "agent_spec": "Keep the build green"}
    )
    trouble: Callable[[httpx.Request], Any] | None = None
    delay_s: float = 0.0
    requests: list[httpx.Request] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    deleted: Any = None  # the build that deleted a workspace last

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.delay_s)
            hindered = self.trouble(request) if self.trouble else None
            if isinstance(hindered, Exception):
                raise hindered
            if asyncio.iscoroutine(hindered):
                hindered = await hindered
            return hindered or self.answer(request)
        finally:
            self.at_once -= 1

    def answer(self, request: httpx.Request) -> httpx.Response:
        path, params = request.url.path, request.url.params
        if path == "/api/v2/workspaces":
            start, limit = int(params["offset"]), int(params["limit"])
            rows = self.workspaces[start : start + limit]
            return _json({"workspaces": rows, "count": len(self.workspaces)})
        if path.startswith("/api/v2/users/me/workspace/"):
            name = path.rsplit("/", 1)[1].lower()
            row = next((row for row in self.workspaces if row["name"] == name), None)
            return _json(row) if row else _json({"message": "Resource not found"}, 404)
        if path.endswith("/parameters"):
            return _json([{"name": k, "value": v} for k, v in self.parameters.items()])
        if path.endswith("/watch-metadata"):
            text = recorded("show_agent", METADATA)
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)
        if path.endswith("/status"):
            return _json({"status": "running" if self.busy else "stable"})
        if path.endswith("/message"):
            return self._message(json.loads(request.content))
        if path.endswith("/messages"):
            return _json({"messages": []})
        return _json({"message": "Route not found."}, 404)

    def _message(self, body: dict[str, str]) -> httpx.Response:
        if body["type"] == "raw":
            self.busy = False
        elif self.busy:
            told = "message can only be sent when the agent is waiting for user input"
            return _json({"title": "Internal Server Error", "errors": [{"message": told}]}, 500)
        else:
            self.busy = True
            self.messages.append(body)
        return _json({"ok": True})

    def report(self, name: str, state: str, message: str, moment: str) -> None:
        """Let an agent say something about itself."""
        row = next(row for row in self.workspaces if row["name"] == name)
        app = row["latest_build"]["resources"][0]["agents"][0]["apps"][0]
        status = {
            "id": str(uuid5(SPACE, f"{name} {state} {moment}")),
            "created_at": moment,
            "app_id": app["id"],
            "state": state,
            "message": message,
        }
        app["statuses"] = [status, *(app["statuses"] or [])]
        row["latest_app_status"] = copy.copy(status)


METADATA = "/watch-metadata"


def _json(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, headers=JSON, json=body)
