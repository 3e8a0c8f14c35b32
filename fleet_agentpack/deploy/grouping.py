"""Sums up rows by directory, for answers that cannot show them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet_agentpack.kit.results import UNKNOWN, Maybe

if TYPE_CHECKING:
    from fleet_agentpack.deploy.results import ChangeRow, DriftRow


@dataclass(frozen=True)
class DirectoryChanges:
    """How many files below a directory an apply would write or delete."""

    directory: str
    target: str
    create: Maybe[int] = UNKNOWN
    update: Maybe[int] = UNKNOWN
    delete: Maybe[int] = UNKNOWN


@dataclass(frozen=True)
class DirectoryDrift:
    """How many files below a directory differ from the desired state."""

    directory: str
    target: str
    missing: Maybe[int] = UNKNOWN
    modified: Maybe[int] = UNKNOWN
    extra: Maybe[int] = UNKNOWN


_Place = tuple[str, str]  # a target and a directory
_Counts = Counter[tuple[_Place, str]]  # with what is counted there


def changes_by_directory(rows: Sequence[ChangeRow]) -> Iterator[Sequence[DirectoryChanges]]:
    """The changes by directory, then with fewer and fewer levels of directories."""
    for places in _levels((row.target, row.path_posix, row.op) for row in rows):
        yield [DirectoryChanges(where, target, **kinds) for (target, where), kinds in places]


def drift_by_directory(rows: Sequence[DriftRow]) -> Iterator[Sequence[DirectoryDrift]]:
    """The drift by directory, then with fewer and fewer levels of directories."""
    for places in _levels((row.target, row.path_posix, row.kind) for row in rows):
        yield [DirectoryDrift(where, target, **kinds) for (target, where), kinds in places]


def _levels(rows: Iterable[tuple[str, str, str]]) -> Iterator[list[tuple[_Place, dict[str, int]]]]:
    counts: _Counts = Counter(
        ((target, path.rpartition("/")[0]), kind) for target, path, kind in rows
    )
    deepest = max((where.count("/") for (_, where), _ in counts), default=0)
    for depth in range(deepest, 0, -1):
        counts = _shallower(counts, depth)
        places: dict[_Place, dict[str, int]] = {}
        for (place, kind), count in sorted(counts.items()):
            places.setdefault(place, {})[kind] = count
        yield list(places.items())


def _shallower(counts: _Counts, depth: int) -> _Counts:
    """The same counts with no directory deeper than this."""
    merged: _Counts = Counter()
    for ((target, where), kind), count in counts.items():
        merged[(target, "/".join(where.split("/")[: depth + 1])), kind] += count
    return merged
