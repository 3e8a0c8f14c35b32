"""The answers of the deploy service, with the fields of the contract in the contract's order.

Rows that exist once per file are named tuples, because ten thousand of them are made per call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from fleet_agentpack.deploy.grouping import changes_by_directory, drift_by_directory
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.fit import Part, Rows, Text
from fleet_agentpack.kit.results import UNKNOWN, Maybe
from fleet_agentpack.version import __version__

SCHEMA_VERSION = 1

Data = TypeVar("Data")
Operation = Literal["create", "update", "delete"]
DriftKind = Literal["missing", "modified", "extra"]
Cause = Literal["pack_moved", "edited", "both"]
Reason = Literal["aborted", "no_changes"]
Issue = Literal["missing", "not_a_directory", "not_writable"]


@dataclass(frozen=True)
class Failure:
    """What went wrong: a stable code, a sentence, and details such as `next_actions`."""

    code: str
    message: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Envelope(Generic[Data]):
    """The frame of every answer; `command_id` is such as `deploy --apply`."""

    schema_version: int
    ok: bool
    command: str
    command_id: str
    command_path: tuple[str, ...]
    version: str
    data: Data
    warnings: tuple[str, ...]
    errors: tuple[Failure, ...]

    @classmethod
    def of(
        cls,
        command_id: str,
        data: Data,
        warnings: Iterable[str] = (),
        errors: Sequence[Failure] = (),
    ) -> Envelope[Data]:
        """The answer to a command."""
        path = tuple(command_id.split())
        return cls(
            SCHEMA_VERSION,
            not errors,
            path[0],
            command_id,
            path,
            __version__,
            data,
            tuple(warnings),
            tuple(errors),
        )


# plan, diff and deploy


class ChangeRow(NamedTuple):
    """One file that an apply would write or delete; a fact that is not true is left out."""

    adopts: Maybe[Literal[True]]  # it overwrites a file that agentpack did not write
    after_sha256: str | None
    before_sha256: str | None
    edited_by_hand: Maybe[Literal[True]]
    layer: Maybe[str]  # the module's own files, or the overlay that the content is from
    module_ids: Maybe[Sequence[str]]
    op: Operation
    path: str
    path_posix: str
    reason: str
    target: str
    update_kind: Maybe[str]  # for an update: `managed_update` or `adopt_update`

    @property
    def rank(self) -> int:
        """What takes something away counts first, then what replaces something."""
        overwrites = self.adopts is True or self.edited_by_hand is True
        return 0 if self.op == "delete" or overwrites else 1 if self.op == "update" else 2


@dataclass(frozen=True)
class ChangeCounts:
    """How many files of each operation."""

    create: int = 0
    delete: int = 0
    update: int = 0


@dataclass(frozen=True)
class ProfilesUsed:
    """The profiles that selected the files, where they are not the one that was asked for."""

    project: str
    user: str


@dataclass(frozen=True)
class TargetError:
    """A target that was left out, and why."""

    code: str
    details: Mapping[str, Any]
    message: str
    target: str


@dataclass(frozen=True, kw_only=True)
class PlanData:
    """What an apply would change; for a deploy also whether it did, and why not."""

    parts: ClassVar[tuple[Part, ...]] = (
        Rows(
            "changes",
            first=lambda row: row.rank,
            groups=("directories", changes_by_directory),
        ),
        Text("text"),
    )
    applied: Maybe[bool] = UNKNOWN
    reason: Maybe[Reason] = UNKNOWN
    snapshot_id: Maybe[str] = UNKNOWN
    undo_snapshot_id: Maybe[str] = UNKNOWN  # what a rollback takes to undo it
    changes: Sequence[ChangeRow]
    plan_id: str
    profile: str
    profiles: Maybe[ProfilesUsed] = UNKNOWN
    summary: ChangeCounts
    target_errors: Maybe[Sequence[TargetError]] = UNKNOWN
    targets: Sequence[str]
    text: Maybe[str] = UNKNOWN  # the differences, for `diff`


# status


class DriftRow(NamedTuple):
    """One file that differs from the desired state."""

    actual: str | None
    expected: str | None
    kind: DriftKind
    path: str
    path_posix: str
    root: str
    root_posix: str
    target: str
    adopts: Maybe[Literal[True]] = UNKNOWN  # there is a file that agentpack did not write
    cause: Maybe[Cause] = UNKNOWN  # who moved; unknown for files that agentpack did not write
    module_ids: Maybe[Sequence[str]] = UNKNOWN  # for a file that was edited


@dataclass(frozen=True)
class DriftCounts:
    """How many files of each kind of drift."""

    extra: int = 0
    missing: int = 0
    modified: int = 0


@dataclass(frozen=True)
class RootDrift:
    """The counts for one root."""

    root: str
    root_posix: str
    summary: DriftCounts
    target: str


@dataclass(frozen=True)
class NextAction:
    """A command that makes sense next."""

    action: Literal["keep_edits", "diff", "deploy_apply"]
    command: Action


@dataclass(frozen=True)
class StatusData:
    """How the disk differs from the desired state."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("drift", groups=("directories", drift_by_directory)),)
    drift: Sequence[DriftRow]
    profile: str
    summary: DriftCounts
    summary_by_root: Sequence[RootDrift]
    targets: Sequence[str]
    summary_total: Maybe[DriftCounts] = UNKNOWN  # when only some kinds were asked for
    next_actions: Maybe[Sequence[Action]] = UNKNOWN
    next_actions_detailed: Maybe[Sequence[NextAction]] = UNKNOWN
    profiles: Maybe[ProfilesUsed] = UNKNOWN
    target_errors: Maybe[Sequence[TargetError]] = UNKNOWN


# doctor


@dataclass(frozen=True)
class GitignoreFix:
    """A git work tree that now ignores the target manifests."""

    gitignore_path: str
    gitignore_path_posix: str
    repo_root: str
    repo_root_posix: str
    updated: bool


@dataclass(frozen=True)
class RootCheck:
    """Whether a root can be used."""

    exists: bool
    issues: Sequence[Issue]
    root: str
    root_posix: str
    scan_extras: bool
    suggestion: str | None
    target: str
    writable: bool


@dataclass(frozen=True)
class DoctorData:
    """The state of every root."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("roots"),)
    gitignore_fixes: Sequence[GitignoreFix]
    machine_id: str
    roots: Sequence[RootCheck]
    next_actions: Maybe[Sequence[Action]] = UNKNOWN


# rollback and snapshots


@dataclass(frozen=True)
class RollbackData:
    """A rollback that was carried out, recorded as a snapshot of its own."""

    event_snapshot_id: str
    rolled_back_to: str


@dataclass(frozen=True)
class UninstallData:
    """An uninstall that was carried out, recorded as a snapshot of its own if it did anything."""

    files_deleted: int
    files_restored: int
    event_snapshot_id: Maybe[str] = UNKNOWN


@dataclass(frozen=True)
class RestoreRow:
    """One file that a rollback would restore or delete."""

    op: str
    path: str
    path_posix: str
    target: str


@dataclass(frozen=True, kw_only=True)
class RollbackPreview:
    """What a rollback would change."""

    applied: bool = False
    changes: Sequence[RestoreRow]
    reason: str = "dry_run"
    rolled_back_to: str


@dataclass(frozen=True)
class SnapshotRow:
    """A snapshot in the list of all; its bytes are what it added to the state."""

    bytes: int
    changes: int
    created_at: str
    files: int
    id: str
    kind: str
    rolled_back_to: str | None
    targets: Sequence[str]
    undo_snapshot_id: Maybe[str] = UNKNOWN  # what a rollback takes to go to before it


@dataclass(frozen=True)
class SnapshotsData:
    """The snapshots, newest first, and the bytes of all there are."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("snapshots"),)
    snapshots: Sequence[SnapshotRow]
    bytes: int


@dataclass(frozen=True)
class PruneData:
    """Snapshots that were removed, or would be."""

    bytes: int
    snapshots: Sequence[str]
    applied: bool = True
    reason: Maybe[str] = UNKNOWN


@dataclass(frozen=True)
class SnapshotData:
    """One snapshot as it is stored."""

    parts: ClassVar[tuple[Part, ...]] = (Text("snapshot"),)
    snapshot: Mapping[str, object]


# init, lock, fetch and update


@dataclass(frozen=True)
class GitSetup:
    """The git repository of a new config repo."""

    gitignore_path: str
    gitignore_path_posix: str
    gitignore_updated: bool
    initialized: bool


@dataclass(frozen=True)
class Initialized:
    """A new config repo."""

    repo: str
    repo_posix: str
    git: Maybe[GitSetup] = UNKNOWN
    next_actions: Maybe[Sequence[Action]] = UNKNOWN


@dataclass(frozen=True)
class Locked:
    """A lockfile that was written."""

    lockfile: str
    lockfile_posix: str
    modules: int


@dataclass(frozen=True)
class Fetched:
    """The pinned commits that are in the store."""

    git_modules_fetched: int
    store: str
    store_posix: str


@dataclass(frozen=True)
class UpdateStep:
    """One step of an update."""

    detail: Locked | Fetched
    name: Literal["lock", "fetch"]
    ok: bool = True


@dataclass(frozen=True)
class Updated(Fetched):
    """What an update did, step by step."""

    lockfile: str
    lockfile_posix: str
    steps: Sequence[UpdateStep]
