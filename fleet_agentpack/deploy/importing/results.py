"""The answer of an import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from fleet_agentpack.deploy.results import ChangeCounts
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.fit import Part, Rows
from fleet_agentpack.kit.results import UNKNOWN, Maybe


@dataclass(frozen=True)
class ModuleRow:
    """A module that an import makes."""

    id: str
    type: str
    scope: str
    targets: Sequence[str]
    path: str  # in the repo
    sources: Sequence[str]  # the user's own files


@dataclass(frozen=True)
class SkippedRow:
    """Something that stays where it is, and why."""

    path: str
    what: str
    reason: str


@dataclass(frozen=True)
class SecretRow:
    """Where a value stands that looks like a secret; it stays in the user's file."""

    path: str
    key: str


@dataclass(frozen=True, kw_only=True)
class ImportData:
    """What an import brings into the pack, what it leaves, and the secrets that it met."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("modules"), Rows("skipped"), Rows("secrets"))
    applied: bool
    reason: Maybe[Literal["dry_run", "no_changes", "aborted"]] = UNKNOWN
    modules: Sequence[ModuleRow]
    skipped: Sequence[SkippedRow]
    secrets: Sequence[SecretRow]
    already: int  # how many were in the pack before
    repo: str
    plan: Maybe[ChangeCounts] = UNKNOWN  # what an apply would change now
    next_actions: Maybe[Sequence[Action]] = UNKNOWN
