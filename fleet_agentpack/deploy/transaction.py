"""Carries out a list of changes so that a kill leaves old or new, never a mix.

Stage every before and after → write the journal → swap file by file → record → drop the journal.
An error while it runs goes back at once, from the backups. After a kill, `Transaction.recover` goes
forward, and back if that fails. A file that is neither old nor new is left alone, and named.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

from fleet_agentpack.deploy import journal as journals
from fleet_agentpack.deploy.batch import Batch, Kept, Step, after_of, missing_directories
from fleet_agentpack.deploy.disk import Disk, find
from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.hashes import hash_file
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.deploy.indented_json import indented
from fleet_agentpack.deploy.journal import Before, Journal, Row
from fleet_agentpack.deploy.model import TEMPORARY_PREFIX, Blob, path_key, safe_name

Report = Callable[[float, float | None, str], None]

_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)


class Transaction:
    """Runs batches on a disk. The caller holds the home's lock."""

    def __init__(self, home: Home, disk: Disk, report: Report) -> None:
        self._home = home
        self._disk = disk
        self._report = report
        self._made: set[str] = set()  # directories known to exist
        self._reached = 0  # how many rows may have been swapped

    def run(self, batch: Batch) -> None:
        """Carry a batch out, or leave everything as it was. Raises `DeployError`."""
        base = self._home.staging / batch.id
        self._made.clear()
        self._reached = 0
        try:
            rows = self._stage(batch, base)
            self._disk.sync_tree(str(base))
            backup_root = str(self._home.snapshots / batch.id / "backup")
            journal = Journal(
                batch.id,
                tuple(rows),
                tuple(missing_directories(rows)),
                batch.record(rows, backup_root),
            )
            self._replace(str(self._home.journal), journal.encode(), f"{base}/journal.json")
        except OSError as error:
            self._discard(base)
            raise _told(error, base) from error
        except BaseException:
            self._discard(base)
            raise
        try:
            self._forward(journal, len(batch.kept))
            self._finish(journal)
        except OSError as error:
            self._go_back(journal, error)
            raise _told(error, base) from error
        except BaseException as error:
            self._go_back(journal, error)
            raise

    def recover(self) -> list[str]:
        """Finish or undo what an interrupted command left, and say so. Raises `DeployError`."""
        journal = journals.load(self._home.journal)
        if journal is None:
            self._discard(self._home.staging)
            return []
        try:
            left = self._complete(journal)
            self._finish(journal)
        except (OSError, DeployError):
            try:
                left = self._undo(journal, len(journal.rows))
            except (OSError, DeployError) as error:
                raise _stuck(self._home, error) from error
            return [f"an interrupted deploy ({journal.id}) was undone", *left]
        return [f"an interrupted deploy ({journal.id}) was finished", *left]

    # Staging: nothing that anybody else looks at is touched.

    def _stage(self, batch: Batch, base: Path) -> list[Row]:
        self._make(str(base / "backup"))
        self._make(str(base / "state"))
        self._disk.create(str(base / "origin.json"), json.dumps(batch.origin).encode(), 0o644)
        total = len(batch.kept) + len(batch.steps)
        tick = max(1, total // 100)
        first_copy: dict[tuple[str, bool], str] = {}
        staged: dict[tuple[str, str], str] = {}
        steps = [Kept(step.target, step.path, step.blob) for step in batch.steps if step.blob]
        for number, kept in enumerate([*batch.kept, *steps]):
            if (kept.target, kept.path) not in staged:
                name = f"state/{safe_name(kept.target)}/{path_key(kept.path)}"
                self._keep(f"{base}/{name}", kept.blob, first_copy)
                staged[kept.target, kept.path] = name
            if number % tick == 0:
                self._report(number, total + len(batch.steps), "keeping a copy of every file")
        return [self._row(step, base, staged.get((step.target, step.path))) for step in batch.steps]

    def _keep(self, place: str, blob: Blob, first_copy: dict[tuple[str, bool], str]) -> None:
        """Store a copy; the same content twice is one file with two names."""
        self._make(os.path.dirname(place))
        key = (blob.sha256, blob.executable)
        if key in first_copy:
            try:
                self._disk.link(first_copy[key], place)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
            else:
                return
        self._disk.create(place, blob.read(), 0o755 if blob.executable else 0o644)
        first_copy[key] = place

    def _row(self, step: Step, base: Path, staged: str | None) -> Row:
        before, backup = None, None
        if step.before_sha256 is not None:
            found = find(step.path)
            if found is None or found.sha256 != step.before_sha256:
                raise _changed(step.path)
            before = Before(found.sha256, found.mode, found.link)
            backup = f"backup/{safe_name(step.target)}/{path_key(step.path)}"
            self._back_up(step.path, before, f"{base}/{backup}")
        after = after_of(step, before) if step.blob else None
        return Row(
            step.target, step.op, step.path, before, after, backup, staged if after else None
        )

    def _back_up(self, path: str, before: Before, place: str) -> None:
        """Keep what will be replaced: the same file under a second name, or a copy of it."""
        self._make(os.path.dirname(place))
        if before.link is None and os.lstat(path).st_nlink == 1:
            try:
                self._disk.link(path, place)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
            else:
                return
        data = Path(path).read_bytes() if before.sha256 else b""
        self._disk.create(place, data, before.mode if before.link is None else 0o600, exact=True)
        if before.sha256 and hash_file(place, len(data)) != before.sha256:
            raise _changed(path)

    # Swapping: file by file, each in one step.

    def _forward(self, journal: Journal, already: int) -> None:
        total = already + len(journal.rows)
        tick = max(1, len(journal.rows) // 100)
        base = self._base(journal)
        for number, row in enumerate(journal.rows):
            self._swap(journal, number, row, base)
            if number % tick == 0:
                self._report(total + number, total + len(journal.rows), "writing the files")

    def _swap(self, journal: Journal, number: int, row: Row, base: str) -> None:
        if row.before is None:
            if os.path.lexists(row.path):
                raise _changed(row.path)
        elif not row.before.describes(find(row.path)):
            raise _changed(row.path)
        self._reached = number + 1
        self._put(journal, number, row, base)

    def _put(self, journal: Journal, number: int, row: Row, base: str) -> None:
        if row.after is None or row.staged is None:
            self._disk.remove(row.path)
            return
        directory = os.path.dirname(row.path)
        self._make(directory)
        temporary = _temporary(journal, number, row)
        data = _read(f"{base}/{row.staged}")
        self._disk.create(temporary, data, row.after.mode, exact=row.after.exact)
        self._disk.rename(temporary, row.path)

    def _finish(self, journal: Journal) -> None:
        """Put the snapshot where it belongs, then let the journal go: the point of no return."""
        staged = self._home.staging / journal.id
        final = self._home.snapshots / journal.id
        self._make(str(self._home.snapshots))
        if staged.exists():
            self._disk.rename(str(staged), str(final))
        self._replace(f"{final}.json", indented(journal.record), f"{final}/record.json")
        self._disk.remove(str(self._home.journal))

    # Recovery.

    def _complete(self, journal: Journal) -> list[str]:
        warnings = []
        base = self._base(journal)
        for number, row in enumerate(journal.rows):
            self._clear_temporary(journal, number, row)
            found = find(row.path)
            if row.is_done(found):
                continue
            if row.is_undone(found):
                self._put(journal, number, row, base)
            else:
                warnings.append(self._leave(journal, row))
        return warnings

    def _leave(self, journal: Journal, row: Row) -> str:
        """A file that somebody changed in between stays; the snapshot keeps its bytes as well."""
        kept = self._place(journal, f"backup/{safe_name(row.target)}/{path_key(row.path)}.found")
        if os.path.isfile(row.path) and not os.path.exists(kept):
            self._make(os.path.dirname(kept))
            self._disk.create(kept, _read(row.path), 0o600)
        return f"{row.path} was changed by somebody else meanwhile and is left as it is"

    def _undo(self, journal: Journal, reached: int) -> list[str]:
        """Everything back as it was, except what somebody else has changed since."""
        warnings = []
        for number, row in reversed(list(enumerate(journal.rows[:reached]))):
            self._clear_temporary(journal, number, row)
            found = find(row.path)
            if row.is_undone(found):
                continue
            if row.is_done(found):
                self._restore(journal, number, row)
            else:
                warnings.append(self._leave(journal, row))
        for directory in reversed(journal.directories):
            try:
                self._disk.remove_directory(directory)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                    raise
        self._abandon(journal, keep=bool(warnings))
        return warnings

    def _restore(self, journal: Journal, number: int, row: Row) -> None:
        if row.before is None or row.backup is None:
            self._disk.remove(row.path)
            return
        temporary = _temporary(journal, number, row)
        backup = self._place(journal, row.backup)
        self._make(os.path.dirname(row.path))
        if row.before.link is not None:
            self._disk.symlink(row.before.link, temporary)
        else:
            try:  # a second name needs no space on a full disk
                self._disk.link(backup, temporary)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._disk.create(temporary, _read(backup), row.before.mode, exact=True)
        self._disk.rename(temporary, row.path)

    def _abandon(self, journal: Journal, *, keep: bool) -> None:
        """Drop an undone transaction; what somebody may miss stays in the snapshots' folder."""
        staged = self._home.staging / journal.id
        final = self._home.snapshots / journal.id
        if os.path.lexists(f"{final}.json"):
            self._disk.remove(f"{final}.json")
        if keep and staged.exists():
            self._make(str(self._home.snapshots))
            self._disk.rename(str(staged), str(final))
        elif not keep and final.exists():
            self._disk.rename(str(final), str(staged))
        self._disk.remove(str(self._home.journal))
        if not keep:
            self._discard(staged)

    def _go_back(self, journal: Journal, cause: BaseException) -> None:
        try:
            left = self._undo(journal, self._reached)
        except (OSError, DeployError) as error:
            raise _stuck(self._home, error) from cause
        if left:
            raise DeployError(
                "E_UNEXPECTED",
                f"the deploy failed and was undone, but {left[0]}; the backups are in"
                f" {self._home.snapshots / journal.id}",
                reason="undone_in_part",
                next_actions=("inspect_backups", "retry_command"),
                left=left,
            ) from cause

    # Small steps.

    def _base(self, journal: Journal) -> str:
        """Where the staged files are: in the staging area, or already in the snapshots' folder."""
        staged = f"{self._home.staging}/{journal.id}"
        return staged if os.path.isdir(staged) else f"{self._home.snapshots}/{journal.id}"

    def _place(self, journal: Journal, name: str) -> str:
        return f"{self._base(journal)}/{name}"

    def _clear_temporary(self, journal: Journal, number: int, row: Row) -> None:
        temporary = _temporary(journal, number, row)
        if os.path.lexists(temporary):
            self._disk.remove(temporary)

    def _make(self, directory: str) -> None:
        """Make a directory and those above it."""
        if directory in self._made:
            return
        if not os.path.isdir(directory):
            self._make(os.path.dirname(directory))
            try:
                self._disk.make_directory(directory)
            except FileExistsError:
                if not os.path.isdir(directory):
                    raise
        self._made.add(directory)

    def _replace(self, path: str, data: bytes, temporary: str) -> None:
        """Write a file of ours in one step, by way of a place that recovery throws away."""
        if os.path.lexists(temporary):
            self._disk.remove(temporary)
        self._disk.create(temporary, data, 0o644)
        self._disk.rename(temporary, path)

    def _discard(self, directory: Path) -> None:
        """Throw staged files away; what cannot be removed now goes next time."""
        if directory.exists():
            self._disk.remove_tree(str(directory))


def _temporary(journal: Journal, number: int, row: Row) -> str:
    directory = os.path.dirname(row.path)
    return f"{directory.rstrip('/')}/{TEMPORARY_PREFIX}{journal.id}-{number}"


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as stream:
        return stream.readall() or b""


def _changed(path: str) -> DeployError:
    return DeployError(
        "E_UNEXPECTED",
        f"{path} changed while the command was running; run it again",
        reason="changed_meanwhile",
        path=path,
    )


def _told(error: OSError, place: Path) -> DeployError:
    return DeployError.io(error.filename or place, error, "write")


def _stuck(home: Home, error: OSError | DeployError) -> DeployError:
    told = _told(error, home.journal) if isinstance(error, OSError) else error
    return DeployError(
        "E_UNEXPECTED",
        f"an interrupted deploy could be neither finished nor undone: {told};"
        " remove the cause, the next deploy or rollback tries again",
        reason="recovery_pending",
        next_actions=("fix_cause", "retry_command"),
        journal=str(home.journal),
    )
