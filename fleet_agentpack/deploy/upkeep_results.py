"""The answers of the commands that look after a config repo's modules and overlays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fleet_agentpack.kit.fit import Part, Rows
from fleet_agentpack.kit.results import UNKNOWN, Maybe


@dataclass(frozen=True)
class ModuleChanged:
    """A module that was added to the manifest, or taken out."""

    manifest: str
    manifest_posix: str
    module_id: str


@dataclass(frozen=True)
class OutdatedRow:
    """A git module, what it is pinned to, and what its ref points to now."""

    module_id: str
    url: str
    ref: str
    pinned: str | None
    newest: str | None
    outdated: bool
    problem: Maybe[str] = UNKNOWN  # why the newest is not known


@dataclass(frozen=True)
class OutdatedData:
    """The git modules."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("modules"),)
    modules: Sequence[OutdatedRow]


@dataclass(frozen=True)
class SectionRow:
    """Lines of a deployed file, and where they come from."""

    first_line: int
    last_line: int
    module_id: str
    layer: str  # the module's own files, an overlay, or an edit by hand
    file: str
    edit_in: Maybe[str] = UNKNOWN  # an overlay's copy of the file, which is what is deployed


@dataclass(frozen=True)
class Explanation:
    """Where a deployed file comes from."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("sections"),)
    path: str
    target: str
    scope: str
    state: str  # as the pack has it, edited, missing …
    sections: Sequence[SectionRow]


@dataclass(frozen=True)
class OverlayRow:
    """An overlay that exists."""

    module_id: str
    scope: str
    overlay_dir: str
    overlay_kind: str
    files: int
    drift: Sequence[str] = ()  # files whose upstream has changed since


@dataclass(frozen=True)
class OverlaysData:
    """The overlays of this machine and this project."""

    parts: ClassVar[tuple[Part, ...]] = (Rows("overlays"),)
    overlays: Sequence[OverlayRow]


@dataclass(frozen=True)
class OverlayPath:
    """Where a module's overlay is, or would be."""

    module_id: str
    overlay_dir: str
    overlay_dir_posix: str
    scope: str


@dataclass(frozen=True)
class OverlayMade(OverlayPath):
    """An overlay that can be edited now."""

    created: bool
    files: Sequence[str]


@dataclass(frozen=True)
class RebaseReport:
    """What became of each file of an overlay."""

    conflicts: Sequence[str] = ()
    deleted: Sequence[str] = ()
    skipped: Sequence[str] = ()
    updated: Sequence[str] = ()


@dataclass(frozen=True)
class Rebased(OverlayPath):
    """An overlay that was brought up to its upstream."""

    dry_run: bool
    report: RebaseReport
    copies: Sequence[str] = ()  # texts with markers, for the conflicts
