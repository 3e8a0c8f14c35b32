"""The use cases: plan, diff, status, doctor, deploy, rollback, and the upkeep of the repo."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleet_agentpack.deploy import apply, doctor, journal, lockfile, manifest, rollback
from fleet_agentpack.deploy.actions import prefix, status_actions
from fleet_agentpack.deploy.answers import dry_run as dry_run_answer
from fleet_agentpack.deploy.answers import needs_deploy, plan_data, untouched
from fleet_agentpack.deploy.compare import Change, Plan, drift, plan, summary_by_root, summary_of
from fleet_agentpack.deploy.disk import Disk, Reader
from fleet_agentpack.deploy.envelope import envelope
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import HashCache, cache_file
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.modules import Memory
from fleet_agentpack.deploy.orphans import left_behind
from fleet_agentpack.deploy.pinning import Pinning
from fleet_agentpack.deploy.snapshots import SnapshotStore
from fleet_agentpack.deploy.starter import make_starter
from fleet_agentpack.deploy.survey import Survey
from fleet_agentpack.deploy.targets import NAMES, PROJECT_ONLY
from fleet_agentpack.deploy.transaction import Report, Transaction
from fleet_agentpack.deploy.trees import TreeReader
from fleet_agentpack.deploy.unified import unified
from fleet_agentpack.deploy.workspace import Request, Workspace, extras
from fleet_agentpack.kit.collector import paused_collector
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock

LOCK_TIMEOUT_S = 10.0
Envelope = dict[str, Any]


def _silent(_done: float, _total: float | None, _text: str) -> None:
    """Progress that nobody waits for."""


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
        self._memories: dict[str, Memory] = {}
        self._turn = threading.RLock()

    # Looking.

    @paused_collector()
    def plan(self, request: Request, command: str = "plan") -> Envelope:
        """What an apply would change."""
        with self._command(command), self._memory(request) as memory:
            workspace, survey = self._survey(request, memory, Reader(memory.reader.hashes))
            found = plan(survey)
            return envelope(command, data=plan_data(workspace, found), warnings=workspace.warnings)

    def diff(self, request: Request) -> Envelope:
        """The same as plan, under its own name; the text of the differences is for people."""
        return self.plan(request, "diff")

    @paused_collector()
    def status(self, request: Request) -> Envelope:
        """How the disk differs from what should be there."""
        with self._command("status"), self._memory(request) as memory:
            reader = Reader(memory.reader.hashes)
            workspace, survey = self._survey(request, memory, reader)
            items = drift(survey, list(extras(survey, reader, memory.reader.lister)))
            total = summary_of(items)
            shown = [item for item in items if not request.only or item.kind in request.only]
            actions = status_actions(request, total, needs_deploy=needs_deploy(workspace, survey))
            data = {
                "drift": [item.payload() for item in shown],
                "profile": request.profile,
                "summary": summary_of(shown),
                "summary_by_root": summary_by_root(shown),
                "targets": workspace.targets,
            }
            if request.only:
                data["summary_total"] = total
            if actions:
                data["next_actions"] = [action["command"] for action in actions]
                data["next_actions_detailed"] = actions
            return envelope("status", data=data, warnings=workspace.warnings)

    def doctor(self, request: Request, *, fix: bool = False) -> Envelope:
        """Whether the roots can be used; with `fix`, make git ignore the manifests."""
        command = "doctor --fix" if fix else "doctor"
        with self._command(command), self._memory(request) as memory:
            workspace = Workspace.open(self._home, request, memory, self._snapshots)
            roots = list(workspace.desired().roots)
            rows = [doctor.check_root(root) for root in roots]
            unclean = doctor.check_git(self._home, roots)
            ids = [module.id for module in workspace.manifest.modules]
            warnings = [
                *workspace.warnings,
                *self._pending(),
                *(finding.warning for finding in unclean),
                *workspace.overlays.layout_warnings(ids),
            ]
            tops = list(dict.fromkeys(finding.top for finding in unclean)) if fix else []
            data: dict[str, Any] = {
                "gitignore_fixes": [doctor.ignore_manifests(top) for top in tops],
                "machine_id": workspace.machine,
                "roots": rows,
            }
            hints = [row["suggestion"].partition(": ")[2] for row in rows if row["suggestion"]]
            actions = sorted(set(hints))
            if unclean and not fix:
                actions.insert(0, f"{prefix(request)} doctor --fix --yes --json")
            if actions:
                data["next_actions"] = actions
            return envelope(command, data=data, warnings=warnings)

    def snapshots(self) -> Envelope:
        """The snapshots there are, newest first."""
        with self._command("snapshots"):
            history = self._snapshots.history()
            rows = [
                {
                    "changes": sum(not change.is_manifest for change in snapshot.changes),
                    "created_at": snapshot.created_at,
                    "files": len(snapshot.managed_files),
                    "id": snapshot.id,
                    "kind": snapshot.kind,
                    "rolled_back_to": snapshot.rolled_back_to,
                    "targets": list(snapshot.targets),
                }
                for snapshot in reversed(history.snapshots)
            ]
            return envelope("snapshots", data={"snapshots": rows}, warnings=history.warnings)

    def snapshot(self, snapshot_id: str) -> Envelope:
        """One snapshot with its files and changes."""
        with self._command("snapshots"):
            if snapshot_id not in self._snapshots.ids():
                raise rollback.not_found(snapshot_id, self._snapshots.history())
            try:
                found = self._snapshots.load(snapshot_id)
            except ValueError as error:
                raise DeployError("E_UNEXPECTED", str(error), reason="snapshot_corrupt") from error
            return envelope("snapshots", data={"snapshot": found.document()})

    # Touching.

    def deploy(
        self,
        request: Request,
        report: Report = _silent,
        confirm: Callable[[Plan], bool] | None = None,
    ) -> Envelope:
        """Make the disk as the plan says; `confirm` may still say no. A dry run only plans."""
        command = "deploy" if request.dry_run else "deploy --apply"
        with self._command(command), self._memory(request) as memory:
            disk = self._disk(memory.reader.hashes)
            recovered = [] if request.dry_run else self._recover_pending(disk, report)
            seen = self._snapshots.ids()[-1:]
            workspace, survey = self._survey(request, memory, disk)
            workspace.warnings[:0] = recovered
            found = plan(survey)
            if request.dry_run:
                return dry_run_answer(command, workspace, found)
            if not request.adopt:
                apply.refuse_adoption(found)
            if apply.nothing_to_do(found, survey) or (confirm and not confirm(found)):
                return untouched(workspace, found)
            with self._locked():
                if self._snapshots.ids()[-1:] != seen or self._home.journal.exists():
                    return self._again(request, memory, disk, report, confirm)
                return self._apply(workspace, survey, found, disk, report)

    def rollback(self, to: str, *, dry_run: bool = False, report: Report = _silent) -> Envelope:
        """Go back to a snapshot; recorded as an event of its own."""
        with self._command("rollback"), self._memory(Request()) as memory:
            disk = self._disk(memory.reader.hashes)
            rollback.choose(self._snapshots.history(), self._snapshots, to)
            if dry_run:
                return self._rollback_plan(to, disk)
            with self._locked():
                warnings = Transaction(self._home, disk, report).recover()
                history = self._snapshots.history()
                chosen = rollback.choose(history, self._snapshots, to)
                prepared = rollback.prepare(history, self._snapshots, chosen, disk)
                event_id = self._snapshots.new_id()
                Transaction(self._home, disk, report).run(prepared.batch(event_id))
            warnings += [*history.warnings, *prepared.warnings]
            warnings += rollback.edit_warnings(prepared, self._snapshots, event_id)
            data = {"event_snapshot_id": event_id, "rolled_back_to": to}
            return envelope("rollback", data=data, warnings=warnings)

    def init(self, repo: str | None, *, with_git: bool = False) -> Envelope:
        """Write a starter repo."""
        with self._command("init"):
            return envelope(
                "init", data=make_starter(self._home, self._home.repo(repo), with_git=with_git)
            )

    def lock(self, request: Request) -> Envelope:
        """Pin every module."""
        with self._command("lock"), self._memory(request) as memory:
            pinning, found = self._pinning(request, memory)
            return envelope("lock", data=pinning.lock(found))

    def fetch(self, request: Request) -> Envelope:
        """Bring every pinned commit here."""
        with self._command("fetch"), self._memory(request) as memory:
            repo = self._home.repo(request.repo)
            pinning = Pinning(self._home, repo, memory.reader.hashes)
            return envelope("fetch", data=pinning.fetch())

    def update(
        self, request: Request, *, lock: bool | None = None, fetch: bool | None = None
    ) -> Envelope:
        """Lock when there is no lockfile yet (or when asked), then fetch (unless asked not to)."""
        with self._command("update"), self._memory(request) as memory:
            wants_lock, wants_fetch = self.update_steps(request, lock=lock, fetch=fetch)
            pinning, found = self._pinning(request, memory)
            data = pinning.update(found, lock=wants_lock, fetch=wants_fetch)
            return envelope("update", data=data)

    def update_steps(
        self, request: Request, *, lock: bool | None, fetch: bool | None
    ) -> tuple[bool, bool]:
        """Whether an update would lock, and whether it would fetch."""
        path = self._home.repo(request.repo) / lockfile.FILE_NAME
        missing, wants_fetch = not path.exists(), fetch is not False
        if lock is False and missing and wants_fetch:
            raise DeployError(
                "E_UNEXPECTED",
                f"lockfile missing: {path}; run `fleet-agentpack lock`, or leave out --no-lock",
                reason="lockfile_missing",
                next_actions=("run_lock", "retry_command"),
            ).during("update")
        return (missing if lock is None else lock), wants_fetch

    # Parts.

    @paused_collector()
    def differences(self, request: Request) -> tuple[Plan, list[str]]:
        """The plan itself and its warnings, for showing the differences as text."""
        with self._command("diff"), self._memory(request) as memory:
            workspace, survey = self._survey(request, memory, Reader(memory.reader.hashes))
            return plan(survey), workspace.warnings

    def texts(self, found: Plan) -> Iterator[tuple[Change, str]]:
        """The differences of a plan as text, one by one."""
        return unified(self._home, found.changes)

    def _apply(
        self, workspace: Workspace, survey: Survey, found: Plan, disk: Disk, report: Report
    ) -> Envelope:
        transaction = Transaction(self._home, disk, report)
        transaction.recover()  # nothing is pending; this throws away what was only staged
        snapshot_id = self._snapshots.new_id()
        batch = apply.batch_of(workspace, survey, found, snapshot_id)
        transaction.run(batch)
        warnings = [
            *workspace.warnings,
            *apply.edit_warnings(self._snapshots, snapshot_id, found.changes),
        ]
        data = {"applied": True, "snapshot_id": snapshot_id, **plan_data(workspace, found)}
        return envelope("deploy --apply", data=data, warnings=warnings)

    def _again(
        self,
        request: Request,
        memory: Memory,
        disk: Disk,
        report: Report,
        confirm: Callable[[Plan], bool] | None,
    ) -> Envelope:
        """Plan once more, under the lock: somebody else has deployed since."""
        recovered = Transaction(self._home, disk, report).recover()
        workspace, survey = self._survey(request, memory, disk)
        workspace.warnings[:0] = recovered
        found = plan(survey)
        if not request.adopt:
            apply.refuse_adoption(found)
        if apply.nothing_to_do(found, survey) or (confirm and not confirm(found)):
            return untouched(workspace, found)
        return self._apply(workspace, survey, found, disk, report)

    def _rollback_plan(self, to: str, reader: Reader) -> Envelope:
        history = self._snapshots.history()
        chosen = rollback.choose(history, self._snapshots, to)
        prepared = rollback.prepare(history, self._snapshots, chosen, reader)
        changes = [
            {"op": step.op, "path": step.path, "path_posix": step.path, "target": step.target}
            for step in prepared.steps
        ]
        data = {"applied": False, "changes": changes, "reason": "dry_run", "rolled_back_to": to}
        return envelope("rollback", data=data, warnings=prepared.warnings)

    def _survey(self, request: Request, memory: Memory, reader: Reader) -> tuple[Workspace, Survey]:
        workspace = Workspace.open(self._home, request, memory, self._snapshots)
        survey = workspace.survey(reader)
        memory.reader.hashes.save(lambda: memory.reader.paths | reader.looked_at)
        workspace.warnings.extend(left_behind(workspace, survey.roots))
        workspace.warnings.extend(self._pending())
        workspace.warnings[:] = list(dict.fromkeys(workspace.warnings))
        return workspace, survey

    def _pinning(self, request: Request, memory: Memory) -> tuple[Pinning, manifest.Manifest]:
        repo = self._home.repo(request.repo)
        found = manifest.load(repo, NAMES, PROJECT_ONLY)
        return Pinning(self._home, repo, memory.reader.hashes), found

    def _recover_pending(self, disk: Disk, report: Report) -> list[str]:
        if not self._home.journal.exists():
            return []
        with self._locked():
            return Transaction(self._home, disk, report).recover()

    def _pending(self) -> list[str]:
        """A warning for those who only look while a transaction is under way or was cut short."""
        try:
            if not self._home.journal.exists():
                return []
            found = journal.load(self._home.journal)
        except DeployError as error:
            return [error.message]
        if found is None:
            return []
        try:
            with file_lock(self._home.lock, timeout_s=0):
                return [
                    f"an interrupted deploy ({found.id}) is pending; the next deploy or rollback"
                    " finishes or undoes it"
                ]
        except (LockTimeoutError, OSError):
            return [f"a deploy ({found.id}) is running; this answer may show a part of it"]

    @contextmanager
    def _memory(self, request: Request) -> Iterator[Memory]:
        """What this process knows about a repo; one call at a time."""
        repo = str(self._home.repo(request.repo))
        with self._turn:
            if repo not in self._memories:
                file = cache_file(self._home.cache, str(self._home.root), str(self._home.cwd), repo)
                self._memories[repo] = Memory(TreeReader(HashCache(file)))
            yield self._memories[repo]

    @contextmanager
    def _command(self, command: str) -> Iterator[None]:
        """Errors know which command failed."""
        try:
            yield
        except DeployError as error:
            raise error.during(command) from error.__cause__

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with file_lock(self._home.lock, timeout_s=self._lock_timeout_s):
                yield
        except LockTimeoutError as error:
            raise DeployError(
                "E_BUSY",
                "another deploy or rollback is running; try again when it is done",
                lock=str(self._home.lock),
            ) from error
        except OSError as error:
            raise DeployError.io(self._home.lock, error, "lock") from error


def open_home(environ: Any, user: Path, cwd: Path, cache: Path, **options: Any) -> DeployService:
    """The service for an environment."""
    return DeployService(Home.of(environ, user, cwd, cache / "deploy"), **options)
