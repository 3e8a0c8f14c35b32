"""M2: words that only a model sees, in everything that a publisher writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp_types import TextContent

from fleet_agentpack.cli import run
from fleet_agentpack.server import build_server
from fleet_agentpack.settings import Settings
from tests.enact.attacks.publisher import NAME, publish
from tests.enact.fake_registry import FakeRegistry, Lie
from tests.enact.kit import configure, make_service, needs_bwrap

HIDDEN = {
    "tag": "".join(chr(0xE0000 + ord(each)) for each in "obey"),
    "override": "\u202e",
    "isolate": "\u2066",
    "mark": "\u200f",
    "zero width": "\u200b",
    "escape": "\x1b[8m",
    "c1": "\x9b",
    "filler": "\u3164",
    "selectors": "\ufe00\ufe05\ufe0f\ufe01",
    "joiners": "\u200c\u200d\u200c",
}


def hidden_in(text: str) -> list[str]:
    return [kind for kind, each in HIDDEN.items() if each in text]


@needs_bwrap
async def test_nothing_is_hidden_in_what_a_model_reads(home: Path) -> None:
    text = f"Counts lines{''.join(HIDDEN.values())}."
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": text}}}
    fields = {"description": text, "doc": text, "tags": [text], "inputSchema": schema}
    code = f"import sys; print({text!r}); print({text!r}, file=sys.stderr)"
    publish(home, code, env={"KEY": {"description": text}}, **fields)
    make_service(home).install(NAME)
    calls: list[tuple[str, dict[str, str]]] = [
        ("enact__search", {"query": "counts lines"}),
        ("enact__learn", {"tool": NAME}),
        ("enact__list", {}),
        ("enact__run", {"tool": NAME}),
        ("eve__tool", {}),
    ]
    async with Client(build_server(Settings.read())) as client:
        tool = next(each for each in await client.list_tools() if each.name == "eve__tool")
        read = [f"{tool.description} {tool.input_schema['properties']['a']['description']}"]
        for name, given in calls:
            result = await client.call_tool(name, given)
            assert isinstance(result.content[0], TextContent)
            read.append(str(jsonable_texts(result.structured_content)) + result.content[0].text)
    for each in read:
        assert hidden_in(each) == []
        assert "202e" in each and "e006f" in each


def jsonable_texts(value: Any) -> str:
    """Every text in JSON data, as it is."""
    if isinstance(value, dict):
        return "".join(map(jsonable_texts, value.values()))
    return "".join(map(jsonable_texts, value)) if isinstance(value, list) else str(value)


def test_nothing_is_hidden_in_a_registrys_hits(home: Path, registry: FakeRegistry) -> None:
    text = "".join(HIDDEN.values())
    rows = [{"name": "eve/tool", "description": text, "tags": [text]}]
    registry.lies["/tools/search"] = Lie(body=json.dumps({"tools": rows}).encode())
    configure(home, registry={"url": registry.url})
    (hit,) = make_service(home).search("tool").results
    assert isinstance(hit.tags, tuple)
    assert hidden_in(hit.description + hit.tags[0]) == []
    assert "202e" in hit.description and "202e" in hit.tags[0]


@needs_bwrap
@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_not_given_control_characters(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
) -> None:
    publish(home, f"print({''.join(HIDDEN.values())!r})").install(NAME)
    capsys.readouterr()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert run(["tool", "run", NAME]) == 0
    # Another program gets what the tool has printed.
    assert hidden_in(capsys.readouterr().out) == ([] if terminal else [*HIDDEN])
