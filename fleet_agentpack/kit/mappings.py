"""Mappings in JSON and YAML from outside: read within bounds, and with one error for all faults."""

from __future__ import annotations

import json
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from fleet_agentpack.kit.files import UnreadableError, read_text

T = TypeVar("T")

USUAL_BYTES = 1_000_000  # more than anybody writes by hand
MAX_DEPTH = 100  # as for YAML; what walks the data may recurse


class UnparsableError(ValueError):
    """Text that is not the JSON or YAML mapping it should be; the message says what and where."""


def parse_json(text: str) -> object:
    """JSON data; duplicate keys and endless nesting are refused. Raises `UnparsableError`."""
    try:
        data = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise UnparsableError(f"not valid JSON: {error.msg} (line {error.lineno})") from error
    except RecursionError as error:
        raise UnparsableError("not usable JSON: nested too deeply") from error
    except ValueError as error:  # a number with too many digits
        raise UnparsableError("not usable JSON: a number is too long") from error
    if _is_deep(data):
        raise UnparsableError(f"not usable JSON: nested deeper than {MAX_DEPTH} levels")
    return data


def parse_yaml(text: str) -> object:
    """YAML 1.2 data. Raises `UnparsableError`."""
    from fleet_agentpack.kit import yaml12  # here: most files are JSON

    try:
        return yaml12.load(text)
    except yaml12.YamlError as error:
        raise UnparsableError(f"not valid YAML: {error}") from error


def read_mapping(path: Path, limit: int = USUAL_BYTES) -> dict[str, Any]:
    """The mapping in a JSON or YAML file, chosen by its ending; an empty YAML file has no keys.

    Raises `UnparsableError`, `FileNotFoundError`.
    """
    text = read_parsable(path, limit)
    data = parse_yaml(text) or {} if path.suffix in (".yaml", ".yml") else parse_json(text)
    return as_mapping(data)


def read_parsable(path: Path, limit: int) -> str:
    """The text of a file. Raises `UnparsableError`, `FileNotFoundError`."""
    try:
        return read_text(path, limit)
    except UnreadableError as error:
        # Container mounts make a directory of a file that is not there.
        is_directory = error.kind == "directory"
        reason = "a directory, where a file is expected" if is_directory else str(error)
        raise UnparsableError(reason) from error


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object that some bytes are. Raises `UnparsableError`."""
    try:
        return as_mapping(parse_json(body.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        raise UnparsableError("not UTF-8 text") from error


def as_mapping(data: object) -> dict[str, Any]:
    """Parsed data that has to be an object with text keys. Raises `UnparsableError`."""
    if not isinstance(data, dict):
        raise UnparsableError(f"must be an object, not {type_name(data)}")
    return {str(key): value for key, value in data.items()}


def type_name(value: object) -> str:
    """What JSON calls the type of a value."""
    return next((name for kind, name in _NAMES if isinstance(value, kind)), "unknown")


_NAMES: tuple[tuple[type, str], ...] = (
    (NoneType, "null"),
    (bool, "boolean"),
    (int, "number"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def _is_deep(data: object) -> bool:
    level = [data]
    for _ in range(MAX_DEPTH + 1):
        inner = [each for each in level if isinstance(each, dict | list)]
        level = [
            item for each in inner for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not inner:
            return False
    return True


def _unique(pairs: list[tuple[str, T]]) -> dict[str, T]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise UnparsableError(f"not usable JSON: duplicate key {key!r}")
            seen.add(key)
    return found
