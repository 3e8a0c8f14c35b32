"""Turns results into JSON: one serialiser for every domain."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from types import NoneType
from typing import Any, Final, TypeAlias, TypeVar, Union

T = TypeVar("T")


class Unknown(enum.Enum):
    """The type of `UNKNOWN`: an optional result field that has no value is left out, not null."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
Maybe: TypeAlias = Union[T, Unknown]  # noqa: UP007 - mypy wants a generic alias spelt so
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def jsonable(value: object) -> Any:
    """Plain JSON data from dataclasses, named tuples, enums, paths and collections.

    A field or an item that is `UNKNOWN` is left out. A field that ends in `_` is written without
    it: `from` cannot be the name of an attribute.
    """
    return _CONVERTERS[type(value)](value)


_Converter: TypeAlias = Callable[[Any], Any]  # JSON, or UNKNOWN for what is left out


class _Converters(dict[type, _Converter]):
    """What makes JSON of a value, by its class: found once per class, because rows are many."""

    def __missing__(self, kind: type) -> _Converter:
        self[kind] = found = _converter(kind)
        return found


_CONVERTERS = _Converters()


def _converter(kind: type) -> _Converter:
    if kind is Unknown:
        return lambda value: value
    if issubclass(kind, enum.Enum):
        return lambda value: jsonable(value.value)
    if issubclass(kind, str):
        return clean
    if issubclass(kind, int | NoneType):
        return lambda value: value
    if issubclass(kind, float):
        return lambda value: value if math.isfinite(value) else None
    if issubclass(kind, Mapping):
        return _mapping
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return functools.partial(_fields, kind._fields)
    if issubclass(kind, list | tuple):
        return _list
    if issubclass(kind, set | frozenset):
        return lambda value: sorted(_list(value), key=to_text)
    if hasattr(kind, "for_agent"):  # an `Action`
        return lambda value: clean(value.for_agent()) if value.is_possible else UNKNOWN
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        keys = [name.rstrip("_") for name in names]
        return lambda value: _fields(keys, [getattr(value, name) for name in names])
    if issubclass(kind, PurePath):
        return lambda value: clean(str(value))
    raise TypeError(f"{kind.__name__} cannot be part of a result")


def _list(items: Iterable[object]) -> list[Json]:
    made = [_CONVERTERS[type(item)](item) for item in items]
    return [item for item in made if item is not UNKNOWN]


def _mapping(value: Mapping[object, object]) -> dict[str, Json]:
    return {_key(key): jsonable(item) for key, item in value.items() if item is not UNKNOWN}


def _fields(names: Sequence[str], items: Iterable[object]) -> dict[str, Json]:
    return {
        name: _CONVERTERS[type(item)](item)
        for name, item in zip(names, items, strict=True)
        if item is not UNKNOWN
    }


def to_text(value: Any) -> str:
    """Compact JSON text of jsonable data."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_file(data: object) -> bytes:
    """The content of a JSON file, indented for people."""
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def _key(key: Any) -> str:
    return clean(str(key.value if isinstance(key, enum.Enum) else key))


def clean(text: str) -> str:
    """Text that can be encoded: file names may carry bytes that are no characters."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
