"""`keep`: takes edits of deployed files back into the pack, all of them or none."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from fleet_agentpack.deploy.actions import call
from fleet_agentpack.deploy.apply import Proposal
from fleet_agentpack.deploy.compare import Change
from fleet_agentpack.deploy.disk import Reader
from fleet_agentpack.deploy.errors import DeployError, naming
from fleet_agentpack.deploy.following import Following
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.importing.secrets import adds_secret
from fleet_agentpack.deploy.keeping.destinations import (
    Destination,
    NoPlaceError,
    To,
    destination,
)
from fleet_agentpack.deploy.keeping.merging import merge
from fleet_agentpack.deploy.keeping.results import ConflictRow, KeepData, KeptRow
from fleet_agentpack.deploy.keeping.unrender import CannotSplitError, Part, parts_of
from fleet_agentpack.deploy.manifest import Module
from fleet_agentpack.deploy.model import Blob, Output, read_file
from fleet_agentpack.deploy.overlay_baseline import metadata_files
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.repo_write import finish_writing, write_together
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import Envelope
from fleet_agentpack.deploy.running import locked
from fleet_agentpack.deploy.same_place import is_at
from fleet_agentpack.deploy.trees import Tree
from fleet_agentpack.deploy.validate import validate
from fleet_agentpack.deploy.workspace import Workspace
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.results import UNKNOWN

LOCK_TIMEOUT_S = 10.0

Caches = Callable[[Request], AbstractContextManager[RepoCache]]
Propose = Callable[[Request, RepoCache, Reader], Proposal]
Confirm = Callable[[KeepData], bool]


@dataclass(frozen=True)
class KeepRequest:
    """Which edits to keep, and where."""

    asked: Request
    paths: tuple[str, ...] = ()  # all edited files, if none is named
    to: To | None = None  # where each comes from, unless that is not ours to change
    dry_run: bool = False


@dataclass(frozen=True)
class _Write:
    """New content for one file of the pack."""

    place: Destination
    module: Module
    data: bytes
    executable: bool
    path: str  # the deployed file that it is from


@dataclass(frozen=True)
class _Proposal:
    writes: Sequence[_Write]
    data: KeepData
    conflicts: Mapping[str, bytes]  # texts with markers, by where they are put
    described: Mapping[str, bytes]  # what new overlays say about themselves
    # What is deployed then. The text of its files is in the pack, but for blank lines that belong
    # to no module.
    following: Following
    something_waits: bool  # whether more of the pack is to be deployed than what follows

    @property
    def files(self) -> dict[str, tuple[bytes, bool]]:
        """Everything to write, with whether it is executable."""
        edits = {write.place.path: (write.data, write.executable) for write in self.writes}
        return {**{path: (data, False) for path, data in self.described.items()}, **edits}


class _ConflictError(Exception):
    """An edit that cannot be taken over."""

    def __init__(self, reason: str, marked: bytes | None = None) -> None:
        super().__init__(reason)
        self.marked = marked


class Keeper:
    """Brings edits back into the pack."""

    def __init__(
        self,
        home: Home,
        caches: Caches,
        propose: Propose,
        deployed: Callable[[str], bytes | None],
        deploy: Callable[[Request, Following], Sequence[str]],
    ) -> None:
        """`deployed` has contents by their hash; `deploy` names the files that it changed."""
        self._home = home
        self._caches = caches
        self._propose = propose
        self._deployed = deployed
        self._deploy = deploy

    def run(self, request: KeepRequest, confirm: Confirm | None = None) -> Envelope[KeepData]:
        """Keep the edits, unless it is a dry run, one cannot be kept, or `confirm` says no."""
        with naming("keep"):
            repo = self._home.repo(request.asked.repo)
            if not request.dry_run:
                finish_writing(self._home, repo)
            found = self._look(request)
            if request.dry_run:
                return Envelope.of("keep", replace(found.data, reason="dry_run"))
            self._put_aside(found)
            if not found.following.paths or found.data.conflicts:
                return Envelope.of("keep", replace(found.data, reason="no_changes"))
            if confirm is not None and not confirm(found.data):
                return Envelope.of("keep", replace(found.data, reason="aborted"))
            with locked(self._home, LOCK_TIMEOUT_S):
                found = self._look(request)
                if found.data.conflicts:
                    return Envelope.of("keep", replace(found.data, reason="no_changes"))
                if found.writes:
                    write_together(repo, found.files)
            # The record then has the edited text as what was deployed, and other files that
            # are made from the same modules follow.
            updated = self._deploy(request.asked, found.following)
            data = replace(found.data, applied=True, updated=updated)
            if found.something_waits:
                apply = call(request.asked, "deploy_apply", "deploy", "--apply", yes=True)
                data = replace(data, next_actions=[apply])
            return Envelope.of("keep", data)

    def _look(self, request: KeepRequest) -> _Proposal:
        with self._caches(request.asked) as cache:
            reader = Reader(cache.reader.hashes)
            found = self._propose(request.asked, cache, reader)
            changes = self._chosen(found, request.paths)
            writes: dict[str, _Write] = {}
            kept: list[KeptRow] = []
            conflicts: list[ConflictRow] = []
            marked: dict[str, bytes] = {}
            as_before: set[str] = set()
            for change in changes:
                try:
                    made = self._writes(found, change, request.to)
                    if not made:
                        as_before.add(change.path)
                    for write in made:
                        _join(writes, write)
                        row = KeptRow(
                            change.path, write.module.id, write.place.path, write.place.layer
                        )
                        kept.append(row)
                except _ConflictError as error:
                    copy = self._copy_of(change.path) if error.marked is not None else UNKNOWN
                    if isinstance(copy, str) and error.marked is not None:
                        marked[copy] = error.marked
                    ids = list(change.module_ids)
                    conflicts.append(ConflictRow(change.path, ids, str(error), copy))
            described = self._described(found.workspace, writes.values())
        data = KeepData(applied=False, kept=kept, conflicts=conflicts)
        of_kept = frozenset(row.module_id for row in kept)
        edited = {row.path for row in kept} | as_before
        following = Following(frozenset(edited | _same_as_found(found, of_kept)), of_kept)
        waits = any(not following.covers(change) for change in found.plan.changes)
        return _Proposal(list(writes.values()), data, marked, described, following, waits)

    def _chosen(self, found: Proposal, paths: Sequence[str]) -> list[Change]:
        """The edited files, or those that are named: there, also files that were there before."""
        edited = found.plan.edited
        if not paths:
            return edited
        places = [os.path.normpath(self._home.paths.resolve(path)) for path in paths]
        candidates = [*edited, *(each for each in found.plan.adopted if each not in edited)]
        chosen = [each for each in candidates if any(is_at(each.path, place) for place in places)]
        for place in places:
            if not any(is_at(change.path, place) for change in chosen):
                raise DeployError.because(
                    "nothing_to_keep",
                    f"{place} has no edit to keep: it is as it was deployed, or not of the pack",
                    path=place,
                )
        return chosen

    def _writes(self, found: Proposal, change: Change, to: To | None) -> list[_Write]:
        """What one edited file changes in the pack. Raises `_ConflictError`."""
        output = change.output
        if output is None or change.before is None:
            raise _ConflictError("it is not part of the pack any more")
        if change.is_relinked:
            raise _ConflictError(f"it is a link to {change.before.link} now, and no edited file")
        edited = read_file(change.path)
        trees = {name: found.workspace.tree(name, output) for name in output.module_ids}
        try:
            parts = parts_of(output, trees, self._merged(change, output, edited))
        except CannotSplitError as error:
            raise _ConflictError(str(error)) from error
        writes = []
        for part in parts:
            blob = trees[part.module_id][part.name]
            if hashlib.sha256(part.data).hexdigest() == blob.sha256:
                continue
            if adds_secret(blob.read(), part.data):
                raise _ConflictError(
                    "the edit holds what looks like a secret, which a pack must not"
                )
            place = self._place(found, output, part, trees, to)
            module = found.workspace.module(part.module_id)
            _check(module, trees[module.id], part)
            writes.append(_Write(place, module, part.data, blob.executable, change.path))
        return writes

    def _merged(self, change: Change, output: Output, edited: bytes) -> bytes:
        """The edited text, with what the pack has changed since it was deployed."""
        if change.recorded is None or change.recorded == output.blob.sha256:
            return edited
        base = self._deployed(change.recorded)
        if base is None:
            raise _ConflictError("the pack has changed too, and what was deployed is not known")
        try:
            merged = merge(self._home, base, edited, output.blob.read())
        except DeployError as error:
            raise _ConflictError(f"the pack has changed too; {error.message}") from error
        if merged.conflicts:
            raise _ConflictError("the pack has changed the same lines", merged.data)
        return merged.data

    def _place(
        self,
        found: Proposal,
        output: Output,
        part: Part,
        trees: Mapping[str, Tree],
        to: To | None,
    ) -> Destination:
        workspace = found.workspace
        module, blob = workspace.module(part.module_id), trees[part.module_id][part.name]
        scope = workspace.scope_of(output)
        try:
            return destination(
                str(workspace.repo), workspace.overlays, module, scope, part.name, blob, to
            )
        except NoPlaceError as error:
            raise _ConflictError(str(error)) from error

    def _described(self, workspace: Workspace, writes: Iterable[_Write]) -> dict[str, bytes]:
        """What overlays that do not exist yet say about the modules that they change."""
        new = {w.place.overlay: w.module for w in writes if w.place.overlay}
        found: dict[str, bytes] = {}
        for directory, module in new.items():
            if not os.path.isdir(directory):
                upstream, tree, entries = workspace.modules.upstream(module)
                files = metadata_files(self._home, workspace.repo, module, upstream, entries, tree)
                found |= {f"{directory}/{name}": data for name, data in files.items()}
        return found

    def _copy_of(self, path: str) -> str:
        digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        name = os.path.basename(path)
        return str(self._home.root / "state" / "conflicts" / f"{digest}-{name}")

    def _put_aside(self, found: _Proposal) -> None:
        for place, data in found.conflicts.items():
            write_atomic(Path(place), data, mode=0o600)


def _check(module: Module, tree: Tree, part: Part) -> None:
    """A module that no tool could take any more would stand in the way of all others."""
    was_text = module.type == "instructions" and _is_text(tree[part.name].read())
    if was_text and not _is_text(part.data):
        raise _ConflictError("the edit is not UTF-8 text")
    try:
        validate(module, {**tree, part.name: Blob.of(part.data)})
    except DeployError as error:
        raise _ConflictError(f"with this edit, {error.message}") from error


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _same_as_found(found: Proposal, module_ids: Collection[str]) -> set[str]:
    """Files of some modules that were there with the pack's very text, and still are so."""
    survey = found.survey
    entries = {
        output.path: (survey.recorded.entry(output.root, output.path), survey.actual[output.path])
        for output in survey.desired.all
        if not set(module_ids).isdisjoint(output.module_ids)
    }
    return {
        path
        for path, (entry, state) in entries.items()
        if entry and state and entry.is_shared and entry.sha256 == state.sha256
    }


def _join(writes: dict[str, _Write], write: _Write) -> None:
    """Two deployed files of one module must agree on what it becomes."""
    other = writes.get(write.place.path)
    if other is not None and other.data != write.data:
        raise _ConflictError(f"{other.path} is of the same module, and was edited differently")
    writes[write.place.path] = write
