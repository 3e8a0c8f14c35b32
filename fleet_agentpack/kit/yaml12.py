"""YAML 1.2 on PyYAML's C parser: core scalars, duplicate keys refused, depth and size bounded."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_DEPTH = 100
MAX_NODES = 200_000

Path = tuple[str | int, ...]

_PLAIN_TAG = "!plain"


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Marks unquoted scalars, so that `5` and `!!str 5` can be told apart."""

    def resolve(self, kind: Any, _value: Any, implicit: Any) -> str:
        """The tag of a node without one; PyYAML's own table of patterns is slower, and for 1.1."""
        if kind is yaml.ScalarNode:
            return _PLAIN_TAG if implicit[0] else "tag:yaml.org,2002:str"
        return "tag:yaml.org,2002:seq" if kind is yaml.SequenceNode else "tag:yaml.org,2002:map"


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes every string that a 1.1 or a 1.2 reader would take for something else."""


_DEEP_BLOCKS = re.compile(rf"^ {{{MAX_DEPTH // 2 - 1}}}|(?:[-?:][ \t]+){{4}}", re.MULTILINE)
_MAX_DIGITS = 3500  # whatever the base, Python can still write the number in decimal


class YamlError(ValueError):
    """Text that is not acceptable YAML; says what and where."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        self.line = line
        self.column = column
        where = "" if line is None else f" (line {line})"
        super().__init__(message + where)


Scalar = str | int | float | bool | None

# The core schema: what a plain scalar looks like, and its value.
_CORE: dict[str, tuple[str, Callable[[str], Scalar]]] = {
    "null": (r"~|null|Null|NULL|", lambda _: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", lambda text: text[0] in "tT"),
    "int": (r"[-+]?[0-9]+", int),
    "octal": (r"0o[0-7]+", lambda text: int(text, 8)),
    "hex": (r"0x[0-9a-fA-F]+", lambda text: int(text, 16)),
    "float": (r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", float),
    "inf": (r"[-+]?\.(?:inf|Inf|INF)", lambda text: float(text.replace(".", ""))),
    "nan": (r"\.(?:nan|NaN|NAN)", lambda _: math.nan),
}
_PLAIN = re.compile("|".join(rf"(?P<{kind}>(?:{look})\Z)" for kind, (look, _) in _CORE.items()))
_EXPLICIT: dict[str, type] = {
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": float,
    "tag:yaml.org,2002:bool": bool,
}


@dataclass(frozen=True)
class Document:
    """Parsed data with the 1-based line of every key and item."""

    data: Any
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int | None:
        """The line of a path, or of its nearest parent that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def load(text: str) -> Any:
    """Parse one YAML document. Raises `YamlError`."""
    return value_of(compose(text))


def load_document(text: str) -> Document:
    """Parse one YAML document and remember where everything stands. Raises `YamlError`."""
    lines: dict[Path, int] = {}
    return Document(_Builder(lines).build(compose(text)), lines)


def dump(data: Any) -> str:
    """YAML text that any YAML 1.1 or 1.2 reader takes for the same data."""
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return str(text)


def is_plain(node: yaml.Node | None) -> bool:
    """Whether a node is an unquoted scalar."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _PLAIN_TAG


def value_of(node: yaml.Node | None) -> Any:
    """The data of a composed node. Raises `YamlError`."""
    return _Builder(None).build(node)


def compose(text: str) -> yaml.Node | None:
    """The node tree of one document, with every scalar's own text. Raises `YamlError`."""
    try:
        if _may_nest_deeply(text):
            _check_depth(text)
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
        return node
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise YamlError("a lone surrogate is not a character", line) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "not valid YAML"
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise YamlError(problem, *place) from error
    except yaml.YAMLError as error:
        raise YamlError(f"not valid YAML: {error}".splitlines()[0]) from error


def _may_nest_deeply(text: str) -> bool:
    """Whether the text could overflow the parser's recursion; cheap, and true too often.

    Blocks nest at most twice per column of indentation, unless several start on one line.
    """
    flow = text.count("[") + text.count("{")
    return flow > MAX_DEPTH or _DEEP_BLOCKS.search(text) is not None


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1 if event.start_mark else None
                raise YamlError(f"nested deeper than {MAX_DEPTH} levels", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Builder:
    """Turns composed nodes into Python data, expanding aliases within a budget."""

    def __init__(self, lines: dict[Path, int] | None) -> None:
        self._lines = lines
        self._nodes = 0

    def build(self, node: yaml.Node | None) -> object:
        return None if node is None else self._value(node, (), 0)

    def _value(self, node: yaml.Node, path: Path, depth: int) -> object:
        self._nodes += 1
        line = node.start_mark.line + 1
        if self._nodes > MAX_NODES:
            raise YamlError(f"more than {MAX_NODES} values; aliases expand too far", line)
        if depth > MAX_DEPTH:
            raise YamlError("an alias contains itself or nests too deeply", line)
        if self._lines is not None:
            self._lines.setdefault(path, line)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [self._value(item, (*path, index), depth + 1) for index, item in items]
        return self._mapping(node, path, depth)

    def _mapping(self, node: yaml.Node, path: Path, depth: int) -> dict[Hashable, object]:
        found: dict[Hashable, object] = {}
        for key_node, value_node in node.value:
            key = self._value(key_node, path, depth + 1)
            line = key_node.start_mark.line + 1
            if not isinstance(key, Hashable):
                raise YamlError("a mapping key must be a plain value", line)
            if key in found:
                raise YamlError(f"duplicate key {key!r}", line, key_node.start_mark.column + 1)
            part = key if isinstance(key, int) and not isinstance(key, bool) else str(key)
            if self._lines is not None:
                self._lines[(*path, part)] = line
            found[key] = self._value(value_node, (*path, part), depth + 1)
        return found


def _scalar(node: yaml.ScalarNode) -> Scalar:
    text: str = node.value
    if node.tag == _PLAIN_TAG:
        return _plain(text)
    if node.tag == "tag:yaml.org,2002:null":
        return None
    kind = _EXPLICIT.get(node.tag)
    if kind is None:
        return text
    value = _plain(text)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise YamlError(f"{text!r} is not a {kind.__name__}", node.start_mark.line + 1)
    return value


def _plain(text: str) -> Scalar:
    match = _PLAIN.match(text) if len(text) <= _MAX_DIGITS else None
    if match is None or match.lastgroup is None:
        return text
    _, made = _CORE[match.lastgroup]
    return made(text)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None if isinstance(_plain(text), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
