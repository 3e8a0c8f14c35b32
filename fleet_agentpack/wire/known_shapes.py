"""The requests that the front knows exactly; whatever else arrives is the server's to judge."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")

MODERN = "2026-07-28"
REPLAYED_ID = "fleet-agentpack:handshake"  # the answer to a request with this id is not sent

LONGEST_LINE = 1 << 16
LARGEST_NUMBER = 1 << 53
DEEPEST = 8

_PREFIX = "io.modelcontextprotocol/"
_FREE = object()  # stands for any object, however it looks inside
_SETTINGS = object()  # an object of such objects

# A name with "!" must be there, the others may.
_CLIENT_INFO: dict[str, Any] = {
    "name!": str,
    "version!": str,
    "title": str,
    "description": str,
    "websiteUrl": str,
}
_CAPABILITIES: dict[str, Any] = {
    "roots": {"listChanged": bool},
    "sampling": {"context": {}, "tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "tasks": {
        "list": {},
        "cancel": {},
        "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}},
    },
    "experimental": _SETTINGS,
    "extensions": _SETTINGS,
    # Not of the protocol, which ignores them: Cursor sends these.
    **dict.fromkeys(("tools", "prompts", "resources", "logging"), bool),
}
_META: dict[str, Any] = {"progressToken": (int, str)}
_PLAIN: dict[str, Any] = {"_meta": _META}
_ENVELOPED: dict[str, Any] = {
    "_meta!": {
        f"{_PREFIX}protocolVersion!": MODERN,
        f"{_PREFIX}clientInfo": _CLIENT_INFO,
        f"{_PREFIX}clientCapabilities!": _CAPABILITIES,
        **_META,
    }
}
_INITIALIZE: dict[str, Any] = {
    "protocolVersion!": str,
    "capabilities!": _CAPABILITIES,
    "clientInfo!": _CLIENT_INFO,
    **_PLAIN,
}


class Known(NamedTuple):
    """A message that the front understands."""

    method: str
    number: str  # the id as JSON; empty for a notification
    modern: bool
    version: str  # the protocol that `initialize` asks for
    replay: bytes  # the same message under an id of ours


def known_message(line: bytes, listings: frozenset[str]) -> Known | None:
    """The message on a line; None for one that is not known exactly."""
    message = _parsed(line)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None
    method, params = message.get("method"), message.get("params", {})
    if method == "notifications/initialized":
        known = set(message) <= {"jsonrpc", "method", "params"} and params == {}
        return Known(method, "", modern=False, version="", replay=line) if known else None
    number = message.get("id")
    if not isinstance(method, str) or not _is_plain_id(number):
        return None
    if not set(message) <= {"jsonrpc", "id", "method", "params"}:
        return None
    modern = method in listings | {"server/discover"} and _fits(params, _ENVELOPED)
    if not modern and not _fits(params, _legacy_shape(method, listings)):
        return None
    return Known(
        method,
        json.dumps(number),
        modern,
        params["protocolVersion"] if method == "initialize" else "",
        json.dumps({**message, "id": REPLAYED_ID}, ensure_ascii=False).encode(),
    )


def _legacy_shape(method: str, listings: frozenset[str]) -> object:
    if method == "initialize":
        return _INITIALIZE
    return _PLAIN if method == "ping" or method in listings else None


def _parsed(line: bytes) -> object:
    """The value on a line; None for everything that two readers might take for two things."""
    if len(line) > LONGEST_LINE or b"\\u" in line:
        return None
    try:
        return json.loads(
            line.decode(),
            object_pairs_hook=_without_repetition,
            parse_float=_refused,
            parse_constant=_refused,
        )
    except (ValueError, RecursionError):
        return None


def _without_repetition(pairs: list[tuple[str, T]]) -> dict[str, T]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _refused(text: str) -> NoReturn:
    raise ValueError(text)


def _is_plain_id(number: object) -> bool:
    """Whether an id is written in one way only."""
    if isinstance(number, str):
        plain = number.isascii() and number.isprintable() and not set(number) & set('"\\')
        return plain and not number.startswith(REPLAYED_ID.partition(":")[0])
    return _is_number(number)


def _is_number(value: object) -> bool:
    return type(value) is int and -LARGEST_NUMBER < value < LARGEST_NUMBER


def _fits(value: object, shape: Any) -> bool:
    if shape is _FREE:
        return isinstance(value, dict) and _is_harmless(value, DEEPEST)
    if shape is _SETTINGS:
        return isinstance(value, dict) and all(_fits(each, _FREE) for each in value.values())
    if isinstance(shape, dict):
        return isinstance(value, dict) and _has_fields(value, shape)
    if isinstance(shape, tuple):
        return any(_fits(value, each) for each in shape)
    if isinstance(shape, str):
        return value == shape
    return _is_number(value) if shape is int else type(value) is shape


def _has_fields(value: dict[str, Any], shape: dict[str, Any]) -> bool:
    needed = {name[:-1] for name in shape if name.endswith("!")}
    shapes = {name.removesuffix("!"): each for name, each in shape.items()}
    return needed <= set(value) <= set(shapes) and all(
        _fits(each, shapes[name]) for name, each in value.items()
    )


def _is_harmless(value: object, depth: int) -> bool:
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_is_harmless(each, depth - 1) for each in inside)
    return value is None or type(value) in (str, bool) or _is_number(value)
