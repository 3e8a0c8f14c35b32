"""Reads YAML nodes as agentpack 0.9.1 does: strict shapes, lenient scalars, lines in errors.

Any plain scalar is accepted where text is expected, as it is written in the file (`ref: 1.10`),
which is why this works on nodes and not on loaded data. An empty value means an empty list or
mapping; an explicit `null` does not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import yaml

from fleet_agentpack.kit import yaml12
from fleet_agentpack.kit.shapes import UnknownKey

_INTEGER = re.compile(r"\+?(0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+|0|[1-9][0-9]*)\Z")
_MAX_U32: Final = 2**32 - 1


class FieldError(ValueError):
    """A value of the wrong kind, with its place in the file."""


class Fields:
    """A mapping read field by field."""

    def __init__(self, node: yaml.Node | None, where: str) -> None:
        self.where = where
        self._node = node
        self._found: dict[str, yaml.Node] = {}
        if is_empty(node):
            return
        if not isinstance(node, yaml.MappingNode):
            raise FieldError(f"{_at(where, node)}: expected a mapping")
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name in self._found:
                raise FieldError(f"{_at(where, key)}: duplicate key {name!r}")
            if name is not None:
                self._found[name] = value

    def items(self) -> Mapping[str, yaml.Node]:
        """Every key with its node."""
        return self._found

    def unknown(self, known: Collection[str]) -> list[UnknownKey]:
        """The keys that are not known; those that start with `x-` are free."""
        place = tuple(self.where.split(".")) if self.where else ()
        return [
            UnknownKey.among(known, (*place, name))
            for name in self._found
            if name not in known and not name.startswith("x-")
        ]

    def required(self, name: str) -> yaml.Node:
        """A field's node. Raises `FieldError` when the field is missing."""
        if name not in self._found:
            raise FieldError(f"{_at(self.where, self._node)}: missing field `{name}`")
        return self._found[name]

    def text(self, name: str, default: str | None = None) -> str:
        """A field of text; without a default it is required."""
        if default is not None and name not in self._found:
            return default
        return text_of(self.required(name), self.path(name))

    def boolean(self, name: str, default: bool) -> bool:
        """A field that is true or false."""
        node = self._found.get(name)
        if node is None:
            return default
        value = yaml12.value_of(node) if yaml12.is_plain(node) else None
        if not isinstance(value, bool):
            raise FieldError(f"{_at(self.path(name), node)}: expected true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A field that is a list of texts, empty by default."""
        where = self.path(name)
        return tuple(text_of(item, f"{where}[{i}]") for i, item in enumerate(self.list(name)))

    def list(self, name: str) -> list[yaml.Node]:
        """The nodes of a field that is a list."""
        node = self._found.get(name)
        if is_empty(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise FieldError(f"{_at(self.path(name), node)}: expected a list")
        return list(node.value)

    def mapping(self, name: str) -> Fields:
        """A field that is a mapping, empty by default."""
        return Fields(self._found.get(name), self.path(name))

    def optional(self, name: str) -> Fields | None:
        """A field that is a mapping; None when it is missing, empty or null."""
        node = self._found.get(name)
        absent = node is None or (yaml12.is_plain(node) and yaml12.value_of(node) is None)
        return None if absent else self.mapping(name)

    def data(self, name: str) -> dict[str, Any]:
        """A field that is a mapping of anything."""
        node = self._found.get(name)
        if is_empty(node):
            return {}
        value = yaml12.value_of(node)
        if not isinstance(value, dict):
            raise FieldError(f"{_at(self.path(name), node)}: expected a mapping")
        return {str(key): item for key, item in value.items()}

    def number(self, name: str) -> int:
        """A required whole number that fits 32 bits."""
        node = self.required(name)
        match = _INTEGER.match(node.value) if yaml12.is_plain(node) else None
        number = int(match[1], 0) if match and len(match[1]) < 40 else -1
        if not 0 <= number <= _MAX_U32:
            raise FieldError(f"{_at(self.path(name), node)}: expected a whole number")
        return number

    def path(self, name: str) -> str:
        """A field's dotted place in the file."""
        return f"{self.where}.{name}" if self.where else name


def text_of(node: yaml.Node, where: str) -> str:
    """A scalar's text as it is written in the file."""
    if not isinstance(node, yaml.ScalarNode):
        raise FieldError(f"{_at(where, node)}: expected text")
    return str(node.value)


def is_empty(node: yaml.Node | None) -> bool:
    """Whether a value is missing or was left empty; an explicit `null` is not empty."""
    return node is None or (yaml12.is_plain(node) and node.value == "")


def _at(where: str, node: yaml.Node | None) -> str:
    place = where or "the file"
    return place if node is None else f"{place} (line {node.start_mark.line + 1})"
