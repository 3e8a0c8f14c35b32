"""The use cases: plan, diff, status, doctor, deploy, rollback, and the upkeep of the repo."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fleet_agentpack.deploy import apply, doctor, lockfile, manifest, results, rollback
from fleet_agentpack.deploy.actions import command
from fleet_agentpack.deploy.apply import Proposal
from fleet_agentpack.deploy.compare import Change, Plan, drift, plan
from fleet_agentpack.deploy.disk import Disk, Reader
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import HashCache, cache_file
from fleet_agentpack.deploy.home import Home, machine_id
from fleet_agentpack.deploy.orphans import left_behind
from fleet_agentpack.deploy.pinning import Pinning
from fleet_agentpack.deploy.questions import about_apply, about_rollback, only_approved
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import Envelope, PlanData, Reason
from fleet_agentpack.deploy.rollback import Rollback
from fleet_agentpack.deploy.running import locked, unfinished
from fleet_agentpack.deploy.snapshots import SnapshotStore
from fleet_agentpack.deploy.starter import make_starter
from fleet_agentpack.deploy.status import status_data
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.deploy.targets import NAMES, PROJECT_ONLY
from fleet_agentpack.deploy.text_diff import text_diffs
from fleet_agentpack.deploy.transaction import Report, Transaction, silent
from fleet_agentpack.deploy.trees import TreeReader
from fleet_agentpack.deploy.workspace import Workspace, extras
from fleet_agentpack.kit.approval import Question
from fleet_agentpack.kit.collector import paused_collector
from fleet_agentpack.kit.results import UNKNOWN
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
        self._turn = threading.RLock()
        self._unchanged = unchanged

    # Commands that only read.

    @paused_collector()
    def plan(self, request: Request, name: str = "plan") -> Envelope[PlanData]:
        """What an apply would change."""
        with self._command(name), self._cache(request) as cache:
            found = self._unless_changed(
                "plan", request, lambda: self._propose(request, cache, Reader(cache.reader.hashes))
            )
            return Envelope.of(name, found.data, found.plan.warnings)

    def diff(self, request: Request) -> Envelope[PlanData]:
        """The same as plan, under its own name; the text of the differences is for people."""
        return self.plan(request, "diff")

    @paused_collector()
    def status(self, request: Request) -> Envelope[results.StatusData]:
        """How the disk differs from what should be there."""
        with self._command("status"), self._cache(request) as cache:
            found = self._unless_changed("status", request, lambda: self._drift(request, cache))
            return Envelope.of("status", *found)

    def doctor(self, request: Request, *, fix: bool = False) -> Envelope[results.DoctorData]:
        """Whether the roots can be used; with `fix`, make git ignore the manifests."""
        name = "doctor --fix" if fix else "doctor"
        with self._command(name), self._cache(request) as cache:
            workspace = Workspace(self._home, request, cache, self._snapshots)
            desired = workspace.desired()
            roots = [doctor.check_root(root) for root in desired.roots]
            unclean = doctor.check_git(self._home, desired.roots)
            ids = [module.id for module in workspace.manifest.modules]
            warnings = [
                *desired.warnings,
                *unfinished(self._home),
                *(finding.warning for finding in unclean),
                *workspace.overlays.layout_warnings(ids),
            ]
            tops = list(dict.fromkeys(finding.top for finding in unclean)) if fix else []
            fixes = [doctor.ignore_manifests(top) for top in tops]
            ignore = command(request, "doctor", "--fix", writes=True)
            actions = [ignore] if unclean and not fix else []
            actions += doctor.repairs(roots)
            data = results.DoctorData(fixes, workspace.machine, roots, actions or UNKNOWN)
            return Envelope.of(name, data, warnings)

    def snapshots(self) -> Envelope[results.SnapshotsData]:
        """All snapshots, newest first."""
        with self._command("snapshots"):
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
        with self._command("snapshots"):
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
        with self._command("deploy --apply"):
            return about_apply(request, self.differences(request))

    def rollback_question(self, to: str) -> Question:
        """What a person is asked before a rollback."""
        return about_rollback(self._would_roll_back(to))

    # Commands that write.

    def deploy_approved(
        self, request: Request, report: Report, approved: str | None
    ) -> Envelope[PlanData]:
        """Deploy the plan with this digest. Raises `PlanChangedError` if it is another by now."""
        return self.deploy(request, report, only_approved(request, approved))

    def deploy(
        self, request: Request, report: Report = silent, confirm: Confirm | None = None
    ) -> Envelope[PlanData]:
        """Make the disk as the plan says; `confirm` may still say no. A dry run only plans."""
        name = "deploy" if request.dry_run else "deploy --apply"
        with self._command(name), self._cache(request) as cache:
            disk = self._disk(cache.reader.hashes)
            if request.dry_run:
                return _dry_run(self._propose(request, cache, disk))
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
                return self._apply(found, disk, report)

    def rollback(
        self, to: str, report: Report = silent, approved: str | None = None
    ) -> Envelope[results.RollbackData]:
        """Go back to a snapshot; recorded as an event of its own.

        Raises `PlanChangedError` if it is not, or no longer, the approved one.
        """
        with self._command("rollback"), self._cache(Request()) as cache:
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

    def init(self, repo: str | None, *, with_git: bool = False) -> Envelope[results.Initialized]:
        """Write a starter repo."""
        with self._command("init"):
            made = make_starter(self._home, self._home.repo(repo), with_git=with_git)
            return Envelope.of("init", made)

    def lock(self, request: Request, report: Report = silent) -> Envelope[results.Locked]:
        """Pin every module."""
        with self._command("lock"), self._cache(request) as cache:
            return Envelope.of(
                "lock", self._pinning(request, cache, report).lock(self._manifest(request))
            )

    def fetch(self, request: Request, report: Report = silent) -> Envelope[results.Fetched]:
        """Bring every pinned commit here."""
        with self._command("fetch"), self._cache(request) as cache:
            return Envelope.of("fetch", self._pinning(request, cache, report).fetch())

    def update(
        self, request: Request, report: Report = silent, *, lock: Wish = None, fetch: Wish = None
    ) -> Envelope[results.Updated]:
        """Lock when there is no lockfile yet (or when asked), then fetch (unless asked not to)."""
        with self._command("update"), self._cache(request) as cache:
            wants_lock, wants_fetch = self.update_steps(request, lock=lock, fetch=fetch)
            pinning = self._pinning(request, cache, report)
            done = pinning.update(self._manifest(request), lock=wants_lock, fetch=wants_fetch)
            return Envelope.of("update", done)

    def update_steps(
        self, request: Request, *, lock: bool | None, fetch: bool | None
    ) -> tuple[bool, bool]:
        """Whether an update would lock, and whether it would fetch."""
        with self._command("update"):
            path = self._home.repo(request.repo) / lockfile.FILE_NAME
            missing, wants_fetch = not path.exists(), fetch is not False
            if lock is False and missing and wants_fetch:
                raise DeployError.because(
                    "lockfile_missing",
                    f"lockfile missing: {path}; run `fleet-agentpack lock`, or drop --no-lock",
                    next_actions=("run_lock", "retry_command"),
                )
            return (missing if lock is None else lock), wants_fetch

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
        question = (name, request, variables, machine_id(self._home, request.machine))
        return self._unchanged.answer(question, make)

    def _drift(
        self, request: Request, cache: RepoCache
    ) -> tuple[results.StatusData, tuple[str, ...]]:
        reader = Reader(cache.reader.hashes)
        workspace, survey = self._survey(request, cache, reader)
        rows = drift(survey, extras(survey, reader, cache.reader.lister))
        data = status_data(request, workspace.targets, survey, rows)
        return data, (*survey.warnings, *survey.unrecorded_warnings)

    @paused_collector()
    def differences(self, request: Request) -> Plan:
        """The plan itself, for showing it to a person."""
        with self._command("diff"), self._cache(request) as cache:
            return self._propose(request, cache, Reader(cache.reader.hashes)).plan

    def texts(self, found: Plan) -> Iterator[tuple[Change, str]]:
        """The differences of a plan as text, one by one."""
        return text_diffs(self._home, found.changes)

    def _would_roll_back(self, to: str) -> Rollback:
        with self._command("rollback"), self._cache(Request()) as cache:
            history, reader = self._snapshots.history(), Reader(cache.reader.hashes)
            chosen = rollback.choose(history, self._snapshots, to)
            return rollback.prepare(history, self._snapshots, chosen, reader)

    def _propose(
        self, request: Request, cache: RepoCache, reader: Reader, recovered: Sequence[str] = ()
    ) -> Proposal:
        workspace, survey = self._survey(request, cache, reader)
        survey = replace(survey, warnings=(*recovered, *survey.warnings))
        return Proposal(workspace, survey, plan(survey))

    def _survey(
        self, request: Request, cache: RepoCache, reader: Reader
    ) -> tuple[Workspace, Survey]:
        workspace = Workspace(self._home, request, cache, self._snapshots)
        survey = workspace.survey(reader)
        cache.reader.hashes.save(lambda: cache.reader.paths | reader.looked_at)
        warnings = [
            *survey.warnings,
            *left_behind(workspace, survey.roots),
            *unfinished(self._home),
        ]
        return workspace, replace(survey, warnings=tuple(dict.fromkeys(warnings)))

    def _apply(self, found: Proposal, disk: Disk, report: Report) -> Envelope[PlanData]:
        transaction = Transaction(self._home, disk, report)
        transaction.recover()  # nothing is pending; this only removes abandoned staged files
        snapshot_id = self._snapshots.new_id()
        transaction.run(apply.batch_of(found, snapshot_id))
        edited = [change for change in found.plan.changes if change.edited_by_hand]
        kept = apply.edit_warnings(self._snapshots, snapshot_id, edited)
        data = replace(found.data, applied=True, snapshot_id=snapshot_id)
        return Envelope.of("deploy --apply", data, [*found.plan.warnings, *kept])

    def _pinning(self, request: Request, cache: RepoCache, report: Report) -> Pinning:
        return Pinning(self._home, self._home.repo(request.repo), cache.reader.hashes, report)

    def _manifest(self, request: Request) -> manifest.Manifest:
        return manifest.load(self._home.repo(request.repo), NAMES, PROJECT_ONLY)

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

    @contextmanager
    def _command(self, name: str) -> Iterator[None]:
        """Name the command in errors."""
        try:
            yield
        except DeployError as error:
            raise error.during(name) from error.__cause__


def _approved(found: Proposal, confirm: Confirm | None) -> bool:
    """Whether to apply: something changes, and it is confirmed. Raises `DeployError`."""
    if not found.workspace.request.adopt:
        apply.refuse_adoption(found.plan)
    return not found.is_needless and (confirm is None or confirm(found.plan))


def _dry_run(found: Proposal) -> Envelope[PlanData]:
    adopted = 0 if found.workspace.request.adopt else len(found.plan.adopted)
    needs = f"{adopted} existing file(s) are not managed; applying this needs adopt"
    warnings = [*found.plan.warnings, *([needs] if adopted else ())]
    return Envelope.of("deploy", replace(found.data, applied=False), warnings)


def _untouched(found: Proposal) -> Envelope[PlanData]:
    reason: Reason = "aborted" if found.plan.changes else "no_changes"
    data = replace(found.data, applied=False, reason=reason)
    return Envelope.of("deploy --apply", data, found.plan.warnings)


def open_service(settings: Settings, unchanged: Unchanged | None = None) -> DeployService:
    """The service for the environment that the settings were read from."""
    cache = settings.directories.cache / "deploy"
    home = Home.of(settings.environ, settings.home, settings.cwd, cache)
    return DeployService(home, unchanged=unchanged)
