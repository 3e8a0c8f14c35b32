"""Values that come with warnings, so that no warning is lost or kept anywhere else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from fleet_agentpack.kit.results import UNKNOWN, Maybe

T = TypeVar("T", covariant=True)
Warnings = Maybe[tuple[str, ...]]  # the field of an answer, left out without any

MOST_WARNINGS = 50


@dataclass(frozen=True)
class Loaded(Generic[T]):
    """A value and the warnings that came up while it was read."""

    value: T
    warnings: tuple[str, ...] = ()


def noted(*groups: Iterable[str]) -> Warnings:
    """The warnings for an answer: each once, and the first fifty of them."""
    warnings = tuple(dict.fromkeys(chain(*groups)))
    left = len(warnings) - MOST_WARNINGS
    if left > 0:
        warnings = (*warnings[:MOST_WARNINGS], f"… and {left} more warnings")
    return warnings or UNKNOWN
