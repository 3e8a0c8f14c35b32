"""The answer of `keep`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.fit import Part, Rows
from fleet_agentpack.kit.results import UNKNOWN, Maybe


@dataclass(frozen=True)
class KeptRow:
    """A file of the pack that takes over an edit."""

    path: str  # the deployed file
    module_id: str
    file: str  # the file of the pack
    layer: str  # the module itself, or the overlay


@dataclass(frozen=True)
class ConflictRow:
    """An edit that could not be taken over, and why; a copy has both sides where there are two."""

    path: str
    module_ids: Sequence[str]
    reason: str
    copy: Maybe[str] = UNKNOWN


@dataclass(frozen=True, kw_only=True)
class KeepData:
    """What was kept, and what could not be."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("kept"), Rows("conflicts"))
    applied: bool
    reason: Maybe[Literal["dry_run", "no_changes", "aborted"]] = UNKNOWN
    kept: Sequence[KeptRow]
    conflicts: Sequence[ConflictRow]
    updated: Sequence[str] = ()  # other deployed files of the same modules, brought up to date
    next_actions: Maybe[Sequence[Action]] = UNKNOWN
