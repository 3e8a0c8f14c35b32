"""The use cases: plan, diff, status, doctor, deploy and rollback."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from msgspec import to_builtins

from fleet_agentpack.deploy import apply, results
from fleet_agentpack.deploy.apply import Proposal
from fleet_agentpack.deploy.compare import Change, Plan, plan
from fleet_agentpack.deploy.consent import foretold, mass_delete, refuse
from fleet_agentpack.deploy.disk import Disk, Reader
from fleet_agentpack.deploy.errors import DeployError, for_repo, naming
from fleet_agentpack.deploy.event import UNDO_PREFIX
from fleet_agentpack.deploy.following import Following, only
from fleet_agentpack.deploy.hashes import HashCache, cache_file
from fleet_agentpack.deploy.home import Home, machine_id
from fleet_agentpack.deploy.model import read_file
from fleet_agentpack.deploy.orphans import left_behind
from fleet_agentpack.deploy.ownership import FILE_NAME as RECORD
from fleet_agentpack.deploy.ownership import RecordFile
from fleet_agentpack.deploy.plan_memory import PlanMemory
from fleet_agentpack.deploy.questions import about_apply, only_approved
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.repo_write import finish_writing, half_written
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import Envelope, PlanData
from fleet_agentpack.deploy.running import locked, unfinished
from fleet_agentpack.deploy.snapshots import SnapshotStore
from fleet_agentpack.deploy.status import status_data
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.deploy.takeover import OwnershipReader
from fleet_agentpack.deploy.text_diff import LONGEST_TEXT, text_diffs, unified
from fleet_agentpack.deploy.transaction import Report, Transaction, silent
from fleet_agentpack.deploy.trees import TreeReader
from fleet_agentpack.deploy.workspace import Workspace, extras
from fleet_agentpack.kit.approval import Question
from fleet_agentpack.kit.collector import paused_collector
from fleet_agentpack.settings import Settings

if TYPE_CHECKING:
    from fleet_agentpack.deploy.importing.importer import Importer
    from fleet_agentpack.deploy.keeping.keeper import Keeper
    from fleet_agentpack.deploy.overlay_work import OverlayWork
    from fleet_agentpack.deploy.unchanged import Unchanged
    from fleet_agentpack.deploy.upkeep import Upkeep
    from fleet_agentpack.deploy.upkeep_results import Explanation
    from fleet_agentpack.deploy.ways_back import WaysBack

T = TypeVar("T")
LOCK_TIMEOUT_S = 10.0
Confirm = Callable[[Plan], bool]
Wish = bool | None  # None: as seems right


class DeployService:
    """Deploys a config repo to the tools it names. Safe to call from several threads."""

    def __init__(
        self,
        home: Home,
        *,
        disk: Callable[[HashCache], Disk] | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        unchanged: Unchanged | None = None,
    ) -> None:
        self._home = home
        self._disk = disk or (lambda hashes: Disk(hashes, durable=home.durable))
        self._lock_timeout_s = lock_timeout_s
        self._snapshots = SnapshotStore(home)
        self._ownership = OwnershipReader(RecordFile(home.ownership / RECORD), self._snapshots)
        self._caches: dict[str, RepoCache] = {}
        self._shown = PlanMemory()
        self._turn = threading.RLock()
        self._unchanged = unchanged

    # Made on first use: most sessions never ask for them.

    @cached_property
    def upkeep(self) -> Upkeep:
        """Looks after the config repo."""
        from fleet_agentpack.deploy.upkeep import Upkeep

        return Upkeep(self._home, self._cache)

    @cached_property
    def back(self) -> WaysBack:
        """Undoes what was deployed."""
        from fleet_agentpack.deploy.ways_back import WaysBack

        return WaysBack(
            self._home, self._snapshots, self._ownership, self._writing, self._lock_timeout_s
        )

    @cached_property
    def importer(self) -> Importer:
        """Brings what the tools already have into a pack."""
        from fleet_agentpack.deploy.importing.importer import Importer

        plan = self.plan
        return Importer(
            self._home, self._cache, self._workspace, lambda asked: plan(asked).data.summary
        )

    @cached_property
    def keeper(self) -> Keeper:
        """Takes edits back into the pack."""
        from fleet_agentpack.deploy.keeping.keeper import Keeper

        return Keeper(self._home, self._cache, self._propose, self._deployed_content, self._follow)

    @cached_property
    def overlays(self) -> OverlayWork:
        """Lists, makes and rebases overlays."""
        from fleet_agentpack.deploy.overlay_work import OverlayWork

        return OverlayWork(self._home, self._cache, self._workspace)

    # Commands that only read.

    @paused_collector()
    def plan(self, request: Request, name: str = "plan") -> Envelope[PlanData]:
        """What an apply would change."""
        with naming(name), self._cache(request) as cache:
            found = self._unless_changed("plan", request, lambda: self._planned(request, cache))
            data, warnings = found
            self._shown.show(request.session, data)
            return Envelope.of(name, data, warnings)

    @paused_collector()
    def diff(self, request: Request) -> Envelope[PlanData]:
        """The same as plan, with the differences as text."""
        with naming("diff"), self._cache(request) as cache:
            found = self._unless_changed("diff", request, lambda: self._compared(request, cache))
            data, warnings = found
            self._shown.show(request.session, data)
            return Envelope.of("diff", data, warnings)

    @paused_collector()
    def status(self, request: Request) -> Envelope[results.StatusData]:
        """How the disk differs from what should be there."""
        with naming("status"), self._cache(request) as cache:
            found = self._unless_changed("status", request, lambda: self._drift(request, cache))
            return Envelope.of("status", *found)

    def doctor(self, request: Request, *, fix: bool = False) -> Envelope[results.DoctorData]:
        """Whether the roots can be used; with `fix`, make git ignore the manifests."""
        from fleet_agentpack.deploy import doctor
        from fleet_agentpack.deploy.snapshot_list import pruning_advice

        name = "doctor --fix" if fix else "doctor"
        with naming(name), self._cache(request) as cache:
            workspace = self._workspace(request, cache)
            data, warnings = doctor.examine(workspace, fix=fix)
            advice = pruning_advice(self._snapshots)
            return Envelope.of(name, data, [*warnings, *advice, *unfinished(self._home)])

    def snapshots(self, limit: int | None = None) -> Envelope[results.SnapshotsData]:
        """The snapshots, newest first, with their sizes."""
        from fleet_agentpack.deploy.snapshot_list import listed

        with naming("snapshots"):
            return Envelope.of("snapshots", *listed(self._snapshots, limit))

    def snapshot(self, snapshot_id: str) -> Envelope[results.SnapshotData]:
        """One snapshot with its files and changes."""
        from fleet_agentpack.deploy import rollback

        with naming("snapshots"):
            if snapshot_id not in self._snapshots.ids():
                raise rollback.not_found(snapshot_id, self._snapshots.history())
            try:
                found = self._snapshots.load(snapshot_id)
            except ValueError as error:
                raise DeployError.because("snapshot_corrupt", str(error)) from error
            return Envelope.of("snapshots", results.SnapshotData(to_builtins(found.document())))

    def question(self, request: Request) -> Question:
        """What a person is asked before a deploy. Raises what would refuse it anyway."""
        with naming("deploy --apply"):
            found = self._proposal(request)
            mass = mass_delete(found)
            return about_apply(request, found.plan, mass.text if mass else "")

    # Commands that write.

    def deploy_approved(
        self, request: Request, report: Report, approved: str | None
    ) -> Envelope[PlanData]:
        """Deploy the plan with this digest. Raises `PlanChangedError` if it is another by now."""
        # Deleting a lot is risky: whoever can be asked was asked, and has agreed.
        asked = replace(request, allow_mass_delete=approved is not None)
        return self.deploy(asked, report, only_approved(request, approved))

    @paused_collector()
    def deploy(
        self,
        request: Request,
        report: Report = silent,
        confirm: Confirm | None = None,
        narrow: Callable[[Proposal], Proposal] = lambda whole: whole,
    ) -> Envelope[PlanData]:
        """Make the disk as the plan says; `confirm` may still say no. A dry run only plans.

        `narrow` makes it a part of the plan.
        """
        name = "deploy" if request.dry_run else "deploy --apply"
        with naming(name), self._cache(request) as cache:
            disk = self._disk(cache.reader.hashes)
            if request.dry_run:
                found = self._propose(request, cache, disk)
                self._shown.show(request.session, found.data)
                return apply.dry_run(found)
            finish_writing(self._home, self._home.repo(request.repo), self._lock_timeout_s)
            recovered = self._recover_pending(disk, report)
            seen = self._snapshots.ids()[-1:]
            found = narrow(self._propose(request, cache, disk, recovered))
            if not _approved(found, confirm):
                return apply.untouched(found)
            # The plan was made, and perhaps confirmed by a person, without the lock, which others
            # may need meanwhile. If somebody has deployed since, it is made and confirmed again.
            with locked(self._home, self._lock_timeout_s):
                if self._snapshots.ids()[-1:] != seen or self._home.journal.exists():
                    recovered += self._transaction(disk, report).recover()
                    found = narrow(self._propose(request, cache, disk, recovered))
                    if not _approved(found, confirm):
                        return apply.untouched(found)
                answer = self._apply(found, disk, report)
                other = self._shown.differences(request.session, answer.data)
                return replace(answer, warnings=(*answer.warnings, *other))

    def deploy_part(self, request: Request, wanted: Callable[[Change], bool]) -> Envelope[PlanData]:
        """Deploy some changes of the plan; all other files stay as they are."""
        return self.deploy(request, narrow=lambda found: only(found, wanted, self._stored))

    def rollback(
        self, to: str, report: Report = silent, approved: str | None = None
    ) -> Envelope[results.RollbackData]:
        """Go back to a snapshot, or to before one; recorded as an event of its own."""
        return self.back.rollback(to, report, approved)

    def close(self) -> None:
        """Let go of what only a server keeps, unless a call still uses it."""
        if self._unchanged is not None and self._turn.acquire(blocking=False):
            self._unchanged.close()
            self._turn.release()

    # Parts.

    def _unless_changed(self, name: str, request: Request, make: Callable[[], T]) -> T:
        """What was made last, if nothing that it was made from has changed since."""
        if self._unchanged is None:
            return make()
        variables = tuple(sorted(self._home.environ.items()))
        asked = replace(request, session=None)
        question = (name, asked, variables, machine_id(self._home, request.machine))
        return self._unchanged.answer(question, make)

    def _planned(self, request: Request, cache: RepoCache) -> tuple[PlanData, tuple[str, ...]]:
        found = self._propose(request, cache, Reader(cache.reader.hashes))
        return found.data, found.plan.warnings

    def _compared(self, request: Request, cache: RepoCache) -> tuple[PlanData, tuple[str, ...]]:
        found = self._propose(request, cache, Reader(cache.reader.hashes))
        text = unified(self._home, found.plan.changes, LONGEST_TEXT)
        return replace(found.data, text=text), found.plan.warnings

    def _drift(
        self, request: Request, cache: RepoCache
    ) -> tuple[results.StatusData, tuple[str, ...]]:
        reader = Reader(cache.reader.hashes)
        found = self._propose(request, cache, reader)
        data = status_data(found, extras(found.survey, reader, cache.reader.lister))
        return data, (*found.plan.warnings, *found.survey.unrecorded_warnings)

    def differences(self, request: Request) -> Plan:
        """The plan itself, for showing it to a person."""
        with naming("diff"):
            return self._proposal(request).plan

    def texts(self, found: Plan) -> Iterator[tuple[Change, str]]:
        """The differences of a plan as text, one by one."""
        return text_diffs(self._home, found.changes)

    def explain(self, request: Request, path: str) -> Envelope[Explanation]:
        """Which module and layer each line of a deployed file comes from."""
        from fleet_agentpack.deploy.explaining import explain

        with naming("explain"):
            return Envelope.of("explain", explain(self._proposal(request), path))

    @paused_collector()
    def _proposal(self, request: Request) -> Proposal:
        with self._cache(request) as cache:
            return self._propose(request, cache, Reader(cache.reader.hashes))

    def _propose(
        self, request: Request, cache: RepoCache, reader: Reader, recovered: Sequence[str] = ()
    ) -> Proposal:
        workspace, survey = self._survey(request, cache, reader)
        survey = replace(survey, warnings=(*recovered, *survey.warnings))
        found = Proposal(workspace, survey, plan(survey))
        warnings = (*found.plan.warnings, *foretold(found))
        return replace(found, plan=replace(found.plan, warnings=warnings))

    def _stored(self, sha256: str) -> str | None:
        """Where the content is that was deployed once with this hash."""
        kept = self._ownership.now().sources.get(sha256)
        places = (f"{self._home.contents}/{sha256}", *([kept] if kept else []))
        return next(filter(os.path.isfile, places), None)

    def _deployed_content(self, sha256: str) -> bytes | None:
        place = self._stored(sha256)
        return read_file(place) if place else None

    def _follow(self, request: Request, following: Following) -> list[str]:
        """Deploy what follows from edits that the pack has now; the files that it changed.

        A kept file may be written without a further word: the edit is part of what is written.
        """
        asked = replace(request, adopt=True, dry_run=False)
        answer = self.deploy_part(asked, following.covers)
        return [row.path for row in answer.data.changes] if answer.data.applied else []

    def _workspace(self, request: Request, cache: RepoCache) -> Workspace:
        return Workspace(self._home, request, cache, self._ownership.now())

    def _survey(
        self, request: Request, cache: RepoCache, reader: Reader
    ) -> tuple[Workspace, Survey]:
        workspace = self._workspace(request, cache)
        survey = workspace.survey(reader)
        cache.reader.hashes.save(lambda: cache.reader.paths | reader.looked_at)
        warnings = [
            *survey.warnings,
            *left_behind(workspace, workspace.places()),
            *unfinished(self._home),
            *half_written(workspace.repo),
        ]
        return workspace, replace(survey, warnings=tuple(dict.fromkeys(warnings)))

    def _apply(self, found: Proposal, disk: Disk, report: Report) -> Envelope[PlanData]:
        transaction = self._transaction(disk, report)
        transaction.recover()  # nothing is pending; this only removes abandoned staged files
        snapshot_id = self._snapshots.new_id()
        transaction.run(apply.batch_of(found, snapshot_id))
        kept = apply.edit_warnings(self._snapshots, snapshot_id, found.plan.edited)
        undo_id = f"{UNDO_PREFIX}{snapshot_id}"
        data = replace(found.data, applied=True, snapshot_id=snapshot_id, undo_snapshot_id=undo_id)
        return Envelope.of("deploy --apply", data, [*found.plan.warnings, *kept])

    def _transaction(self, disk: Disk, report: Report) -> Transaction:
        return Transaction(self._home, disk, report, self._ownership)

    def _recover_pending(self, disk: Disk, report: Report) -> list[str]:
        transaction = self._transaction(disk, report)
        if self._home.journal.exists():
            with locked(self._home, self._lock_timeout_s):
                return transaction.recover()
        if self._home.staging.exists():  # of somebody who is at work, or was killed at the end
            with suppress(DeployError), locked(self._home, 0):
                return transaction.recover()
        return []

    @contextmanager
    def _writing(self) -> Iterator[Disk]:
        with self._cache(Request()) as cache:
            yield self._disk(cache.reader.hashes)

    @contextmanager
    def _cache(self, request: Request) -> Iterator[RepoCache]:
        """What this process remembers about a repo, for one call at a time."""
        repo = str(self._home.repo(request.repo))
        with self._turn, for_repo(request.repo):
            if repo not in self._caches:
                place = self._home.place.path or str(self._home.cwd)
                file = cache_file(self._home.cache, str(self._home.root), place, repo)
                self._caches[repo] = RepoCache(TreeReader(HashCache(file)))
            yield self._caches[repo]


def _approved(found: Proposal, confirm: Confirm | None) -> bool:
    """Whether to apply: something changes, and it is confirmed. Raises `DeployError`."""
    refuse(found)
    return not found.is_needless and (confirm is None or confirm(found.plan))


def open_service(settings: Settings, unchanged: Unchanged | None = None) -> DeployService:
    """The service for the environment that the settings were read from."""
    cache = settings.directories.cache / "deploy"
    places = settings.home, settings.cwd, cache, settings.place
    home = Home.of(settings.environ, *places, settings.paths)
    return DeployService(home, unchanged=unchanged)
