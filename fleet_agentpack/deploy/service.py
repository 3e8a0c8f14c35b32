"""The use cases: plan, diff, status, doctor, deploy and rollback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fleet_agentpack.deploy import apply, doctor, results, rollback
from fleet_agentpack.deploy.apply import Proposal
from fleet_agentpack.deploy.compare import Change, Plan, plan
from fleet_agentpack.deploy.consent import foretold, mass_delete, refuse
from fleet_agentpack.deploy.disk import Disk, Reader
from fleet_agentpack.deploy.errors import DeployError, naming
from fleet_agentpack.deploy.hashes import HashCache, cache_file
from fleet_agentpack.deploy.home import Home, machine_id
from fleet_agentpack.deploy.orphans import left_behind
from fleet_agentpack.deploy.plan_memory import PlanMemory
from fleet_agentpack.deploy.questions import about_apply, about_rollback, only_approved
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import Envelope, PlanData, Reason
from fleet_agentpack.deploy.rollback import Rollback
from fleet_agentpack.deploy.running import locked, unfinished
from fleet_agentpack.deploy.snapshots import SnapshotStore
from fleet_agentpack.deploy.status import status_data
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.deploy.text_diff import LONGEST_TEXT, text_diffs, unified
from fleet_agentpack.deploy.transaction import Report, Transaction, silent
from fleet_agentpack.deploy.trees import TreeReader
from fleet_agentpack.deploy.upkeep import Upkeep
from fleet_agentpack.deploy.workspace import Workspace, extras
from fleet_agentpack.kit.approval import Question
from fleet_agentpack.kit.collector import paused_collector
from fleet_agentpack.settings import Settings

if TYPE_CHECKING:
    from fleet_agentpack.deploy.unchanged import Unchanged

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
        self._caches: dict[str, RepoCache] = {}
        self._shown = PlanMemory()
        self.upkeep = Upkeep(home, self._cache)
        self._turn = threading.RLock()
        self._unchanged = unchanged

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
        name = "doctor --fix" if fix else "doctor"
        with naming(name), self._cache(request) as cache:
            workspace = Workspace(self._home, request, cache, self._snapshots)
            data, warnings = doctor.examine(workspace, fix=fix)
            return Envelope.of(name, data, [*warnings, *unfinished(self._home)])

    def snapshots(self) -> Envelope[results.SnapshotsData]:
        """All snapshots, newest first."""
        with naming("snapshots"):
            history = self._snapshots.history()
            rows = [
                results.SnapshotRow(
                    sum(not change.is_manifest for change in snapshot.changes),
                    snapshot.created_at,
                    len(snapshot.managed_files),
                    snapshot.id,
                    snapshot.kind,
                    snapshot.rolled_back_to,
                    snapshot.targets,
                )
                for snapshot in reversed(history.snapshots)
            ]
            return Envelope.of("snapshots", results.SnapshotsData(rows), history.warnings)

    def snapshot(self, snapshot_id: str) -> Envelope[results.SnapshotData]:
        """One snapshot with its files and changes."""
        with naming("snapshots"):
            if snapshot_id not in self._snapshots.ids():
                raise rollback.not_found(snapshot_id, self._snapshots.history())
            try:
                found = self._snapshots.load(snapshot_id)
            except ValueError as error:
                raise DeployError.because("snapshot_corrupt", str(error)) from error
            return Envelope.of("snapshots", results.SnapshotData(found.document()))

    def preview_rollback(self, to: str) -> Envelope[results.RollbackPreview]:
        """What a rollback would change."""
        prepared = self._would_roll_back(to)
        steps = prepared.steps
        rows = [results.RestoreRow(step.op, step.path, step.path, step.target) for step in steps]
        data = results.RollbackPreview(changes=rows, rolled_back_to=to)
        return Envelope.of("rollback", data, prepared.warnings)

    def question(self, request: Request) -> Question:
        """What a person is asked before a deploy. Raises what would refuse it anyway."""
        with naming("deploy --apply"):
            found = self._proposal(request)
            mass = mass_delete(found)
            return about_apply(request, found.plan, mass.text if mass else "")

    def rollback_question(self, to: str) -> Question:
        """What a person is asked before a rollback."""
        return about_rollback(self._would_roll_back(to))

    # Commands that write.

    def deploy_approved(
        self, request: Request, report: Report, approved: str | None
    ) -> Envelope[PlanData]:
        """Deploy the plan with this digest. Raises `PlanChangedError` if it is another by now."""
        # Deleting a lot is risky: whoever can be asked was asked, and has agreed.
        asked = replace(request, allow_mass_delete=approved is not None)
        return self.deploy(asked, report, only_approved(request, approved))

    def deploy(
        self, request: Request, report: Report = silent, confirm: Confirm | None = None
    ) -> Envelope[PlanData]:
        """Make the disk as the plan says; `confirm` may still say no. A dry run only plans."""
        name = "deploy" if request.dry_run else "deploy --apply"
        with naming(name), self._cache(request) as cache:
            disk = self._disk(cache.reader.hashes)
            if request.dry_run:
                found = self._propose(request, cache, disk)
                self._shown.show(request.session, found.data)
                return _dry_run(found)
            recovered = self._recover_pending(disk, report)
            seen = self._snapshots.ids()[-1:]
            found = self._propose(request, cache, disk, recovered)
            if not _approved(found, confirm):
                return _untouched(found)
            # The plan was made, and perhaps confirmed by a person, without the lock, which others
            # may need meanwhile. If somebody has deployed since, it is made and confirmed again.
            with locked(self._home, self._lock_timeout_s):
                if self._snapshots.ids()[-1:] != seen or self._home.journal.exists():
                    recovered += Transaction(self._home, disk, report).recover()
                    found = self._propose(request, cache, disk, recovered)
                    if not _approved(found, confirm):
                        return _untouched(found)
                answer = self._apply(found, disk, report)
                other = self._shown.differences(request.session, answer.data)
                return replace(answer, warnings=(*answer.warnings, *other))

    def rollback(
        self, to: str, report: Report = silent, approved: str | None = None
    ) -> Envelope[results.RollbackData]:
        """Go back to a snapshot; recorded as an event of its own.

        Raises `PlanChangedError` if it is not, or no longer, the approved one.
        """
        with naming("rollback"), self._cache(Request()) as cache:
            disk = self._disk(cache.reader.hashes)
            # A refused call writes nothing, not even the lock file: refuse before locking.
            rollback.choose(self._snapshots.history(), self._snapshots, to)
            with locked(self._home, self._lock_timeout_s):
                recovered = Transaction(self._home, disk, report).recover()
                history = self._snapshots.history()
                chosen = rollback.choose(history, self._snapshots, to)
                prepared = rollback.prepare(history, self._snapshots, chosen, disk)
                if approved is not None:
                    about_rollback(prepared).check(approved)
                event_id = self._snapshots.new_id()
                Transaction(self._home, disk, report).run(prepared.batch(event_id))
            warnings = [
                *recovered,
                *history.warnings,
                *prepared.warnings,
                *apply.edit_warnings(self._snapshots, event_id, prepared.edited),
            ]
            return Envelope.of("rollback", results.RollbackData(event_id, to), warnings)

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

    def _would_roll_back(self, to: str) -> Rollback:
        with naming("rollback"), self._cache(Request()) as cache:
            history, reader = self._snapshots.history(), Reader(cache.reader.hashes)
            chosen = rollback.choose(history, self._snapshots, to)
            return rollback.prepare(history, self._snapshots, chosen, reader)

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

    def _survey(
        self, request: Request, cache: RepoCache, reader: Reader
    ) -> tuple[Workspace, Survey]:
        workspace = Workspace(self._home, request, cache, self._snapshots)
        survey = workspace.survey(reader)
        cache.reader.hashes.save(lambda: cache.reader.paths | reader.looked_at)
        warnings = [
            *survey.warnings,
            *left_behind(workspace, workspace.places()),
            *unfinished(self._home),
        ]
        return workspace, replace(survey, warnings=tuple(dict.fromkeys(warnings)))

    def _apply(self, found: Proposal, disk: Disk, report: Report) -> Envelope[PlanData]:
        transaction = Transaction(self._home, disk, report)
        transaction.recover()  # nothing is pending; this only removes abandoned staged files
        snapshot_id = self._snapshots.new_id()
        transaction.run(apply.batch_of(found, snapshot_id))
        for change in found.plan.deletes:
            disk.remove_emptied(change.root, change.path)
        kept = apply.edit_warnings(self._snapshots, snapshot_id, found.plan.edited)
        data = replace(found.data, applied=True, snapshot_id=snapshot_id)
        return Envelope.of("deploy --apply", data, [*found.plan.warnings, *kept])

    def _recover_pending(self, disk: Disk, report: Report) -> list[str]:
        if not self._home.journal.exists():
            return []
        with locked(self._home, self._lock_timeout_s):
            return Transaction(self._home, disk, report).recover()

    @contextmanager
    def _cache(self, request: Request) -> Iterator[RepoCache]:
        """What this process remembers about a repo, for one call at a time."""
        repo = str(self._home.repo(request.repo))
        with self._turn:
            if repo not in self._caches:
                file = cache_file(self._home.cache, str(self._home.root), str(self._home.cwd), repo)
                self._caches[repo] = RepoCache(TreeReader(HashCache(file)))
            yield self._caches[repo]


def _approved(found: Proposal, confirm: Confirm | None) -> bool:
    """Whether to apply: something changes, and it is confirmed. Raises `DeployError`."""
    refuse(found)
    return not found.is_needless and (confirm is None or confirm(found.plan))


def _dry_run(found: Proposal) -> Envelope[PlanData]:
    return Envelope.of("deploy", replace(found.data, applied=False), found.plan.warnings)


def _untouched(found: Proposal) -> Envelope[PlanData]:
    reason: Reason = "aborted" if found.plan.changes else "no_changes"
    data = replace(found.data, applied=False, reason=reason)
    return Envelope.of("deploy --apply", data, found.plan.warnings)


def open_service(settings: Settings, unchanged: Unchanged | None = None) -> DeployService:
    """The service for the environment that the settings were read from."""
    cache = settings.directories.cache / "deploy"
    places = settings.home, settings.cwd, cache, settings.project
    home = Home.of(settings.environ, *places)
    return DeployService(home, unchanged=unchanged)
