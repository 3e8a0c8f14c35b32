"""JSON with comments and trailing commas, edited in place: all other bytes stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from fleet_agentpack.kit.keyed_edit import FormatError

_TOKEN = re.compile(r"//[^\r\n]*|/\*.*?\*/|,", re.DOTALL)  # what may stand between two members
_GAP = re.compile(r"(?:[ \t\r\n]|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null", re.ASCII)
_LINE_END = re.compile(r"[ \t]*(?:\r\n|\n|\r)")


@dataclass(frozen=True)
class Node:
    """A value and where it stands: `text[start:end]`."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] = ()

    def child(self, key: str) -> Member | None:
        """The member of that name. Raises `FormatError` when there are two."""
        found = [member for member in self.members if member.key == key]
        if len(found) > 1:
            raise FormatError(f"the key {key!r} is there more than once")
        return found[0] if found else None


@dataclass(frozen=True)
class Member:
    """One `"key": value` of an object."""

    key: str
    start: int
    node: Node


def parse(text: str) -> dict[str, Any]:
    """The object that the text holds; a text without a value holds an empty one."""
    root = _root(text)
    return {} if root is None else dict(root.value)


def put(text: str, keys: Sequence[str], value: Mapping[str, Any]) -> str:
    """The text with the object at that path of keys; those on the way are made when missing.

    An object that is already there is changed member by member, so that its comments stay.
    """
    found: Any = parse(text)
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        return _set(text, keys, value)
    for key in found.keys() - value.keys():
        text = drop(text, [*keys, key])
    for key, item in value.items():
        if key not in found or found[key] != item:
            text = _set(text, [*keys, key], item)
    return text


def _set(text: str, keys: Sequence[str], value: Any) -> str:
    root = _root(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = _unit(text, root)
    if root is None:
        gap = newline if text and not text.endswith("\n") else ""
        return text + gap + _render(_nested(keys, value), "", unit, newline) + newline
    node = root
    for depth, key in enumerate(keys):
        if not isinstance(node.value, dict):
            raise FormatError(f"{_place(text, node.start)}: {keys[depth - 1]!r} is not an object")
        member = node.child(key)
        if member is None:
            return _insert(text, node, key, _nested(keys[depth + 1 :], value), unit, newline)
        node = member.node
    one_line = "\n" not in text[node.start : node.end]
    rendered = _render(value, _indent_at(text, node.start), unit, newline, one_line)
    return text[: node.start] + rendered + text[node.end :]


def drop(text: str, keys: Sequence[str]) -> str:
    """The text without the member at that path; comments around it stay."""
    node = _root(text)
    for key in keys[:-1]:
        member = node.child(key) if node else None
        node = member.node if member else None
    gone = node.child(keys[-1]) if node else None
    return text if node is None or gone is None else _delete(text, node, gone)


def _insert(text: str, node: Node, key: str, value: Any, unit: str, newline: str) -> str:
    """Add a last member, after whatever comments stand there, in the style of its object."""
    one_line = bool(node.members) and "\n" not in text[node.start : node.end]
    outer = _indent_at(text, node.start)
    inner = outer + unit
    if node.members and _starts_its_line(text, node.members[-1].start):
        inner = _indent_at(text, node.members[-1].start)
    after = node.members[-1].node.end if node.members else node.start + 1
    tokens = list(_tokens(text, after, node.end - 1))
    comma = any(text[start] == "," for start, _ in tokens)
    end = tokens[-1][1] if tokens else after
    rendered = _render(value, inner, unit, newline, one_line)
    added = (" " if one_line else newline + inner) + f"{json.dumps(key)}: {rendered}"
    added += "," if comma else ""
    rest = text[end : node.end - 1]
    if not one_line and "\n" not in rest:
        rest = newline + outer
    separator = "," if node.members and not comma else ""
    return text[:after] + separator + text[after:end] + added + rest + text[node.end - 1 :]


def _delete(text: str, node: Node, gone: Member) -> str:
    """Remove a member with the comma that it no longer needs."""
    index = node.members.index(gone)
    start = node.members[index - 1].node.end if index else node.start + 1
    stop = node.members[index + 1].start if index + 1 < len(node.members) else node.end - 1
    between = list(_tokens(text, start, gone.start))
    following = list(_tokens(text, gone.node.end, stop))
    own_comma = [span for span in following if text[span[0]] == ","]
    cut_from = between[-1][1] if between else start
    cut_to = gone.node.end
    cuts = []
    if own_comma and own_comma[0] == following[0]:
        cut_to = own_comma[0][1]
    elif own_comma:
        cuts.append(own_comma[0])
    else:
        cuts += [span for span in between if text[span[0]] == ","]
    if between and text.startswith("//", between[-1][0]) and not _LINE_END.match(text, cut_to):
        # What follows on the line must not become part of the comment.
        cut_from = next(_LINE_END.finditer(text, cut_from)).end()
    cuts.append((cut_from, cut_to))
    if len(node.members) == 1 and _is_blank(text[start:cut_from] + text[cut_to:stop]):
        cuts = [(start, stop)]
    for first, last in sorted(cuts, reverse=True):
        text = text[:first] + text[last:]
    return text


def _tokens(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The comments and commas between two members, as spans."""
    return [match.span() for match in _TOKEN.finditer(text, start, end)]


def _is_blank(text: str) -> bool:
    return not text.strip()


def _nested(keys: Sequence[str], value: object) -> object:
    for key in reversed(keys):
        value = {key: value}
    return value


def _render(value: Any, indent: str, unit: str, newline: str, one_line: bool = False) -> str:
    text = json.dumps(value, indent=None if one_line else unit, ensure_ascii=False)
    return text.replace("\n", newline + indent)


def _unit(text: str, root: Node | None) -> str:
    """One step of indentation, as the first member of the file shows it."""
    if root and root.members and _starts_its_line(text, root.members[0].start):
        return _indent_at(text, root.members[0].start) or "  "
    return "  "


def _indent_at(text: str, position: int) -> str:
    """The white space at the beginning of the line that holds this position."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _starts_its_line(text: str, position: int) -> bool:
    return _is_blank(text[text.rfind("\n", 0, position) + 1 : position])


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"


def _root(text: str) -> Node | None:
    start = _skip(text, 0)
    if start == len(text):
        return None
    try:
        root = _node(text, start)
    except RecursionError as error:
        raise FormatError("it is nested too deeply") from error
    if (end := _skip(text, root.end)) != len(text):
        raise _fault(text, end)
    if not isinstance(root.value, dict):
        raise FormatError(f"{_place(text, root.start)}: the file is not an object")
    return root


def _node(text: str, start: int) -> Node:
    opening = text[start : start + 1]
    if opening in ("{", "["):
        return _collection(text, start, "}" if opening == "{" else "]")
    if opening == '"':
        value, end = _string(text, start)
        return Node(start, end, value)
    match = _SCALAR.match(text, start)
    if not match:
        raise _fault(text, start)
    return Node(start, match.end(), json.loads(match[0]))


def _collection(text: str, start: int, closing: str) -> Node:
    """An object with its members, or an array; a comma may follow the last one."""
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        key, value_start = _key(text, at) if closing == "}" else ("", at)
        node = _node(text, value_start)
        members.append(Member(key, at, node))
        at = _skip(text, node.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _fault(text, at)
    if closing == "]":
        return Node(start, at + 1, [member.node.value for member in members])
    value = {member.key: member.node.value for member in members}
    return Node(start, at + 1, value, tuple(members))


def _key(text: str, start: int) -> tuple[str, int]:
    """A member's key, and where its value starts."""
    if text[start : start + 1] != '"':
        raise _fault(text, start)
    key, end = _string(text, start)
    colon = _skip(text, end)
    if text[colon : colon + 1] != ":":
        raise _fault(text, colon)
    return key, _skip(text, colon + 1)


def _string(text: str, start: int) -> tuple[str, int]:
    try:
        value, end = scanstring(text, start + 1, True)
    except json.JSONDecodeError as error:
        raise FormatError(f"{_place(text, error.pos)}: {error.msg}") from error
    return value, end


def _skip(text: str, start: int) -> int:
    match = _GAP.match(text, start)
    return match.end() if match else start


def _fault(text: str, position: int) -> FormatError:
    found = text[position : position + 1]
    what = f"unexpected {found!r}" if found else "the text ends too early"
    return FormatError(f"{_place(text, position)}: {what}")
