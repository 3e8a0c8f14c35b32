"""Writes what a live Coder answers to a cassette, scrubbed by an allow-list."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.fleet.lab.lab import Lab
from tests.fleet.stage import HOST, PROJECT
from tests.rig import SESSION_TOKEN

HEADERS = {
    "content-type",
    "link",
    "location",
    "retry-after",
    "www-authenticate",
    "x-coder-build-version",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
}
WEB_PUSH_KEY = re.compile(r'("webpush_public_key":")[^"]*')
WAIT_S = 60.0
SPEC = "Keep the build green"

Check = Callable[[httpx.Response], bool]


class Tape:
    """A conversation with Coder as it is recorded."""

    def __init__(self, lab: Lab, title: str) -> None:
        self.lab, self._title = lab, title
        self._interactions: list[dict[str, Any]] = []
        self.http = httpx.AsyncClient(base_url=lab.url, timeout=60)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = "ours",
        keep: bool = True,
        params: dict[str, Any] | None = None,
    ) -> httpx.Response:
        """Send a request, and record it unless it is only there to set the scene."""
        given = self.lab.token if token == "ours" else token
        headers = {}
        if given and path.startswith("/@"):
            headers["Cookie"] = f"coder_session_token={given}"
        elif given:
            headers["Coder-Session-Token"] = given
        self.http.cookies.clear()
        answer = await self.http.request(method, path, json=body, headers=headers, params=params)
        if keep:
            self._note(answer, body, answer.text)
        return answer

    async def poll(self, path: str, done: Check, *, every: float = 0.1, keep: bool = True) -> Any:
        """Ask until an answer will do; answers that repeat the one before are dropped."""
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while True:
            answer = await self.ask("GET", path, keep=keep)
            try:
                if done(answer):
                    return answer
            except (ValueError, KeyError, IndexError, TypeError):
                pass
            assert asyncio.get_running_loop().time() < deadline, f"{path}: {answer.text[:300]}"
            await asyncio.sleep(every)

    async def metadata(self, agent_id: str, having: str = '"collected_at":"2') -> None:
        """The first event of an agent's metadata stream that has values, or a certain one."""
        path = f"/api/v2/workspaceagents/{agent_id}/watch-metadata"
        headers = {"Coder-Session-Token": self.lab.token}
        while True:
            text = ""
            async with self.http.stream("GET", path, headers=headers) as answer:
                async for line in answer.aiter_lines():
                    text += line + "\n"
                    if line.startswith("data:"):
                        break
            if having in text:
                self._note(answer, None, text + "\n")
                return
            await asyncio.sleep(0.5)

    async def template(self, name: str, *, keep: bool = False) -> Any:
        """A template by its name."""
        path = f"/api/v2/organizations/default/templates/{name}"
        return (await self.ask("GET", path, keep=keep)).json()

    async def create(
        self, name: str, project: str = PROJECT, spec: str = SPEC, *, keep: bool = False
    ) -> Any:
        """Ask for an agent's workspace."""
        template = await self.template(project, keep=keep)
        values = {"agent_role": "coder", "agent_spec": spec}
        body = {
            "name": name,
            "template_id": template["id"],
            "rich_parameter_values": [{"name": k, "value": v} for k, v in values.items()],
        }
        made = await self.ask("POST", "/api/v2/users/me/workspaces", body, keep=keep)
        assert made.status_code == 201, made.text
        return made.json()

    async def ready(self, name: str, project: str = PROJECT, spec: str = SPEC) -> tuple[Any, str]:
        """An agent that is idle, and where its AgentAPI is."""
        made = await self.create(name, project, spec)
        await self.poll(f"/api/v2/users/me/workspace/{name}", said("idle"), keep=False)
        app = f"/@fleet/{name}.main/apps/claude-code"
        await self.poll(f"{app}/status", is_status("stable"), keep=False)
        return made, app

    async def look(self, name: str) -> Any:
        """A workspace and its build's parameters."""
        found = (await self.ask("GET", f"/api/v2/users/me/workspace/{name}")).json()
        await self.ask("GET", f"/api/v2/workspacebuilds/{found['latest_build']['id']}/parameters")
        return found

    async def say(self, app: str, content: str, kind: str = "user", *, keep: bool = True) -> Any:
        """A message to an AgentAPI."""
        body = {"content": content, "type": kind}
        return await self.ask("POST", f"{app}/message", body, keep=keep)

    async def remove(self, name: str, *, keep: bool = False) -> None:
        """Delete a workspace if it is there."""
        found = await self.ask("GET", f"/api/v2/users/me/workspace/{name}", keep=False)
        if found.status_code == 200:
            path = f"/api/v2/workspaces/{found.json()['id']}"
            await self.ask("POST", f"{path}/builds", {"transition": "delete"}, keep=keep)
            await self.poll(path, lambda answer: answer.status_code == 410, keep=keep)

    async def save(self, path: Path) -> None:
        """Write the cassette."""
        await self.http.aclose()
        data = {"version": 1, "title": self._title, "interactions": self._interactions}
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=10**6)
        path.write_text(text, encoding="utf-8")

    def _note(self, answer: httpx.Response, body: Any, text: str) -> None:
        new = {
            "request": {
                "method": answer.request.method,
                "uri": self._scrub(str(answer.request.url)),
                "body": None if body is None else json.dumps(body, ensure_ascii=False),
                "headers": {},
            },
            "response": {
                "status": {"code": answer.status_code, "message": answer.reason_phrase},
                "headers": {
                    name: [self._scrub(value)]
                    for name, value in answer.headers.items()
                    if name in HEADERS
                },
                "body": {"string": self._scrub(text)},
            },
        }
        if not self._interactions or self._interactions[-1] != new:
            self._interactions.append(new)

    def _scrub(self, text: str) -> str:
        host = self.lab.url.removeprefix("http://")
        text = text.replace(self.lab.url, HOST).replace(host, HOST.removeprefix("https://"))
        text = text.replace(str(self.lab.folder), "/home/coder/lab")
        text = WEB_PUSH_KEY.sub(r"\1SCRUBBED", text)  # public, but long enough to look like a token
        return SESSION_TOKEN.sub("SCRUBBED", text)


def said(state: str) -> Check:
    """Whether a workspace's agent reported a state."""
    return lambda answer: answer.json()["latest_app_status"]["state"] == state


def is_status(status: str) -> Check:
    """Whether AgentAPI has a status."""
    return lambda answer: answer.json()["status"] == status


def job_is(*states: str) -> Check:
    """Whether a build's job is in one of these states."""
    return lambda answer: answer.json()["job"]["status"] in states


def agent_is(*states: str) -> Check:
    """Whether a workspace's agent is in one of these states."""
    return lambda answer: agents(answer.json())[0]["status"] in states


def lifecycle_is(state: str) -> Check:
    """Whether a workspace's agent has come to a state of its life."""
    return lambda answer: agents(answer.json())[0]["lifecycle_state"] == state


def agents(workspace: Any) -> list[Any]:
    """The agents of a workspace."""
    resources = workspace["latest_build"]["resources"]
    return [agent for resource in resources for agent in resource.get("agents") or []]
