"""Differences between two definitions, and what three of them add up to."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from fleet_agentpack.forge.command_results import MergeConflict
from fleet_agentpack.forge.forks.line_merge import merged_text
from fleet_agentpack.forge.parsing import KeyPath
from fleet_agentpack.forge.results import Difference
from fleet_agentpack.kit import yaml12

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


def unified(
    upstream: Mapping[str, object], local: Mapping[str, object], labels: tuple[str, str]
) -> str:
    """The same as a unified diff of canonical YAML."""
    before, after = _canonical(upstream), _canonical(local)
    return "".join(difflib.unified_diff(before, after, *labels))


def three_way(base: Any, local: Any, upstream: Any, path: KeyPath = ()) -> list[Edit | Conflict]:
    """What has to happen to `local` so that it also has upstream's changes since `base`.

    Texts of several lines are merged by line. Lists count as one value: half of each would be
    neither.
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
    if isinstance(base, str) and isinstance(local, str) and isinstance(upstream, str):
        text = merged_text(base, local, upstream) if "\n" in base else None
        if text is not None:
            return [Edit(path, text)]
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


def dotted(path: KeyPath) -> str:
    """A path as text."""
    return ".".join(str(part) for part in path)


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


def _canonical(data: Mapping[str, object]) -> list[str]:
    return yaml12.dump(_sorted(data)).splitlines(keepends=True)


def _sorted(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
