"""TOML edited in place: a plain table is cut or added as text, any other form goes by tomlkit."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fleet_agentpack.kit.keyed_edit import FormatError

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)
_BARE_LF = re.compile(r"(?<!\r)\n")


def parse(text: str) -> dict[str, Any]:
    """The document as plain values."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FormatError(str(error)) from error


def put(text: str, keys: Sequence[str], value: Mapping[str, Any]) -> str:
    """The text with the table `[first.second]` holding the value."""
    first, second = keys
    servers = parse(text).get(first, {})
    if not isinstance(servers, dict):
        raise FormatError(f"{first!r} is not a table")
    if second not in servers:
        appended = _appended(text, keys, value)
        with suppress(FormatError):
            parse(appended)
            return appended
    return _restructured(text, keys, value)


def drop(text: str, keys: Sequence[str]) -> str:
    """The text without that table; comments after its last value stay."""
    first, second = keys
    if second not in parse(text).get(first, {}):
        return text
    cut = _cut(text, keys)
    with suppress(FormatError):
        if second not in parse(cut).get(first, {}):
            return cut
    return _restructured(text, keys, None)


def _appended(text: str, keys: Sequence[str], value: Mapping[str, Any]) -> str:
    import tomlkit

    block = tomlkit.dumps({keys[0]: {keys[1]: dict(value)}})
    newline = _newline(text)
    ended = text if not text or text.endswith("\n") else text + newline
    return ended + (newline if ended else "") + block.replace("\n", newline)


def _cut(text: str, keys: Sequence[str]) -> str:
    """Without the plain table of that name and those below it, if it is written as such."""
    name = r"[ \t]*\.[ \t]*".join(
        rf"""(["']?){re.escape(key)}\{n}""" for n, key in enumerate(keys, 1)
    )
    header = re.compile(rf"^[ \t]*\[[ \t]*{name}[ \t]*(?:\.[^\]\n]*)?\]", re.MULTILINE)
    for match in reversed(list(header.finditer(text))):
        start = match.start()
        end = start + len(_body(text[start:]))
        if text[:start].endswith(("\n\n", "\n\r\n")):  # the empty line that set it apart
            start -= 2 if text[:start].endswith("\r\n") else 1
        text = text[:start] + text[end:]
    return text


def _body(text: str) -> str:
    """A table's header and values: up to the next header, less the comments before that."""
    following = _HEADER.search(text, text.index("[") + 1)
    lines = text[: following.start() if following else None].splitlines(keepends=True)
    while not lines[-1].strip() or lines[-1].lstrip().startswith("#"):
        lines.pop()
    return "".join(lines)


def _restructured(text: str, keys: Sequence[str], value: Mapping[str, Any] | None) -> str:
    """The same edit on tomlkit's tree, for inline tables, dotted keys and existing entries."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    first, second = keys
    try:
        document = tomlkit.parse(text)
        servers: Any = document[first]
        if value is None:
            del servers[second]
        elif second in servers:
            _update(servers[second], value)
        else:
            entry = tomlkit.inline_table()
            entry.update(value)
            servers[second] = entry
        edited = tomlkit.dumps(document)
    except (TOMLKitError, ValueError, KeyError, TypeError) as error:
        raise FormatError(f"[{first}.{second}] cannot be edited: {error}") from error
    return _BARE_LF.sub(_newline(text), edited)


def _update(entry: Any, value: Mapping[str, Any]) -> None:
    for key in [key for key in entry if key not in value]:
        del entry[key]
    for key, item in value.items():
        if entry.get(key) != item:
            entry[key] = item


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text and not _BARE_LF.search(text) else "\n"
