"""The ways back: to a snapshot, to before an apply, to before the first one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from fleet_agentpack.deploy import results
from fleet_agentpack.deploy.apply import edit_warnings
from fleet_agentpack.deploy.disk import Disk, Reader
from fleet_agentpack.deploy.errors import io_errors, naming
from fleet_agentpack.deploy.event import undo_target
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.prune import PruneRequest, prune, would_prune
from fleet_agentpack.deploy.questions import about_rollback
from fleet_agentpack.deploy.restoring import Past, Restoration
from fleet_agentpack.deploy.results import Envelope
from fleet_agentpack.deploy.rollback import choose, prepare_rollback
from fleet_agentpack.deploy.running import locked
from fleet_agentpack.deploy.snapshots import SnapshotStore
from fleet_agentpack.deploy.takeover import OwnershipReader
from fleet_agentpack.deploy.transaction import Report, Transaction, silent
from fleet_agentpack.deploy.undo import last_apply, prepare_undo
from fleet_agentpack.deploy.uninstall import UninstallRequest, leaving, prepare_uninstall
from fleet_agentpack.kit.approval import Question
from fleet_agentpack.kit.collector import paused_collector

Way = Callable[[Past], Restoration]


class WaysBack:
    """Undoes what was deployed; each way is recorded as an event of its own."""

    def __init__(
        self,
        home: Home,
        snapshots: SnapshotStore,
        ownership: OwnershipReader,
        writing: Callable[[], AbstractContextManager[Disk]],
        lock_timeout_s: float,
    ) -> None:
        self._home = home
        self._snapshots = snapshots
        self._ownership = ownership
        self._writing = writing
        self._lock_timeout_s = lock_timeout_s

    def preview(self, to: str) -> Envelope[results.RollbackPreview]:
        """What a rollback would change."""
        return _preview("rollback", self._would_go_back("rollback", self._to(to)))

    def preview_undo(self) -> Envelope[results.RollbackPreview]:
        """What an undo would change."""
        return _preview("undo", self._would_go_back("undo", self._to_last()))

    def preview_uninstall(self, asked: UninstallRequest) -> Envelope[results.RollbackPreview]:
        """What an uninstall would change."""
        return _preview("uninstall", self._would_go_back("uninstall", self._away(asked)))

    def question(self, to: str) -> Question:
        """What a person is asked before a rollback."""
        return about_rollback(self._would_go_back("rollback", self._to(to)))

    def rollback(
        self, to: str, report: Report = silent, approved: str | None = None
    ) -> Envelope[results.RollbackData]:
        """Go back to a snapshot, or to before one; recorded as an event of its own.

        Raises `PlanChangedError` if it is not, or no longer, the approved one.
        """
        event_id, _, warnings = self._go_back("rollback", self._to(to), report, approved)
        return Envelope.of("rollback", results.RollbackData(event_id, to), warnings)

    def undo(self, report: Report = silent) -> Envelope[results.RollbackData]:
        """Go back to before the last apply that was not undone yet."""
        event_id, done, warnings = self._go_back("undo", self._to_last(), report)
        return Envelope.of("undo", results.RollbackData(event_id, done.to), warnings)

    def uninstall(
        self, asked: UninstallRequest, report: Report = silent
    ) -> Envelope[results.UninstallData]:
        """Give everything back, as it was before the first deploy."""
        found = self._would_go_back("uninstall", self._away(asked))
        if found.is_needless and not self._home.journal.exists():
            return Envelope.of("uninstall", results.UninstallData(0, 0), found.warnings)
        event_id, done, warnings = self._go_back("uninstall", self._away(asked), report)
        data = results.UninstallData(len(done.deleted), len(done.restored), event_id)
        return Envelope.of("uninstall", data, warnings)

    def prune(self, asked: PruneRequest, *, dry_run: bool = False) -> Envelope[results.PruneData]:
        """Remove old snapshots, and contents that nothing needs any longer."""
        with naming("snapshots prune"), self._writing() as disk:
            if dry_run:
                past = self._past(disk)
                found = would_prune(past, asked)
                data = results.PruneData(found.bytes, found.ids, False, "dry_run")
                return Envelope.of("snapshots prune", data, past.history.warnings)
            with locked(self._home, self._lock_timeout_s):
                recovered = self._transaction(disk, silent).recover()
                past = self._past(disk)
                with io_errors(self._home.snapshots, "prune"):
                    found = prune(past, asked, disk)
            data = results.PruneData(found.bytes, found.ids)
            return Envelope.of("snapshots prune", data, [*recovered, *past.history.warnings])

    def _to(self, to: str) -> Way:
        """The way back to a snapshot, or to before one."""
        before = undo_target(to)
        if before is not None:
            return lambda past: prepare_undo(past, before)
        return lambda past: prepare_rollback(past, choose(past, to))

    def _to_last(self) -> Way:
        return lambda past: prepare_undo(past, last_apply(past.store))

    def _away(self, asked: UninstallRequest) -> Way:
        return lambda past: prepare_uninstall(past, leaving(past, asked))

    def _transaction(self, disk: Disk, report: Report) -> Transaction:
        return Transaction(self._home, disk, report, self._ownership)

    def _past(self, reader: Reader) -> Past:
        history, ownership = self._snapshots.history(), self._ownership.now()
        return Past(self._home, history, self._snapshots, ownership, reader)

    @paused_collector()
    def _would_go_back(self, name: str, way: Way) -> Restoration:
        with naming(name), self._writing() as disk:
            return way(self._past(disk))

    @paused_collector()
    def _go_back(
        self, name: str, way: Way, report: Report, approved: str | None = None
    ) -> tuple[str, Restoration, list[str]]:
        """Carry a way back out; what it did, and what there is to say about it."""
        with naming(name), self._writing() as disk:
            # A refused call writes nothing, not even the lock file: refuse before locking.
            way(self._past(disk))
            with locked(self._home, self._lock_timeout_s):
                transaction = self._transaction(disk, report)
                recovered = transaction.recover()
                past = self._past(disk)
                done = way(past)
                if approved is not None:
                    about_rollback(done).check(approved)
                event_id = self._snapshots.new_id()
                transaction.run(done.batch(event_id))
            warnings = [
                *recovered,
                *past.history.warnings,
                *done.warnings,
                *edit_warnings(self._snapshots, event_id, done.edited),
            ]
            return event_id, done, warnings


def _preview(name: str, back: Restoration) -> Envelope[results.RollbackPreview]:
    rows = [results.RestoreRow(step.op, step.path, step.path, step.target) for step in back.steps]
    data = results.RollbackPreview(changes=rows, rolled_back_to=back.to)
    return Envelope.of(name, data, back.warnings)
