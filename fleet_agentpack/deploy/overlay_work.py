"""`overlay`: lists overlays, makes them, and brings them up to the module that they change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from fleet_agentpack.deploy.errors import DeployError, naming
from fleet_agentpack.deploy.home import Home, git
from fleet_agentpack.deploy.keeping.merging import merge
from fleet_agentpack.deploy.manifest import Module
from fleet_agentpack.deploy.model import Layer
from fleet_agentpack.deploy.module_entries import no_module
from fleet_agentpack.deploy.overlay_baseline import base_of, metadata_files
from fleet_agentpack.deploy.overlays import SCOPES, Baseline, Overlay, baseline_of, kind_of
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.repo_write import finish_writing, write_together
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import Envelope
from fleet_agentpack.deploy.running import locked
from fleet_agentpack.deploy.trees import METADATA_DIR
from fleet_agentpack.deploy.upkeep_results import (
    OverlayMade,
    OverlayPath,
    OverlayRow,
    OverlaysData,
    Rebased,
    RebaseReport,
)
from fleet_agentpack.deploy.workspace import Workspace
from fleet_agentpack.kit.files import write_atomic

Caches = Callable[[Request], AbstractContextManager[RepoCache]]
Workspaces = Callable[[Request, RepoCache], Workspace]
LOCK_TIMEOUT_S = 10.0


class OverlayWork:
    """What is done with overlays; no deployed file is changed."""

    def __init__(self, home: Home, caches: Caches, workspace: Workspaces) -> None:
        self._home = home
        self._caches = caches
        self._workspace = workspace

    def list(self, request: Request) -> Envelope[OverlaysData]:
        """Every overlay of this machine and this project."""
        with naming("overlay list"), self._caches(request) as cache:
            workspace = self._workspace(request, cache)
            found = [
                _row(workspace, module, overlay)
                for module in workspace.manifest.modules
                for overlay in workspace.overlays.of(module.id)
            ]
            return Envelope.of("overlay list", OverlaysData(found))

    def path(self, request: Request, module_id: str, scope: Layer) -> Envelope[OverlayPath]:
        """Where a module's overlay is, or would be."""
        with naming("overlay path"), self._caches(request) as cache:
            directory = _directory(self._workspace(request, cache), module_id, scope)
            return Envelope.of("overlay path", OverlayPath(module_id, directory, directory, scope))

    def edit(
        self, request: Request, module_id: str, scope: Layer, *, sparse: bool
    ) -> Envelope[OverlayMade]:
        """Make an overlay with copies of the module's files, unless it is there already."""
        with naming("overlay edit"), self._caches(request) as cache:
            finish_writing(self._home, self._home.repo(request.repo))
            workspace = self._workspace(request, cache)
            module = _module(workspace, module_id)
            directory = _directory(workspace, module_id, scope)
            if os.path.isdir(directory):
                made = OverlayMade(module_id, directory, directory, scope, False, ())
                return Envelope.of("overlay edit", made)
            upstream, tree, entries = workspace.modules.upstream(module)
            described = metadata_files(self._home, workspace.repo, module, upstream, entries, tree)
            copies = {} if sparse else {n: (b.read(), b.executable) for n, b in tree.items()}
            files = {**{name: (data, False) for name, data in described.items()}, **copies}
            with locked(self._home, LOCK_TIMEOUT_S):
                places = {f"{directory}/{name}": content for name, content in files.items()}
                write_together(workspace.repo, places)
            made = OverlayMade(module_id, directory, directory, scope, True, sorted(copies))
            return Envelope.of("overlay edit", made)

    def rebase(
        self, request: Request, module_id: str, scope: Layer, *, sparsify: bool = False
    ) -> Envelope[Rebased]:
        """Bring an overlay up to what its module is now: all of it, or nothing.

        Raises `DeployError`; where both sides changed the same lines, copies have both.
        """
        with naming("overlay rebase"), self._caches(request) as cache:
            if not request.dry_run:
                finish_writing(self._home, self._home.repo(request.repo))
            workspace = self._workspace(request, cache)
            module = _module(workspace, module_id)
            overlay = _existing(workspace, module_id, scope)
            rebase = _Rebase(self._home, workspace, module, overlay, sparsify)
            rebase.run()
            report = rebase.report
            place = overlay.directory
            if report.conflicts and not request.dry_run:
                for path, data in rebase.marked.items():
                    write_atomic(Path(path), data)
                raise DeployError(
                    "E_OVERLAY_REBASE_CONFLICT",
                    f"{len(report.conflicts)} file(s) of the overlay and of the module changed in"
                    " the same lines; nothing was written but copies that show both:"
                    f" {', '.join(rebase.marked)}",
                    overlay_dir=place,
                    conflicts=list(report.conflicts),
                    copies=list(rebase.marked),
                    hint="put the text that you want into the overlay's file, then run it again",
                )
            if not request.dry_run:
                with locked(self._home, LOCK_TIMEOUT_S):
                    write_together(workspace.repo, rebase.files)
            done = Rebased(
                module_id, place, place, scope, request.dry_run, report, list(rebase.marked)
            )
            return Envelope.of("overlay rebase", done)


@dataclass
class _Rebase:
    """One overlay on its way to the module as it is now."""

    home: Home
    workspace: Workspace
    module: Module
    overlay: Overlay
    sparsify: bool
    files: dict[str, tuple[bytes, bool] | None] = field(default_factory=dict)  # to be written
    marked: dict[str, bytes] = field(default_factory=dict)  # texts with both sides
    outcome: dict[str, list[str]] = field(default_factory=dict)

    @property
    def report(self) -> RebaseReport:
        """What became of each file."""
        kinds = ("conflicts", "deleted", "skipped", "updated")
        return RebaseReport(*(sorted(self.outcome.get(kind, [])) for kind in kinds))

    def run(self) -> None:
        """Decide about every file."""
        baseline = self._baseline()
        upstream, tree, entries = self.workspace.modules.upstream(self.module)
        files, patches = self.workspace.overlays.contents(self.overlay, self.workspace.cache.reader)
        then = {entry.path: entry.sha256 for entry in baseline.file_manifest}
        for name in sorted({*files, *patches}):
            if name not in then:
                self._say("skipped", name)
                continue
            base = self._base(name, then[name], tree[name].read() if name in tree else None)
            now = tree[name].read() if name in tree else None
            if name in patches:
                self._patch(name, patches[name].read(), base, now)
            else:
                self._file(name, files[name].read(), files[name].executable, base, now)
        if not self.outcome.get("conflicts"):
            kind = "patch" if patches else "dir"
            described = metadata_files(
                self.home, self.workspace.repo, self.module, upstream, entries, tree, kind
            )
            for name, data in described.items():
                self.files[f"{self.overlay.directory}/{name}"] = (data, False)

    def _file(
        self, name: str, ours: bytes, executable: bool, base: bytes, now: bytes | None
    ) -> None:
        place = f"{self.overlay.directory}/{name}"
        if now is None or (ours == base and self.sparsify) or (ours == now and self.sparsify):
            if ours in (base, now):
                self.files[place] = None
                self._say("deleted", name)
            else:
                self._say("skipped", name)
            return
        if now == base or ours == now:
            return
        merged = merge(self.home, base, ours, now)
        if merged.conflicts:
            self._conflict(name, merged.data)
            return
        self.files[place] = (merged.data, executable)
        self._say("updated", name)

    def _patch(self, name: str, patch: bytes, base: bytes, now: bytes | None) -> None:
        place = f"{self.overlay.metadata}/patches/{name}.patch"
        if now is None:
            self._say("skipped", name)
            return
        if now == base:
            return
        ours = self.workspace.overlays.patched_text(name, base, patch)
        merged = merge(self.home, base, ours, now)
        if merged.conflicts:
            self._conflict(name, merged.data)
            return
        made = self.workspace.overlays.patch_text(name, now, merged.data)
        self.files[place] = (made, False) if made else None
        self._say("updated" if made else "deleted", name)

    def _conflict(self, name: str, data: bytes) -> None:
        self.marked[f"{self.overlay.directory}/{METADATA_DIR}/conflicts/{name}"] = data
        self._say("conflicts", name)

    def _say(self, kind: str, name: str) -> None:
        self.outcome.setdefault(kind, []).append(name)

    def _baseline(self) -> Baseline:
        found = baseline_of(self.overlay)
        if found is None:
            raise DeployError(
                "E_OVERLAY_BASELINE_MISSING",
                f"the overlay {self.overlay.directory} does not say what it was made from",
                overlay_dir=self.overlay.directory,
                hint="move it away, run `fleet-agentpack overlay edit`, and put your files back",
            )
        return found

    def _base(self, name: str, sha256: str, now: bytes | None) -> bytes:
        """A module's file as it was when the overlay was made."""
        if now is not None and hashlib.sha256(now).hexdigest() == sha256:
            return now
        kept = base_of(self.overlay.directory, name, sha256)
        for data in (kept, *self._in_history(name)):
            if data is not None and hashlib.sha256(data).hexdigest() == sha256:
                return data
        raise DeployError(
            "E_OVERLAY_BASELINE_UNSUPPORTED",
            f"{name} of {self.module.id} as it was when the overlay was made cannot be found",
            path=name,
            expected_sha256=sha256,
            hint="compare the overlay's file with the module's, and merge them by hand",
        )

    def _in_history(self, name: str) -> Iterator[bytes | None]:
        """The file in the commits of the repo, newest first, for overlays that 0.9.1 made."""
        local = self.module.source.local_path
        if local is None:
            return
        path = os.path.normpath(os.path.join(local, name))
        repo = self.workspace.repo
        revisions = git(self.home, repo, "rev-list", "-n", "200", "HEAD", "--", path)
        for revision in revisions.text.split() if revisions.status == 0 else ():
            shown = git(self.home, repo, "show", f"{revision}:./{path}")
            yield shown.stdout if shown.status == 0 else None


def _row(workspace: Workspace, module: Module, overlay: Overlay) -> OverlayRow:
    files, patches = workspace.overlays.contents(overlay, workspace.cache.reader)
    baseline = baseline_of(overlay)
    drift: list[str] = []
    if baseline is not None:
        _, _, entries = workspace.modules.upstream(module)
        now = {entry.path: entry.sha256 for entry in entries}
        then = {entry.path: entry.sha256 for entry in baseline.file_manifest}
        mine = {*files, *patches} & then.keys()
        drift = sorted(name for name in mine if now.get(name) != then[name])
    count = len(files) + len(patches)
    return OverlayRow(module.id, overlay.scope, overlay.directory, kind_of(overlay), count, drift)


def _module(workspace: Workspace, module_id: str) -> Module:
    for module in workspace.manifest.modules:
        if module.id == module_id:
            return module
    raise no_module(module_id, workspace.manifest)


def _directory(workspace: Workspace, module_id: str, scope: Layer) -> str:
    found = workspace.overlays.directory(scope, module_id)
    if found is None:
        raise DeployError("E_PROJECT_REQUIRED", "a project's overlay needs a project")
    return found


def _existing(workspace: Workspace, module_id: str, scope: Layer) -> Overlay:
    for overlay in workspace.overlays.of(module_id):
        if overlay.scope == scope:
            return overlay
    known = ", ".join(each.scope for each in workspace.overlays.of(module_id))
    raise DeployError(
        "E_OVERLAY_NOT_FOUND",
        f"{module_id} has no {scope} overlay" + (f", but: {known}" if known else ""),
        module_id=module_id,
        scopes=list(SCOPES),
        hint="`fleet-agentpack overlay edit` makes one",
    )
