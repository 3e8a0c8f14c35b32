"""Indented JSON from the fast encoder: Python's own does not use it when it indents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_scalar = json.JSONEncoder(ensure_ascii=False).encode
_row = json.JSONEncoder(ensure_ascii=False, separators=(",\n      ", ": ")).encode


def pretty(document: Mapping[str, Any]) -> bytes:
    """The bytes of `json.dumps(document, indent=2)` and a newline.

    The values are scalars, lists of scalars, or lists of objects whose values are such in turn.
    """
    fields = [f"  {_scalar(key)}: {_value(value)}" for key, value in document.items()]
    return ("{\n" + ",\n".join(fields) + "\n}\n").encode()


def _value(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return _scalar(value)
    items = [_object(item) if isinstance(item, dict) else _scalar(item) for item in value]
    return "[\n    " + ",\n    ".join(items) + "\n  ]"


def _object(row: Mapping[str, Any]) -> str:
    if not any(isinstance(value, list) for value in row.values()):
        return "{\n      " + _row(row)[1:-1] + "\n    }"
    fields = [f"{_scalar(key)}: {_list(value)}" for key, value in row.items()]
    return "{\n      " + ",\n      ".join(fields) + "\n    }"


def _list(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return _scalar(value)
    return "[\n        " + ",\n        ".join(map(_scalar, value)) + "\n      ]"
