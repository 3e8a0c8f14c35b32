"""The advertised form of an input schema: what pydantic generates, less what costs context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_VERBATIM = ("default", "enum", "const", "examples")
_NAMED = ("properties", "$defs")


_NULL = {"type": "null"}


def tidy(schema: Any) -> Any:
    """A schema without titles, without `null` alternatives, and with bare constants."""
    if isinstance(schema, list):
        return [tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    node = {key: _tidy_value(key, value) for key, value in schema.items()}
    if isinstance(node.get("title"), str):
        del node["title"]
    if isinstance(choices := node.get("anyOf"), list) and _NULL in choices:
        rest = [choice for choice in choices if choice != _NULL]
        others = {key: value for key, value in node.items() if key != "anyOf"}
        node = {**rest[0], **others} if len(rest) == 1 else {"anyOf": rest, **others}
    if node.get("default", ...) is None:
        del node["default"]
    if "const" in node:
        node.pop("type", None)
    if node.get("additionalProperties") is True:
        del node["additionalProperties"]
    return node


def _tidy_value(key: str, value: Any) -> object:
    if key in _VERBATIM:
        return value
    if key in _NAMED and isinstance(value, dict):
        return {name: tidy(item) for name, item in value.items()}
    return tidy(value)


def without_nulls(arguments: Mapping[str, T], schema: Mapping[str, Any]) -> dict[str, T]:
    """Arguments in which an explicit `null` for an optional one that takes none is left out."""
    required, properties = schema.get("required", ()), schema.get("properties", {})

    def is_left_out(name: str) -> bool:
        declared = properties.get(name)
        wanted = declared.get("type") if isinstance(declared, Mapping) else None
        takes_null = wanted is None or "null" in (wanted if isinstance(wanted, list) else [wanted])
        return arguments[name] is None and name not in required and not takes_null

    return {name: value for name, value in arguments.items() if not is_left_out(name)}
