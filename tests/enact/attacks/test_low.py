"""Small things that ended in an internal error: names that are no text, deep output, twins."""

from __future__ import annotations

import json
import tarfile
import unicodedata
from pathlib import Path

import pytest
from fastmcp import Client

from fleet_agentpack.enact.bundle import BundleError, unpack
from fleet_agentpack.server import build_server
from fleet_agentpack.settings import Settings
from tests.enact.attacks.publisher import NAME, attack, publish
from tests.enact.kit import needs_bwrap, refused, tar_bytes


@pytest.mark.parametrize("name", ["a\udcff.txt", "a\u202etxt", "a\x1b[0m"])
def test_a_name_that_is_no_plain_text_is_refused(name: str) -> None:
    info = tarfile.TarInfo(name)
    with pytest.raises(BundleError) as refusal:
        unpack(tar_bytes({name: info}))
    str(refusal.value).encode()


def test_two_forms_of_one_name_are_refused() -> None:
    one, other = (unicodedata.normalize(form, "é.txt") for form in ("NFC", "NFD"))
    with pytest.raises(BundleError, match="twice"):
        unpack(tar_bytes({one: "a", other: "b"}))


DEEP = "print('[' * 900 + ']' * 900)"


@needs_bwrap
def test_deep_output_is_text(home: Path) -> None:
    assert attack(home, DEEP).output == "[" * 900 + "]" * 900 + "\n"


@needs_bwrap
def test_deep_output_does_not_fit_a_schema(home: Path) -> None:
    with refused("OUTPUT_INVALID"):
        attack(home, DEEP, outputSchema={"type": "array"})


@needs_bwrap
@pytest.mark.parametrize("text", ["[NaN]", '{"a": Infinity}', "[1e999]", '["\\ud800"]'])
async def test_json_that_is_none_is_text(home: Path, text: str) -> None:
    """What cannot be written as JSON again would break the client's connection."""
    publish(home, f"print({text!r})").install(NAME)
    async with Client(build_server(Settings.read())) as client:
        for name, given in (("eve__tool", {}), ("enact__run", {"tool": NAME})):
            result = await client.call_tool(name, given, raise_on_error=False)
            assert "INTERNAL_ERROR" not in str(result.structured_content)
            sent = json.dumps(result.structured_content, allow_nan=False, ensure_ascii=False)
            assert sent.encode()


@needs_bwrap
def test_a_value_that_is_too_long_for_a_program_is_told_so(home: Path) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    fields = {"scripts": {"run": {"command": "echo {{text}}", "inputSchema": schema}}}
    with refused("INVALID_ARGUMENTS") as refusal:
        attack(home, "", {"text": "x" * 200_000}, **fields)
    assert "x-stdin" in str(refusal.error.payload())
