"""The use cases: plan, diff, status, doctor, deploy, rollback, and the upkeep of the repo."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from fleet_agentpack.deploy import apply, doctor, manifest_file, results, rollback
from fleet_agentpack.deploy.actions import command
from fleet_agentpack.deploy.apply import Proposal
from fleet_agentpack.deploy.compare import Change, Plan, plan
from fleet_agentpack.deploy.consent import foretold, refuse
from fleet_agentpack.deploy.disk import Disk, Reader
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import HashCache, cache_file
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.manifest import Manifest
from fleet_agentpack.deploy.orphans import left_behind
from fleet_agentpack.deploy.pinning import Pinning
from fleet_agentpack.deploy.plan_memory import PlanMemory
from fleet_agentpack.deploy.repo_cache import RepoCache
from fleet_agentpack.deploy.request import Request
from fleet_agentpack.deploy.results import Envelope, PlanData, Reason
from fleet_agentpack.deploy.snapshots import SnapshotStore
from fleet_agentpack.deploy.starter import make_starter
from fleet_agentpack.deploy.status import status_data
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.deploy.targets import OPTIONS, PROJECT_ONLY
from fleet_agentpack.deploy.text_diff import LONGEST_TEXT, text_diffs, unified
from fleet_agentpack.deploy.transaction import Report, Transaction, pending
from fleet_agentpack.deploy.trees import TreeReader
from fleet_agentpack.deploy.workspace import Workspace, extras
from fleet_agentpack.kit.actions import Action
from fleet_agentpack.kit.collector import paused_collector
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock
from fleet_agentpack.kit.results import UNKNOWN
from fleet_agentpack.settings import Settings

LOCK_TIMEOUT_S = 10.0
Confirm = Callable[[Plan], bool]


def _silent(_done: float, _total: float | None, _text: str) -> None:
    """Progress without a listener."""


class DeployService:
    """Deploys a config repo to the tools it names. Safe to call from several threads."""

    def __init__(
        self,
        home: Home,
        *,
        disk: Callable[[HashCache], Disk] | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        self._home = home
        self._disk = disk or (lambda hashes: Disk(hashes, durable=home.durable))
        self._lock_timeout_s = lock_timeout_s
        self._snapshots = SnapshotStore(home)
        self._caches: dict[str, RepoCache] = {}
        self._shown = PlanMemory()
        self._turn = threading.RLock()

    # Commands that only read.

    @paused_collector()
    def plan(self, request: Request, name: str = "plan") -> Envelope[PlanData]:
        """What an apply would change."""
        with self._command(name), self._cache(request) as cache:
            found = self._propose(request, cache, Reader(cache.reader.hashes))
            self._shown.show(request.session, found.plan)
            return Envelope.of(name, found.data, found.plan.warnings)

    @paused_collector()
    def diff(self, request: Request) -> Envelope[PlanData]:
        """The same as plan, with the differences as text."""
        with self._command("diff"), self._cache(request) as cache:
            found = self._propose(request, cache, Reader(cache.reader.hashes))
            self._shown.show(request.session, found.plan)
            text = unified(self._home, found.plan.changes, LONGEST_TEXT)
            return Envelope.of("diff", replace(found.data, text=text), found.plan.warnings)

    @paused_collector()
    def status(self, request: Request) -> Envelope[results.StatusData]:
        """How the disk differs from what should be there."""
        with self._command("status"), self._cache(request) as cache:
            reader = Reader(cache.reader.hashes)
            found = self._propose(request, cache, reader)
            data = status_data(found, extras(found.survey, reader, cache.reader.lister))
            warnings = [*found.plan.warnings, *found.survey.unrecorded_warnings]
            return Envelope.of("status", data, warnings)

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
                *self._pending(),
                *(finding.warning for finding in unclean),
                *workspace.overlays.layout_warnings(ids),
            ]
            tops = list(dict.fromkeys(finding.top for finding in unclean)) if fix else []
            fixes = [doctor.ignore_manifests(top) for top in tops]
            ignore = command(request, "doctor", "--fix")
            actions: list[Action] = [ignore] if unclean and not fix else []
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
        with self._command("rollback"), self._cache(Request()) as cache:
            history = self._snapshots.history()
            chosen = rollback.choose(history, self._snapshots, to)
            reader = Reader(cache.reader.hashes)
            prepared = rollback.prepare(history, self._snapshots, chosen, reader)
            changes = [
                results.RestoreRow(step.op, step.path, step.path, step.target)
                for step in prepared.steps
            ]
            data = results.RollbackPreview(changes=changes, rolled_back_to=to)
            return Envelope.of("rollback", data, prepared.warnings)

    # Commands that write.

    def deploy(
        self, request: Request, report: Report = _silent, confirm: Confirm | None = None
    ) -> Envelope[PlanData]:
        """Make the disk as the plan says; `confirm` may still say no. A dry run only plans."""
        name = "deploy" if request.dry_run else "deploy --apply"
        with self._command(name), self._cache(request) as cache:
            disk = self._disk(cache.reader.hashes)
            if request.dry_run:
                found = self._propose(request, cache, disk)
                self._shown.show(request.session, found.plan)
                return _dry_run(found)
            recovered = self._recover_pending(disk, report)
            seen = self._snapshots.ids()[-1:]
            found = self._propose(request, cache, disk, recovered)
            if not _approved(found, confirm):
                return _untouched(found)
            # The plan was made, and perhaps confirmed by a person, without the lock, which others
            # may need meanwhile. If somebody has deployed since, it is made and confirmed again.
            with self._locked():
                if self._snapshots.ids()[-1:] != seen or self._home.journal.exists():
                    recovered += Transaction(self._home, disk, report).recover()
                    found = self._propose(request, cache, disk, recovered)
                    if not _approved(found, confirm):
                        return _untouched(found)
                answer = self._apply(found, disk, report)
                other = self._shown.differences(request.session, found.plan)
                return replace(answer, warnings=(*answer.warnings, *other))

    def rollback(self, to: str, report: Report = _silent) -> Envelope[results.RollbackData]:
        """Go back to a snapshot; recorded as an event of its own."""
        with self._command("rollback"), self._cache(Request()) as cache:
            disk = self._disk(cache.reader.hashes)
            # A refused call writes nothing, not even the lock file: refuse before locking.
            rollback.choose(self._snapshots.history(), self._snapshots, to)
            with self._locked():
                recovered = Transaction(self._home, disk, report).recover()
                history = self._snapshots.history()
                chosen = rollback.choose(history, self._snapshots, to)
                prepared = rollback.prepare(history, self._snapshots, chosen, disk)
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

    def lock(self, request: Request) -> Envelope[results.Locked]:
        """Pin every module."""
        with self._command("lock"), self._cache(request) as cache:
            return Envelope.of("lock", self._pinning(request, cache).lock(self._manifest(request)))

    def fetch(self, request: Request) -> Envelope[results.Fetched]:
        """Bring every pinned commit here."""
        with self._command("fetch"), self._cache(request) as cache:
            return Envelope.of("fetch", self._pinning(request, cache).fetch())

    def update(
        self, request: Request, *, lock: bool | None = None, fetch: bool | None = None
    ) -> Envelope[results.Updated]:
        """Lock when there is no lockfile yet (or when asked), then fetch (unless asked not to)."""
        with self._command("update"), self._cache(request) as cache:
            wants_lock, wants_fetch = self.update_steps(request, lock=lock, fetch=fetch)
            pinning, found = self._pinning(request, cache), self._manifest(request)
            done = pinning.update(found, lock=wants_lock, fetch=wants_fetch, keep=not lock)
            return Envelope.of("update", done)

    def update_steps(
        self, request: Request, *, lock: bool | None, fetch: bool | None
    ) -> tuple[bool, bool]:
        """Whether an update would lock, and whether it would fetch."""
        with self._command("update"), self._cache(request) as cache:
            pinning, wants_fetch = self._pinning(request, cache), fetch is not False
            if lock is False and wants_fetch and not pinning.path.exists():
                raise DeployError.because(
                    "lockfile_missing",
                    f"lockfile missing: {pinning.path}; run `fleet-agentpack lock`, or drop"
                    " --no-lock",
                    next_actions=("run_lock", "retry_command"),
                )
            wants_lock = pinning.is_due(lambda: self._manifest(request)) if lock is None else lock
            return wants_lock, wants_fetch

    # Parts.

    @paused_collector()
    def differences(self, request: Request) -> Plan:
        """The plan itself, for showing the differences as text."""
        with self._command("diff"), self._cache(request) as cache:
            return self._propose(request, cache, Reader(cache.reader.hashes)).plan

    def texts(self, found: Plan) -> Iterator[tuple[Change, str]]:
        """The differences of a plan as text, one by one."""
        return text_diffs(self._home, found.changes)

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
        warnings = [*survey.warnings, *left_behind(workspace, workspace.places()), *self._pending()]
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

    def _pinning(self, request: Request, cache: RepoCache) -> Pinning:
        return Pinning(self._home, self._home.repo(request.repo), cache.reader.hashes)

    def _manifest(self, request: Request) -> Manifest:
        return manifest_file.load(self._home.repo(request.repo), OPTIONS, PROJECT_ONLY)

    def _recover_pending(self, disk: Disk, report: Report) -> list[str]:
        if not self._home.journal.exists():
            return []
        with self._locked():
            return Transaction(self._home, disk, report).recover()

    def _pending(self) -> list[str]:
        """A warning for read-only commands while a transaction is running or was interrupted."""
        try:
            if not self._home.journal.exists():
                return []
            found = pending(self._home)
        except DeployError as error:
            return [error.message]
        if found is None:
            return []
        try:
            with file_lock(self._home.lock, timeout_s=0):
                return [
                    f"an interrupted deploy ({found}) is pending; the next deploy or rollback"
                    " will finish or undo it"
                ]
        except (LockTimeoutError, OSError):
            return [f"a deploy ({found}) is running; this result may show it half done"]

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

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with file_lock(self._home.lock, timeout_s=self._lock_timeout_s):
                yield
        except LockTimeoutError as error:
            raise DeployError(
                "E_BUSY",
                "another deploy or rollback is running; try again when it has finished",
                lock=str(self._home.lock),
            ) from error
        except OSError as error:
            raise DeployError.io(self._home.lock, error, "lock") from error


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


def open_service(settings: Settings) -> DeployService:
    """The service for the environment that the settings were read from."""
    cache = settings.directories.cache / "deploy"
    return DeployService(Home.of(settings.environ, settings.home, settings.cwd, cache))
