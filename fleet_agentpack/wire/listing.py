"""Makes `listing.json`, the answers that the front gives before FastMCP is imported.

    python -m fleet_agentpack.wire.listing

The answers are the server's own, taken apart: a frame for each, and the items of each domain.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import anyio
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from fleet_agentpack import domains as rooms
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.private import serve_streams
from fleet_agentpack.kit.project import FoundProject
from fleet_agentpack.settings import Directories, Settings
from fleet_agentpack.wire.known_shapes import MODERN
from fleet_agentpack.wire.provider import Services, uri_of
from fleet_agentpack.wire.recorded import LISTINGS, PATH, Note
from fleet_agentpack.wire.selection import Choice, Selection
from fleet_agentpack.wire.server import build_server
from fleet_agentpack.wire.stdio import encoded

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from mcp_types import JSONRPCMessage

    from fleet_agentpack.wire.provider import DomainTools


class Request(NamedTuple):
    """A request of a client."""

    method: str
    params: dict[str, Any]


_HANDSHAKE_VERSION = HANDSHAKE_PROTOCOL_VERSIONS[-1]
_CLIENT = {"name": "listing", "version": "0"}
ENVELOPE = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": _CLIENT,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}
PLACE = FoundProject(reason="nobody asked")
NAMES = {name: name.split("/")[-2] for name in LISTINGS} | {
    "resources/templates/list": "resourceTemplates"
}


def initialize(version: str) -> Request:
    """A handshake."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": _CLIENT}
    return Request("initialize", params)


def results(
    selection: Selection, home: Path, requests: Sequence[Request], project: Path | None = None
) -> list[str]:
    """What a server for a user with nothing installed answers, each result as it is written."""
    chosen = dataclasses.replace(_settings(home), project=project, **selection._asdict())
    return asyncio.run(_results(build_server(chosen), requests))


def _settings(home: Path) -> Settings:
    dirs = Directories(*(home / each for each in ("config", "state", "cache", "data")))
    return Settings(
        environ={"HOME": str(home)},
        cwd=home,
        home=home,
        directories=dirs,
        no_project=PLACE.reason,
    )


async def _results(mcp: FastMCP[Any], requests: Sequence[Request]) -> list[str]:
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCRequest

    to_server, reading = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    writing, from_server = anyio.create_memory_object_stream[SessionMessage](1)
    found = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_streams, mcp, reading, writing)
        for method, params in requests:
            request = JSONRPCRequest(jsonrpc="2.0", id=0, method=method, params=params)
            await to_server.send(SessionMessage(request))
            found.append(_result((await from_server.receive()).message))
        await to_server.aclose()
        await from_server.aclose()
    return found


def _result(message: JSONRPCMessage) -> str:
    text = encoded(message).decode()
    opening = '{"jsonrpc":"2.0","id":0,"result":'
    if not text.startswith(opening):
        raise ValueError(f"the server refused a listing: {text}")
    return text.removeprefix(opening).removesuffix("}")


class _Listed(TypedDict):
    frame: str
    items: dict[str, list[str]]  # by domain


def _facts(domain: DomainTools) -> dict[str, str | list[str]]:
    """What the front has to know of a domain, also which files tell of its installed tools."""
    with tempfile.TemporaryDirectory() as home:
        services = Services(_settings(Path(home)))
        sources = domain.catalogue(services.get(domain)).sources() if domain.catalogue else ()
        below = [str(Path(path).relative_to(home)) for path in sources]
    return {
        "server_name": domain.server_name,
        "instructions": domain.instructions,
        "sources": below,
        "prompt_folder": domain.prompt_folder,
    }


def _era(
    first: Request, params: dict[str, Any], chosen: dict[str, DomainTools]
) -> dict[str, str | _Listed]:
    """The answers of one era, as templates and items."""
    requests = [first, *(Request(method, params) for method in LISTINGS)]
    with tempfile.TemporaryDirectory() as home:
        by_domain = {
            name: results(Selection((name,)), Path(home), requests) for name in rooms.ROOMS
        }
    name, domain = next(iter(chosen.items()))
    opening, *lists = by_domain[name]
    recorded: dict[str, str | _Listed] = {first[0]: _template(opening, domain)}
    for number, (method, text) in enumerate(zip(LISTINGS, lists, strict=True), 1):
        every = {each: json.loads(found[number]) for each, found in by_domain.items()}
        recorded[method] = {
            "frame": _frame(text, domain, NAMES[method]),
            "items": {
                each: [_text(item) for item in found[NAMES[method]]]
                for each, found in every.items()
                if found[NAMES[method]]
            },
        }
    return recorded


def _frame(text: str, domain: DomainTools, key: str) -> str:
    items = f'"{key}":{_text(json.loads(text)[key])}'
    before, after = text.split(items)
    return f'{_template(before, domain)}"{key}":[%(items)s]{_template(after, domain)}'


def _template(text: str, domain: DomainTools) -> str:
    """An answer with places for what differs between selections."""
    marked = text.replace("%", "%%")
    everything = Choice(Selection(), domain.facts())
    instructions = everything.instructions({domain.name: domain.instructions}, PLACE.sentence)
    for name, before, value in (
        ("instructions", '"instructions":', instructions),
        ("version", '"protocolVersion":', _HANDSHAKE_VERSION),
        ("name", '{"name":', domain.server_name),
    ):
        marked = marked.replace(before + _text(value).replace("%", "%%"), f"{before}%({name})s")
    return marked


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _notes(domain: DomainTools, method: str) -> list[Note]:
    """What the front has to know to choose from a domain's items, in their order."""
    if method == "tools/list":
        return [tool.note for tool in domain.tools.values()]
    if method == "prompts/list":
        return [Note(needs=list(each)) if each else Note() for each in domain.needs.values()]
    kind = ResourceTemplate if method == "resources/templates/list" else Resource
    listed = [each for each in domain.resources if isinstance(each, kind)]
    texts = [domain.texts.get(uri_of(each)) for each in listed]
    return [Note(description=text) if text else Note() for text in texts]


def text() -> str:
    """The file as it should be: everything that the front needs to know."""
    chosen = dict(zip(rooms.ROOMS, rooms.select(), strict=True))
    handshake = initialize(_HANDSHAKE_VERSION)
    known = {
        "server_name": rooms.SERVER_NAME,
        "domains": {name: _facts(domain) for name, domain in chosen.items()},
        "versions": [*HANDSHAKE_PROTOCOL_VERSIONS],
        "notes": {
            method: {
                name: notes for name, each in chosen.items() if (notes := _notes(each, method))
            }
            for method in LISTINGS
        },
        "legacy": _era(handshake, {}, chosen),
        "modern": _era(Request("server/discover", ENVELOPE), ENVELOPE, chosen),
    }
    return json.dumps(known, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    write_atomic(Path(PATH), text())
