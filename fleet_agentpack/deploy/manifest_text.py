"""Edits the text of `agentpack.yaml` in place: every line that is not concerned stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import yaml

from fleet_agentpack.kit import yaml12


class NotEditableError(ValueError):
    """A text that is written in a way that is not understood here."""


def put(text: str, place: Sequence[str], value: object) -> str:
    """The text with a value at a path of keys; what is missing on the way is added."""
    inside = _root(text)
    for number, key in enumerate(place):
        found = _member(inside, key)
        rest = place[number + 1 :]
        if found is None:
            return _with_key(text, inside, key, _nested(rest, value))
        name, node = found
        if not rest:
            return _with_value(text, name, node, value)
        if _is_nothing(node):
            return _filled(text, name, node, _nested(rest, value))
        if not isinstance(node, yaml.MappingNode):
            raise NotEditableError(f"{key} is no mapping")
        inside = node
    raise NotEditableError("no key is named")


def append(text: str, key: str, items: Sequence[object]) -> str:
    """The text with more items in the list at a key."""
    root = _root(text)
    found = _member(root, key)
    if found is None:
        return _with_key(text, root, key, items)
    name, node = found
    if _is_nothing(node) or not node.value:
        with suppress(NotEditableError):
            return _filled(text, name, node, items)
    return _with_items(text, name, node, items)


def without(text: str, key: str, numbers: Sequence[int]) -> str:
    """The text without some items of the list at a key."""
    found = _member(_root(text), key)
    if found is None or not isinstance(found[1], yaml.SequenceNode) or found[1].flow_style:
        raise NotEditableError("no list with an item per line")
    name, node = found
    lines = text.splitlines(keepends=True)
    for number in sorted(numbers, reverse=True):
        item = node.value[number]
        end = text.count("\n", 0, _end(item))
        del lines[item.start_mark.line : end + 1]
    if len(numbers) == len(node.value):
        line = lines[name.start_mark.line]
        column = name.end_mark.column + 1  # after the colon
        lines[name.start_mark.line] = f"{line[:column]} []{line[column:]}"
    return "".join(lines)


def _root(text: str) -> yaml.MappingNode:
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise NotEditableError(str(error)) from error
    if not isinstance(root, yaml.MappingNode):
        raise NotEditableError("no mapping")
    return root


def _member(mapping: yaml.MappingNode, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    for name, node in mapping.value:
        if name.value == key:
            if node.start_mark.index < name.end_mark.index:  # an alias: it is written elsewhere
                raise NotEditableError(f"{key} is an alias")
            return name, node
    return None


def _is_nothing(node: yaml.Node) -> bool:
    """Whether a place is empty: nothing is written there, or that it is nothing."""
    return isinstance(node, yaml.ScalarNode) and not node.style and node.value in ("", "~", "null")


def _nested(keys: Sequence[str], value: object) -> object:
    for key in reversed(keys):
        value = {key: value}
    return value


def _with_value(text: str, name: yaml.Node, node: yaml.Node, value: object) -> str:
    if _is_nothing(node):
        return _filled(text, name, node, value)
    if isinstance(value, list) and isinstance(node, yaml.SequenceNode):
        known = len(node.value)
        return _with_items(text, name, node, value[known:])
    if not isinstance(node, yaml.ScalarNode) or isinstance(value, list | dict) or _is_text(node):
        raise NotEditableError(f"{name.value} has a value of another kind")
    return text[: node.start_mark.index] + _flow(value) + text[node.end_mark.index :]


def _with_items(text: str, name: yaml.Node, node: yaml.Node, items: Sequence[object]) -> str:
    if not isinstance(node, yaml.SequenceNode):
        raise NotEditableError(f"{name.value} is no list")
    if node.flow_style:
        return _in_brackets(text, node, ", ".join(map(_flow, items)))
    return _after(text, _end(node), _block(text, list(items), node.start_mark.column))


def _with_key(text: str, mapping: yaml.MappingNode, key: str, value: object) -> str:
    if mapping.flow_style:
        return _in_brackets(text, mapping, _flow({key: value})[1:-1])
    if not mapping.value:
        raise NotEditableError("an empty mapping")
    return _after(text, _end(mapping), _block(text, {key: value}, mapping.start_mark.column))


def _filled(text: str, name: yaml.Node, node: yaml.Node, value: object) -> str:
    """The text with a value where there was none."""
    if isinstance(node, yaml.ScalarNode) and node.value:
        return text[: node.start_mark.index] + _flow(value) + text[node.end_mark.index :]
    return _below(text, name, value)


def _below(text: str, name: yaml.Node, value: object) -> str:
    """Put a value after a key that has none, or an empty one in brackets."""
    start = name.end_mark.index
    line_end = text.find("\n", start)
    rest = text[start : line_end if line_end >= 0 else len(text)]
    colon, bare = rest.partition("#")[0].strip(), rest
    if colon not in (":", ": []", ":[]", ": {}", ":{}"):
        raise NotEditableError(f"{name.value} has something on its line")
    if not isinstance(value, list | dict):
        after = start + rest.index(":") + 1
        return f"{text[:after]} {_flow(value)}{text[after:]}"
    for brackets in (" []", "[]", " {}", "{}"):
        bare = bare.replace(brackets, "", 1)
    text = text[:start] + bare + text[start + len(rest) :]
    column = name.start_mark.column + (0 if isinstance(value, list) else 2)
    return _after(text, start, _block(text, value, column))


def _in_brackets(text: str, node: yaml.CollectionNode, addition: str) -> str:
    closing = node.end_mark.index - 1
    before = text[:closing].rstrip()
    comma = "" if before.endswith(("{", "[")) else " " if before.endswith(",") else ", "
    return before + comma + addition + text[closing:]


def _end(node: yaml.Node) -> int:
    """Where the last thing in a node ends; the parser counts the comments after it as well."""
    if isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        return max(_ends(node))
    end = int(node.end_mark.index)
    return end - 1 if _is_text(node) else end


def _is_text(node: yaml.Node) -> bool:
    """Whether it is written as lines of their own."""
    return isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")


def _ends(node: yaml.Node) -> Iterator[int]:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value[-1:]:
            yield name.end_mark.index
            if value.start_mark.index >= name.end_mark.index:
                yield _end(value)
    else:
        yield node.start_mark.index
        yield from (
            _end(each) for each in node.value if each.start_mark.index >= node.start_mark.index
        )


def _after(text: str, place: int, lines: str) -> str:
    """Put lines after the one that a place is in."""
    end = text.find("\n", place)
    if end < 0:
        newline = "\r\n" if "\r\n" in text else "\n"
        return f"{text}{newline}{lines}"
    return text[: end + 1] + lines + text[end + 1 :]


def _block(text: str, value: object, column: int) -> str:
    lines = yaml12.dump(value).splitlines()
    newline = "\r\n" if "\r\n" in text else "\n"
    return "".join(f"{' ' * column}{line}{newline}" for line in lines)


def _flow(value: Any) -> str:
    """A value on one line."""
    dumped: str = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return dumped.removesuffix("\n").removesuffix("...").strip()
