"""M3: a schema whose references grow without bound, to hang the server."""

from __future__ import annotations

import contextlib
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from fleet_agentpack.enact import schemas
from fleet_agentpack.enact.bundle import LONGEST_HEADER, BundleError, unpack
from fleet_agentpack.enact.errors import EnactError
from tests.enact.attacks.publisher import NAME, publish
from tests.enact.kit import refused

DOUBLING = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
ENDLESS: dict[str, Any] = {"$defs": {**DOUBLING, "a40": {}}, "$ref": "#/$defs/a0"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", **ENDLESS},
        {"type": "object", "$defs": ENDLESS["$defs"], "properties": {"a": {"$ref": "#/$defs/a0"}}},
    ],
    ids=["whole", "property"],
)
@pytest.mark.parametrize("place", ["inputSchema", "outputSchema"])
def test_it_is_not_installed(home: Path, schema: dict[str, Any], place: str) -> None:
    started = time.monotonic()
    with refused("MANIFEST_INVALID"):
        publish(home, **{place: schema}).install(NAME)
    assert time.monotonic() - started < 20


def test_a_call_ends_soon_too() -> None:
    hidden = {"$defs": ENDLESS["$defs"], "items": {"$ref": "#/$defs/a0"}}
    started = time.monotonic()
    with pytest.raises(EnactError, match="too long"):
        schemas.check(NAME, hidden, [1])
    assert time.monotonic() - started < 20


def test_an_honest_schema_has_all_the_steps_it_needs() -> None:
    row = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    schema = {"type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": row}}
    assert schemas.check(NAME, schema, [{"n": 1}] * 5_000) == []


ROWS = [{"n": number} for number in range(30_000)]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "uniqueItems": True},
        {"type": "array", "items": {"enum": [{"m": number} for number in range(1_000)]}},
        {"type": "array", "items": {"not": {"required": [f"m{n}" for n in range(1_000)]}}},
        {"type": "array", "items": {"properties": {f"m{n}": {} for n in range(1_000)}}},
        {"type": "array", "items": {"dependentRequired": {f"m{n}": [] for n in range(1_000)}}},
        {"type": "array", "contains": {}, "unevaluatedItems": False},
    ],
    ids=["unique", "enum", "required", "properties", "dependent", "unevaluated"],
)
def test_nor_does_a_keyword_that_compares_everything_with_everything(
    schema: dict[str, Any],
) -> None:
    started = time.process_time()
    with contextlib.suppress(EnactError):
        schemas.check(NAME, schema, ROWS)
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("rows", "fine"),
    [
        ([1, 2, "1", True, [1], {"a": 1}], True),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ([1, 1.0], False),
        ([0, False], True),
        ([[0], [False]], True),
        ([{"a": [1]}, {"a": [1.0]}], False),
        (ROWS, True),
        ([*ROWS, {"n": 5}], False),
    ],
)
def test_unique_means_what_it_meant(rows: list[Any], fine: bool) -> None:
    assert (schemas.check(NAME, {"uniqueItems": True}, rows) == []) == fine


@pytest.mark.parametrize("place", ["inputSchema", "outputSchema"])
def test_a_schema_that_refers_elsewhere_is_not_installed(home: Path, place: str) -> None:
    """A client that follows it would fetch whatever the publisher says."""
    items = {"type": "array", "items": {"$ref": "https://evil.example.test/schema"}}
    schema = {"type": "object", "properties": {"a": items}}
    with refused("MANIFEST_INVALID"):
        publish(home, **{place: schema}).install(NAME)


@pytest.mark.parametrize("levels", [70, 300, 5_000])
def test_a_schema_that_is_very_deep_is_not_installed(home: Path, levels: int) -> None:
    service = publish(home)
    text = f"{{type: object, properties: {{a: {'{not: ' * levels}{{}}{'}' * levels}}}}}"
    with (home / "registry" / NAME / "1.0.0" / "enact.yaml").open("a") as manifest:
        manifest.write(f"inputSchema: {text}\n")
    with refused("MANIFEST_INVALID"):
        service.install(NAME)


def member(kind: bytes, content: bytes, size: int | None = None) -> bytes:
    """One member of an archive as it lies there, whatever it says of its size."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, len(content) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % tarfile.BLOCKSIZE)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_the_headers_of_a_bundle_cannot_hang_us(kind: bytes) -> None:
    """A run of digits in one is searched in the square of its length, with every thread waiting."""
    for archive in (member(kind, b"1" * 20_000), member(kind, b"1" * LONGEST_HEADER) * 40):
        with pytest.raises(BundleError, match="headers are too long"):
            unpack(archive + b"\0" * 1024)


def test_a_member_of_less_than_no_bytes_is_refused() -> None:
    with pytest.raises(BundleError, match="less than no bytes"):
        unpack(member(tarfile.REGTYPE, b"", -512) + b"\0" * 1024)
