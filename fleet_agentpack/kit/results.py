"""Turns results into JSON: one serialiser for every domain."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, TypeAlias, TypeVar, Union

T = TypeVar("T")


class Unknown(enum.Enum):
    """The type of `UNKNOWN`: an optional result field that has no value is left out, not null."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
Maybe: TypeAlias = Union[T, Unknown]  # noqa: UP007 - mypy wants a generic alias spelt so


def jsonable(value: Any) -> Any:
    """Plain JSON data from dataclasses, enums, paths, collections; `UNKNOWN` is left out.

    A field that ends in `_` is written without it: `from` cannot be the name of an attribute.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean(value.value if isinstance(value, enum.Enum) else value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(key): jsonable(item) for key, item in value.items() if item is not UNKNOWN}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value if item is not UNKNOWN]
    if isinstance(value, set | frozenset):
        return sorted((jsonable(item) for item in value if item is not UNKNOWN), key=to_text)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name.rstrip("_"): jsonable(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) is not UNKNOWN
        }
    if isinstance(value, enum.Enum):
        return jsonable(value.value)
    if isinstance(value, PurePath):
        return clean(str(value))
    raise TypeError(f"{type(value).__name__} cannot be part of a result")


def to_text(value: Any) -> str:
    """Compact JSON text of jsonable data."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _key(key: Any) -> str:
    return clean(str(key.value if isinstance(key, enum.Enum) else key))


def clean(text: str) -> str:
    """Text that can be encoded: file names may carry bytes that are no characters."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
