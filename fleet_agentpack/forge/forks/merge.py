"""Brings upstream's changes into a fork: planned first, written only when nothing is in dispute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from fleet_agentpack.forge.command_results import Merge
from fleet_agentpack.forge.definitions.definition import Definition, read_data
from fleet_agentpack.forge.definitions.inheritance import inherit
from fleet_agentpack.forge.definitions.resolver import Resolver
from fleet_agentpack.forge.errors import ForgeError, run
from fleet_agentpack.forge.files import timestamp, write_text, writing_below
from fleet_agentpack.forge.forks.changes import MISSING, Conflict, Edit, compared, dotted, three_way
from fleet_agentpack.forge.forks.file_edits import edited
from fleet_agentpack.forge.forks.forks import Fork, Forks
from fleet_agentpack.forge.loaded import Loaded, Warnings
from fleet_agentpack.kit.results import UNKNOWN, Maybe, jsonable
from fleet_agentpack.kit.semver import is_newer

Side = Literal["ours", "theirs"]


@dataclass(frozen=True)
class MergePlan:
    """What a merge would change, and what both sides changed."""

    fork: Fork
    upstream: Definition
    edits: tuple[Edit, ...]
    conflicts: tuple[Conflict, ...]
    base_is_known: bool = True  # whether the version that was forked can still be read
    warnings: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether upstream has anything that the fork was not merged with yet."""
        return bool(self.edits or self.conflicts) or is_newer(
            self.upstream.version, self.fork.upstream.version
        )

    def shown(self, *, merged: Maybe[bool] = UNKNOWN, warnings: Warnings = UNKNOWN) -> Merge:
        """The plan for a reader."""
        return Merge(
            name=self.fork.name,
            type=self.fork.kind,
            path=self.fork.shown,
            from_=self.fork.upstream.version,
            to=self.upstream.version,
            changes=tuple(dotted(edit.path) for edit in self.edits),
            conflicts=tuple(conflict.shown() for conflict in self.conflicts),
            merged=merged,
            warnings=warnings,
        )


def plan_merge(forks: Forks, resolver: Resolver, name: str) -> MergePlan:
    """What upstream changed since the fork was made. Raises `ForgeError`."""
    found = forks.find(name)
    fork = found.value
    upstream = forks.upstream_of(fork)
    base = _base_of(fork, forks)
    theirs = inherit(upstream.value, resolver)
    warnings = [*found.warnings, *upstream.warnings, *base.warnings, *theirs.warnings]
    results: Sequence[Edit | Conflict]
    local, remote = compared(forks.definition_of(fork).data), compared(theirs.checked().fields)
    if base.value is None:
        results = [_disputed(each) for each in three_way({}, local, remote)]
    else:
        before = inherit(base.value, resolver)
        warnings += before.warnings
        results = three_way(compared(before.checked().fields), local, remote)
    # A fork counts its own versions: where both sides moved on, its number stays.
    settled = [each for each in results if not _is_version_conflict(each)]
    return MergePlan(
        fork,
        upstream.value,
        tuple(each for each in settled if isinstance(each, Edit)),
        tuple(each for each in settled if isinstance(each, Conflict)),
        base.value is not None,
        tuple(warnings),
    )


def _base_of(fork: Fork, forks: Forks) -> Loaded[Definition | None]:
    """The version that was forked, None when it is no longer available."""
    if not fork.upstream.version:
        return Loaded(None)
    try:
        return forks.upstream_of(fork, fork.upstream.version)
    except ForgeError as error:
        if error.code not in ("AGENT_NOT_FOUND", "TOOL_NOT_FOUND"):
            raise
        return Loaded(None)


def _disputed(result: Edit | Conflict) -> Conflict:
    """Without a base it is unknown which side changed, so a person has to decide."""
    if isinstance(result, Conflict):
        return result
    return Conflict(result.path, MISSING, MISSING, result.value)


def merge(
    forks: Forks, resolver: Resolver, root: Path, name: str, prefer: Side | None, now: datetime
) -> MergePlan:
    """Merge upstream into a fork below a `.fractary` directory. Raises `ForgeError`."""
    # Planned under the lock, so that nothing changes the fork between reading and writing.
    with writing_below(root):
        plan = plan_merge(forks, resolver, name)
        if plan.is_needed:
            write_merge(plan, prefer, now)
    return plan


def write_merge(plan: MergePlan, prefer: Side | None, now: datetime) -> None:
    """Write a planned merge. Raises `ForgeError` `CONFLICT_ERROR`, with nothing written."""
    if plan.conflicts and prefer is None:
        fields = ", ".join(dotted(conflict.path) for conflict in plan.conflicts)
        what = f"Both {plan.fork.name} and its upstream changed {fields}"
        if not plan.base_is_known:
            source = f"{plan.fork.upstream.name} {plan.fork.upstream.version}".rstrip()
            what = (
                f"{source} is no longer available, so every difference needs a decision: {fields}"
            )
        raise ForgeError.conflict(
            f"{what}; nothing was written",
            run("Take upstream's: {}", "merge", plan.fork.name, "--theirs"),
            run("Keep the fork's: {}", "merge", plan.fork.name, "--ours"),
            **jsonable(plan.shown()),
        )
    taken = plan.conflicts if prefer == "theirs" else ()
    edits = [*plan.edits, *(Edit(each.path, each.upstream) for each in taken)]
    text = edited(plan.fork.path, plan.fork.kind, [*edits, *_record(plan, now)])
    try:
        write_text(plan.fork.path, text)
    except OSError as error:
        raise ForgeError.unwritable(plan.fork.path, error) from error


def _record(plan: MergePlan, now: datetime) -> list[Edit]:
    """The fork record as it reads after a merge."""
    moment = timestamp(now)
    current = read_data(plan.fork.path, plan.fork.kind).get("fork_of")
    updates = {"version": plan.upstream.version, "merged_at": moment}
    if isinstance(current, dict):
        return [Edit(("fork_of", key), value) for key, value in updates.items()]
    record = plan.fork.upstream
    whole = {"name": record.name, "forked_at": record.created_at or moment, **updates}
    return [Edit(("fork_of",), whole)]


def _is_version_conflict(result: Edit | Conflict) -> bool:
    return isinstance(result, Conflict) and result.path == ("version",)
