"""The text of a definition, cut at its keys; how two differ, and what three of them add up to."""

from __future__ import annotations

import copy
import difflib
import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar

import yaml

from fleet_agentpack.forge.definition import KeyPath, dotted
from fleet_agentpack.forge.results import Difference
from fleet_agentpack.kit import frontmatter, yaml12

_FENCE = "---\n"
_TOML_NAME = re.compile(r"^name[ \t]*=.*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """The lines of one top-level key, with the comments above it."""

    key: str
    text: str


@dataclass(frozen=True)
class DefinitionText:
    """A YAML file, or a Markdown file with its header; line ends are `\\n`."""

    lead: str  # what stands before the first key
    blocks: tuple[Block, ...]
    values: Mapping[str, Any]
    body: str | None = None  # of Markdown
    fences: tuple[str, str] = ("", "")

    def block(self, key: str) -> str | None:
        """The lines of a key."""
        return next((each.text for each in self.blocks if each.key == key), None)

    def with_block(self, key: str, text: str, after: str | None = None) -> DefinitionText:
        """The same with other lines for a key, which may be new."""
        new = Block(key, text)
        keys = [each.key for each in self.blocks]
        if key in keys:
            blocks = tuple(new if each.key == key else each for each in self.blocks)
        else:
            at = keys.index(after) + 1 if after in keys else len(keys)
            blocks = (*self.blocks[:at], new, *self.blocks[at:])
        fenced = self.body is None or self.fences[0]
        return replace(self, blocks=blocks, fences=self.fences if fenced else (_FENCE, _FENCE))

    def with_value(self, key: str, value: object) -> DefinitionText:
        """The same with another value for a key; the comments above it stay."""
        before = (self.block(key) or "").splitlines(keepends=True)
        comments = []
        for line in before:
            if line.strip() and not line.lstrip().startswith("#"):
                break
            comments.append(line)
        return self.with_block(key, "".join(comments) + yaml12.dump({key: value}))

    def without(self, key: str) -> DefinitionText:
        """The same without a key."""
        return replace(self, blocks=tuple(each for each in self.blocks if each.key != key))

    def __str__(self) -> str:
        header = self.lead + "".join(each.text for each in self.blocks)
        return f"{self.fences[0]}{header}{self.fences[1]}{self.body or ''}"


def cut(text: str, suffix: str) -> DefinitionText | None:
    """The text in parts; None where it has no top-level keys on lines of their own."""
    text = text.replace("\r\n", "\n")
    if suffix == ".md":
        split = frontmatter.split(text)
        if split.header is None:
            return DefinitionText("", (), {}, text)
        start = text.index("\n") + 1
        closing = text[start + len(split.header) : len(text) - len(split.body)]
        fences = (text[:start], closing if closing.endswith("\n") else f"{closing}\n")
        return _cut_yaml(split.header, split.body, fences)
    return _cut_yaml(text, None, ("", "")) if suffix in (".yaml", ".yml") else None


def renamed(text: str, suffix: str, name: str) -> str:
    """The text under another name; nothing else changes, and a text without a name stays so."""
    if suffix == ".toml":
        return _TOML_NAME.sub(lambda _: f'name = "{name}"', text, count=1)
    parts = cut(text, suffix)
    if parts is None or "name" not in parts.values:
        return text
    return with_line_ends(str(parts.with_value("name", name)), text)


def with_line_ends(text: str, like: str) -> str:
    """The text with the line ends of another."""
    return text.replace("\n", "\r\n") if "\r\n" in like else text


def _cut_yaml(header: str, body: str | None, fences: tuple[str, str]) -> DefinitionText | None:
    try:
        node = yaml12.compose(header)
        values = yaml12.load(header)
    except yaml12.YamlError:
        return None
    if node is None:
        return DefinitionText(header, (), {}, body, fences)
    if not isinstance(node, yaml.MappingNode) or node.flow_style or not isinstance(values, dict):
        return None
    marks = [key.start_mark for key, _ in node.value]
    if any(mark.column for mark in marks) or not all(_is_key(key) for key, _ in node.value):
        return None
    lines = header.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    starts = [_with_comments(lines, mark.line, first=at == 0) for at, mark in enumerate(marks)]
    ends = [*starts[1:], len(lines)]
    keys = [str(key.value) for key, _ in node.value]
    if len(set(keys)) != len(keys):
        return None
    blocks = tuple(
        Block(key, "".join(lines[start:end]))
        for key, start, end in zip(keys, starts, ends, strict=True)
    )
    named = {str(key): value for key, value in values.items()}
    return DefinitionText("".join(lines[: starts[0]]), blocks, named, body, fences)


def _is_key(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


def _with_comments(lines: list[str], start: int, *, first: bool) -> int:
    """The line on which a key begins, the comments above it included."""
    if first:
        return start
    while start and lines[start - 1].startswith("#"):
        start -= 1
    return start


@dataclass(frozen=True)
class MergeConflict:
    """A value that both sides changed; a missing side is null."""

    path: str
    base: object
    local: object
    upstream: object


T = TypeVar("T")

# What always differs between a fork and its upstream says nothing about either.
NOT_COMPARED = ("name", "fork_of", "fork")


class _Missing(enum.Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING


@dataclass(frozen=True)
class Edit:
    """A value to put at a path, or `MISSING` to take it away."""

    path: KeyPath
    value: Any


@dataclass(frozen=True)
class Conflict:
    """A path that both sides changed, each in its own way."""

    path: KeyPath
    base: Any
    local: Any
    upstream: Any

    def shown(self) -> MergeConflict:
        """The conflict for a reader."""
        sides = (self.base, self.local, self.upstream)
        return MergeConflict(dotted(self.path), *map(_or_null, sides))


def compared(data: Mapping[str, T]) -> Mapping[str, T]:
    """The fields of a definition that a comparison looks at."""
    return {key: value for key, value in data.items() if key not in NOT_COMPARED}


def differences(
    upstream: Mapping[str, object], local: Mapping[str, object]
) -> tuple[Difference, ...]:
    """Every leaf that differs, upstream's order first; `added` means only the fork has it."""
    theirs, ours = dict(_leaves(upstream)), dict(_leaves(local))
    pairs = {
        path: (theirs.get(path, MISSING), ours.get(path, MISSING)) for path in {**theirs, **ours}
    }
    return tuple(
        Difference(dotted(path), _or_null(after), _or_null(before), _change_type(before, after))
        for path, (before, after) in pairs.items()
        if not same(before, after)
    )


def line_diff(before: str, after: str, labels: tuple[str, str]) -> str:
    """A unified diff of two texts, whatever their line ends."""
    old, new = (text.replace("\r\n", "\n").splitlines(keepends=True) for text in (before, after))
    lines = difflib.unified_diff(old, new, *labels)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def applied(
    data: Mapping[str, object], results: Sequence[Edit | Conflict], *, take: bool
) -> object:
    """A copy of data with some edits, and with upstream's side of conflicts if that is taken."""
    changed = copy.deepcopy(data)
    for each in results:
        value = each.value if isinstance(each, Edit) else each.upstream
        if isinstance(each, Conflict) and not take:
            continue
        target: Any = changed
        for part in each.path[:-1]:
            target = target.setdefault(part, {})
        if value is MISSING:
            target.pop(each.path[-1], None)
        else:
            target[each.path[-1]] = value
    return changed


def three_way(base: Any, local: Any, upstream: Any, path: KeyPath = ()) -> list[Edit | Conflict]:
    """What has to happen to `local` so that it also has upstream's changes since `base`.

    Lists count as one value: half of each would be neither.
    """
    if same(local, upstream) or same(upstream, base):
        return []
    if isinstance(local, dict) and isinstance(upstream, dict):
        known = base if isinstance(base, dict) else {}
        results: list[Edit | Conflict] = []
        for key in dict.fromkeys([*known, *local, *upstream]):
            before, ours, theirs = (side.get(key, MISSING) for side in (known, local, upstream))
            results += three_way(before, ours, theirs, (*path, key))
        return results
    if same(local, base):
        return [Edit(path, upstream)]
    return [Conflict(path, base, local, upstream)]


def same(one: Any, other: Any) -> bool:
    """Equality that distinguishes `1` from `true` and `1.0`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and one != one:
        return other != other
    return type(one) is type(other) and bool(one == other)


def _or_null(value: object) -> object:
    return None if value is MISSING else value


def _change_type(before: object, after: object) -> Literal["added", "removed", "modified"]:
    return "added" if before is MISSING else "removed" if after is MISSING else "modified"


def _leaves(value: object, path: KeyPath = ()) -> list[tuple[KeyPath, object]]:
    if isinstance(value, Mapping) and (value or not path):
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, str(key)))]
    if isinstance(value, list) and value:
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, (*path, index))]
    return [(path, value)]


Side = Literal["ours", "theirs"]

MOST_LINES = 5_000  # of one text; a longer one is taken as a whole


@dataclass(frozen=True)
class Merged:
    """A text with both sides' changes; where they collide, with both between markers."""

    text: str
    changes: tuple[str, ...] = ()  # what upstream brought
    conflicts: tuple[Conflict, ...] = ()


@dataclass(frozen=True)
class Sides:
    """How a merge names the two sides, and which of them wins where they collide."""

    ours: str
    theirs: str
    prefer: Side | None = None

    def settle(self, local: str, upstream: str) -> str:
        """One of two texts, or both between markers."""
        if self.prefer:
            return local if self.prefer == "ours" else upstream
        mine, yours = _closed(local), _closed(upstream)
        return f"<<<<<<< {self.ours}\n{mine}=======\n{yours}>>>>>>> {self.theirs}\n"


def merge_definition(
    base: str | None, local: str, upstream: str, suffix: str, body_name: str, sides: Sides
) -> Merged:
    """Merge a definition: its keys one by one, its Markdown body by lines.

    Without a base nobody knows which side changed, so every difference is a conflict.
    """
    ours, theirs = cut(local, suffix), cut(upstream, suffix)
    before = cut(base, suffix) if base is not None else None
    if ours is None or theirs is None or (base is not None and before is None):
        return merge_lines(base, local, upstream, body_name, sides)
    merged, changes, conflicts = ours, list[str](), list[Conflict]()
    previous: str | None = None
    for key in dict.fromkeys([*ours.values, *theirs.values]):
        step = _merged_key(key, before, ours, theirs, sides)
        changes += step.changes
        conflicts += step.conflicts
        if step.text != (ours.block(key) or ""):
            new = merged.with_block(key, step.text, previous)
            merged = new if step.text else merged.without(key)
        previous = key if key in theirs.values else previous
    body = merge_lines(
        before.body if before else None, ours.body or "", theirs.body or "", body_name, sides
    )
    whole = DefinitionText(merged.lead, merged.blocks, {}, body.text, merged.fences)
    text = with_line_ends(str(whole), local)
    return Merged(text, (*changes, *body.changes), (*conflicts, *body.conflicts))


def merge_lines(base: str | None, local: str, upstream: str, name: str, sides: Sides) -> Merged:
    """Merge texts by the hunks in which they differ from the base."""
    ours, theirs = (text.replace("\r\n", "\n") for text in (local, upstream))
    if ours == theirs:
        return Merged(local)
    if base is None:
        conflict = Conflict((name,), MISSING, ours, theirs)
        return Merged(with_line_ends(sides.settle(ours, theirs), local), (), (conflict,))
    texts = (base.replace("\r\n", "\n"), ours, theirs)
    before, mine, yours = (text.splitlines(keepends=True) for text in texts)
    merged: list[str] = []
    conflicts: list[Conflict] = []
    at = 0
    for start, end, left, right in _regions(before, mine, yours):
        old = before[start:end]
        merged += before[at:start]
        at = end
        if left == right or right == old:
            merged += left
        elif left == old:
            merged += right
        else:
            where = (f"{name} (line {len(merged) + 1})",)
            sides_of = ("".join(each) for each in (old, left, right))
            conflicts.append(Conflict(where, *sides_of))
            merged += sides.settle("".join(left), "".join(right)).splitlines(keepends=True)
    merged += before[at:]
    text = "".join(merged)
    changed = text != ours and not (conflicts and sides.prefer == "ours")
    return Merged(with_line_ends(text, local), (name,) if changed else (), tuple(conflicts))


@dataclass(frozen=True)
class _Change:
    """Lines of the base, from `start` to before `end`, and what one side has in their place."""

    start: int
    end: int
    lines: tuple[str, ...]


def _regions(
    before: list[str], mine: list[str], yours: list[str]
) -> list[tuple[int, int, list[str], list[str]]]:
    """Runs of the base that either side changed, and what each has there.

    Changes that overlap or touch belong to one run: whether they fit nobody can tell by lines.
    """
    ours, theirs = _changes(before, mine), _changes(before, yours)
    regions: list[tuple[int, int]] = []
    for change in sorted({*ours, *theirs}, key=lambda each: (each.start, each.end)):
        if regions and change.start <= regions[-1][1]:
            regions[-1] = (regions[-1][0], max(regions[-1][1], change.end))
        else:
            regions.append((change.start, change.end))
    return [
        (start, end, _inside(before, ours, start, end), _inside(before, theirs, start, end))
        for start, end in regions
    ]


def _inside(before: list[str], changes: list[_Change], start: int, end: int) -> list[str]:
    lines, at = [], start
    for change in changes:
        if start <= change.start and change.end <= end:
            lines += [*before[at : change.start], *change.lines]
            at = change.end
    return lines + before[at:end]


def _changes(before: list[str], after: list[str]) -> list[_Change]:
    if max(len(before), len(after)) > MOST_LINES:
        return [_Change(0, len(before), tuple(after))] if before != after else []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [
        _Change(start, end, tuple(after[first:last]))
        for tag, start, end, first, last in matcher.get_opcodes()
        if tag != "equal"
    ]


def _merged_key(
    key: str,
    before: DefinitionText | None,
    ours: DefinitionText,
    theirs: DefinitionText,
    sides: Sides,
) -> Merged:
    local, upstream = ours.values.get(key, MISSING), theirs.values.get(key, MISSING)
    mine, yours = ours.block(key) or "", theirs.block(key) or ""
    if key in NOT_COMPARED or same(local, upstream):
        return Merged(mine)
    if before is None:
        if upstream is MISSING or key == "version":
            return Merged(mine)
        return Merged(sides.settle(mine, yours), (), (Conflict((key,), MISSING, local, upstream),))
    base = before.values.get(key, MISSING)
    if same(upstream, base):
        return Merged(mine)
    if same(local, base):
        return Merged(yours, (key,))
    if key == "version":  # a fork counts its own versions
        return Merged(mine)
    return _both_changed(key, before.block(key) or "", mine, yours, (base, local, upstream), sides)


def _both_changed(
    key: str, old: str, mine: str, yours: str, values: tuple[Any, Any, Any], sides: Sides
) -> Merged:
    base, local, upstream = values
    if old and mine and yours:
        by_line = merge_lines(old, mine, yours, key, sides)
        if not by_line.conflicts and _is_value_of(by_line.text, key):
            return Merged(by_line.text, (key,))
    results = three_way(base, local, upstream, (key,))
    conflicts = tuple(each for each in results if isinstance(each, Conflict))
    if conflicts and (sides.prefer is None or conflicts[0].path == (key,)):
        return Merged(sides.settle(mine, yours), (), conflicts)
    merged = applied({key: local}, results, take=sides.prefer == "theirs")
    return Merged(yaml12.dump(merged), (key,), conflicts)


def _is_value_of(block: str, key: str) -> bool:
    try:
        value = yaml12.load(block)
    except yaml12.YamlError:
        return False
    return isinstance(value, Mapping) and list(value) == [key]


def _closed(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"
