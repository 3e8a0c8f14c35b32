"""Servers that are reached at an address: which addresses, and whether one answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote, urlsplit

from fleet_agentpack.connect.check import (
    HELLO,
    PROTOCOL,
    Checked,
    CheckError,
    Initialized,
    ToolPage,
)
from fleet_agentpack.connect.client import Remote
from fleet_agentpack.connect.errors import ConnectError
from fleet_agentpack.kit.http import Answer, Http, HttpError, Limits
from fleet_agentpack.kit.shapes import convert

T = TypeVar("T")
SESSION = "mcp-session-id"
_REFUSALS = {
    401: "it requires a token: --token-env NAME says which variable holds it; when it starts, the"
    " server says in which file it keeps its own",
    403: "it refuses this address",
    404: "there is no MCP server at this path; ours is at /mcp",
    421: "it does not accept this host name: start it with --allowed-host NAME",
}


def address(url: str, project: str = "") -> str:
    """An address as clients get it; ours is at /mcp. Raises `ConnectError` for what is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise ConnectError(
            f"{url!r} is not an address of a server", "Give one such as http://127.0.0.1:3000/mcp"
        )
    path = "/mcp" if parts.path in ("", "/") else parts.path
    named = f"project={quote(project, safe='/${}')}" if project else ""
    query = "&".join(filter(None, [parts.query, named]))
    return parts._replace(path=path, query=query, fragment="").geturl()


def check_remote(remote: Remote, environ: Mapping[str, str], timeout_s: float = 20.0) -> Checked:
    """Shake hands with the server at an address and list its tools. Raises `CheckError`."""
    return asyncio.run(_ask(remote, environ.get(remote.token_env, ""), timeout_s))


async def _ask(remote: Remote, token: str, timeout_s: float) -> Checked:
    http = Http(Limits(deadline_s=timeout_s, attempts=1))
    started = time.perf_counter()
    session: dict[str, str] = {}

    async def request(method: str, params: Mapping[str, object], number: int | None) -> Answer:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        answer = await http.request(
            "POST",
            remote.url,
            json=message if number is None else {**message, "id": number},
            headers={"accept": "application/json, text/event-stream", **session},
            credentials=_bearer(token),
        )
        if not answer.is_success:
            why = _REFUSALS.get(answer.status, answer.reason)
            raise CheckError(f"{remote.url} answered {answer.status}: {why}")
        return answer

    try:
        hello = await request("initialize", HELLO, 1)
        greeting = _result(hello, Initialized)
        session = {"mcp-protocol-version": PROTOCOL}
        if SESSION in hello.headers:
            session[SESSION] = hello.headers[SESSION]
        await request("notifications/initialized", {}, None)
        page = _result(await request("tools/list", {}, 2), ToolPage)
        if SESSION in session:
            await http.request("DELETE", remote.url, headers=session, credentials=_bearer(token))
    except HttpError as error:
        raise CheckError(f"nothing answers at {remote.url}: {error}") from error
    finally:
        await http.close()
    names = tuple(tool.name for tool in page.tools)
    return Checked(greeting.serverInfo.name, names, time.perf_counter() - started)


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def _result(answer: Answer, shape: type[T]) -> T:
    """The result in an answer, which is JSON or the last event of a stream."""
    text = answer.body.decode("utf-8", "replace")
    data = [line[len("data:") :] for line in text.splitlines() if line.startswith("data:")]
    try:
        message = json.loads(data[-1] if data else text)
        if "error" in message:
            raise CheckError(str(message["error"].get("message", "it refused")))
        return convert(shape, message["result"])
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckError("its answer does not follow MCP") from error
