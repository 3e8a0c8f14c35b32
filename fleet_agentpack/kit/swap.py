"""Replaces several files and directories together, so that a kill leaves old or new, never a mix.

Stage every new content → write the journal → swap path by path → drop the journal. An error while
it runs goes back at once. After a kill, `Swap.recover` goes forward, and back if that fails. What
is neither old nor new by then was changed by somebody else: it is left alone, and named. A stage
without a journal is rubbish.

A file is replaced in one step, by a rename. A directory cannot be: the old one is moved into the
stage, then the new one out of it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.kit.disk import NO_LINKS, Disk, State, find, read, same
from fleet_agentpack.kit.files import hash_file
from fleet_agentpack.kit.journal import (
    Journal,
    Row,
    SwapError,
    changed,
    missing_directories,
    stuck,
)
from fleet_agentpack.kit.paths import directory_of

_EMPTIED = "emptied.json"  # in a stage: directories to be removed if they are empty
_NOT_EMPTY = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)  # a link, since then

# The new content of a path: a file's bytes, a directory that the function makes, or nothing.
New = bytes | Callable[[Path], None] | None


@dataclass(frozen=True)
class Area:
    """Where swaps leave their marks: on one file system with the directories that they replace."""

    journal: Path
    staging: Path
    kept: Path  # stages that are not thrown away
    tidied: tuple[Path, ...] = ()  # below these, a removal leaves no empty directory behind


@dataclass(frozen=True)
class Recovered:
    """What became of an interrupted swap, and the paths that it left alone, each with why."""

    id: str
    finished: bool
    left: tuple[str, ...]


class Swap:
    """Carries out swaps in one area. The caller holds a lock."""

    def __init__(
        self, area: Area, disk: Disk | None = None, progress: Callable[[int], None] | None = None
    ) -> None:
        self._area = area
        self._disk = disk or Disk()
        self._progress = progress or (lambda _: None)
        self._made: set[str] = set()  # directories known to exist
        self._reached = 0  # how many rows may have been swapped

    @property
    def is_pending(self) -> bool:
        """Whether a swap is under way or was cut short."""
        return os.path.lexists(self._area.journal)

    def replace(self, changes: Mapping[Path, New]) -> None:
        """Give every path its new content, or leave all as they were; no path is inside another.

        Raises `OSError`, `SwapError`, and what a function that makes a directory raises.
        """
        name = secrets.token_hex(8)
        with self.staging(name) as stage:
            self.make(f"{stage}/after")
            numbered = enumerate(changes.items())
            rows = [self._row(stage, n, str(path), new) for n, (path, new) in numbered]
        self.run(name, [row for row in rows if row.before or row.after])

    def run(
        self, name: str, rows: Sequence[Row], *, keep: str = "", emptied: Sequence[str] = ()
    ) -> None:
        """Swap what was staged under a name, or leave all as it was. Raises `OSError`, `SwapError`.

        The directory `keep` of the stage goes to the area's kept ones. Those that are `emptied`
        are removed in the end, innermost first, if nothing is in them.
        """
        journal = Journal(name, tuple(rows), missing_directories(rows), keep)
        stage, self._reached = f"{self._area.staging}/{name}", 0
        try:
            if emptied:
                self._disk.create(f"{stage}/{_EMPTIED}", json.dumps(list(emptied)).encode(), 0o600)
            self._disk.sync_tree(stage)
            self._disk.create(f"{stage}/journal.json", journal.encode(), 0o600)
            self._disk.rename(f"{stage}/journal.json", str(self._area.journal))
        except BaseException:
            self._drop_journal()
            self._discard()
            raise
        try:
            self._forward(journal)
            self._finish(journal)
        except BaseException as error:
            self._go_back(journal, error)
            raise
        self._tidy(journal)

    def recover(self) -> Recovered | None:
        """Finish or undo what a killed process left. Raises `OSError`, `SwapError`."""
        journal = Journal.load(self._area.journal)
        if journal is None:
            self._remove_emptied()
            self._discard()
            return None
        try:
            left = self._settle(journal, enumerate(journal.rows), forward=True)
            recovered = Recovered(journal.id, True, left)
            if recovered.left:
                self._keep_backups(journal)
            self._finish(journal)
        except OSError:
            try:
                recovered = Recovered(journal.id, False, self._undo(journal, len(journal.rows)))
            except OSError as error:
                raise stuck(self._area.journal, error) from error
        self._tidy(journal)
        return recovered

    # Staging: nothing that anybody else looks at is touched.

    @contextmanager
    def staging(self, name: str) -> Iterator[str]:
        """A new directory to gather contents in; thrown away when that fails."""
        stage = f"{self._area.staging}/{name}"
        self._made.clear()
        try:
            self.make(stage)
            yield stage
        except BaseException:
            self._discard()
            raise

    def _row(self, stage: str, number: int, path: str, new: New) -> Row:
        before, after, staged = find(path), None, f"after/{number}"
        if before is not None and before.kind == "other":
            raise FileExistsError(errno.EEXIST, "neither a file nor a directory", path)
        if isinstance(new, bytes):
            kept = before.mode if before is not None and before.kind == "file" else None
            sha256 = hashlib.sha256(new).hexdigest()
            after = State("file", sha256, 0o666 if kept is None else kept, exact=kept is not None)
            self._disk.create(f"{stage}/{staged}", new, 0o600)
        elif new is not None:
            new(Path(stage, staged))
            after = find(f"{stage}/{staged}")
        backup = before and f"before/{number}"
        moved = any(state and state.kind == "folder" for state in (before, after))
        if before is not None and not moved:
            self.back_up(path, before, f"{stage}/{backup}")
        return Row(path, before, after, backup, after and staged, moved)

    def back_up(self, path: str, before: State, place: str) -> None:
        """Keep what will be replaced: the same file under a second name, or a copy of it."""
        self.make(os.path.dirname(place))
        if before.kind == "file" and os.lstat(path).st_nlink == 1 and self.linked(path, place):
            return
        data = read(path) if before.sha256 else b""
        self._disk.create(place, data, before.mode if before.kind == "file" else 0o600, exact=True)
        if before.sha256 and hash_file(place, len(data)) != before.sha256:
            raise changed(path)

    def make(self, directory: str) -> None:
        """Make a directory and those above it."""
        if directory in self._made:
            return
        if not os.path.isdir(directory):
            self.make(os.path.dirname(directory))
            try:
                self._disk.make_directory(directory)
            except FileExistsError:
                if not os.path.isdir(directory):
                    raise
        self._made.add(directory)

    # Swapping: path by path.

    def _forward(self, journal: Journal) -> None:
        stage = self._stage_of(journal)
        for number, row in enumerate(journal.rows):
            if not same(row.before, find(row.path)):
                raise changed(row.path)
            self._reached = number + 1
            self._put(journal, number, row, stage)
            self._progress(number)

    def _put(self, journal: Journal, number: int, row: Row, stage: str) -> None:
        if row.moved:
            if row.backup is not None and os.path.lexists(row.path):
                self.make(os.path.dirname(f"{stage}/{row.backup}"))
                self._disk.rename(row.path, f"{stage}/{row.backup}")
            if row.staged is not None:
                self.make(os.path.dirname(row.path))
                self._disk.rename(f"{stage}/{row.staged}", row.path)
            return
        if row.after is None:
            self._disk.remove(row.path)
            return
        temporary = journal.temporary(number)
        self.make(directory_of(row.path))
        if row.after.link is not None:
            self._disk.symlink(row.after.link, temporary)
        else:
            data = read(self._staged(journal, row, stage))
            self._disk.create(temporary, data, row.after.mode, exact=row.after.exact)
        self._disk.rename(temporary, row.path)

    def _finish(self, journal: Journal) -> None:
        """Put what is kept where it belongs, then drop the journal: the point of no return."""
        self._keep(journal)
        self._drop_journal()

    # Recovery.

    def _undo(self, journal: Journal, reached: int) -> tuple[str, ...]:
        numbered = list(enumerate(journal.rows[:reached]))
        left = self._settle(journal, reversed(numbered), forward=False)
        for directory in reversed(journal.directories):
            self._remove_empty(directory)
        if left:
            self._keep_backups(journal)
        elif os.path.lexists(f"{self._area.kept}/{journal.id}"):
            place = self._kept_part(journal)
            self.make(os.path.dirname(place))
            self._disk.rename(f"{self._area.kept}/{journal.id}", place)
        self._drop_journal()
        return left

    def _settle(
        self, journal: Journal, numbered: Iterable[tuple[int, Row]], *, forward: bool
    ) -> tuple[str, ...]:
        """Everything new, or back as it was, except what somebody else has changed since."""
        left = []
        stage = self._stage_of(journal)
        move = self._put if forward else self._restore
        for number, row in numbered:
            self._clear(journal.temporary(number))
            start, end = (row.before, row.after) if forward else (row.after, row.before)
            found = find(row.path)
            if same(end, found):
                continue
            if same(start, found) or _is_halfway(row, found, stage):
                move(journal, number, row, stage)
            else:
                left.append(self._leave(number, row, found, stage))
        return tuple(left)

    def _restore(self, journal: Journal, number: int, row: Row, stage: str) -> None:
        backup = f"{stage}/{row.backup}"
        if row.moved:
            if row.staged is not None and os.path.lexists(row.path):
                # Back to where it came from: a kill now may still be finished forward.
                self._disk.rename(row.path, f"{stage}/{row.staged}")
            if row.backup is not None:
                self.make(os.path.dirname(row.path))
                self._disk.rename(backup, row.path)
            return
        if row.before is None:
            self._disk.remove(row.path)
            return
        temporary = journal.temporary(number)
        self.make(os.path.dirname(row.path))
        if row.before.link is not None:
            self._disk.symlink(row.before.link, temporary)
        elif not self.linked(backup, temporary):  # a second name needs no space on a full disk
            self._disk.create(temporary, read(backup), row.before.mode, exact=True)
        self._disk.rename(temporary, row.path)

    def _leave(self, number: int, row: Row, found: State | None, stage: str) -> str:
        """What somebody changed in between stays; a file's bytes are kept in the stage as well."""
        place = f"{stage}/{row.backup or f'before/{number}'}.found"
        if found is not None and found.kind == "file" and not os.path.exists(place):
            self.make(os.path.dirname(place))
            self._disk.create(place, read(row.path), 0o600)
        return f"{row.path} was changed by another program in the meantime; it was left unchanged"

    def _go_back(self, journal: Journal, cause: BaseException) -> None:
        try:
            left = self._undo(journal, self._reached)
        except OSError as error:
            raise stuck(self._area.journal, error) from cause
        self._discard()
        if left:
            kept = f"{self._area.kept}/{journal.id}"
            raise SwapError(
                "undone_in_part", kept, f"{left[0]}; the backups are in {kept}", left
            ) from cause

    # Small steps.

    def _stage_of(self, journal: Journal) -> str:
        """Where the staged files are: still in the staging area, or already kept."""
        stage = f"{self._area.staging}/{journal.id}"
        return stage if os.path.isdir(stage) else f"{self._area.kept}/{journal.id}"

    def _kept_part(self, journal: Journal) -> str:
        """The part of the stage that is kept."""
        return os.path.normpath(f"{self._area.staging}/{journal.id}/{journal.keep}")

    def _keep(self, journal: Journal) -> None:
        part = self._kept_part(journal)
        if journal.keep and os.path.isdir(part):
            self.make(str(self._area.kept))
            self._disk.rename(part, f"{self._area.kept}/{journal.id}")

    def _keep_backups(self, journal: Journal) -> None:
        """Keep all that was staged: some of it may be the only copy of what stood somewhere."""
        self._keep(journal)
        stage, kept = f"{self._area.staging}/{journal.id}", f"{self._area.kept}/{journal.id}"
        if not os.path.isdir(stage):
            return
        kept = f"{kept}/stage" if os.path.isdir(kept) else kept
        self.make(os.path.dirname(kept))
        self._disk.rename(stage, kept)

    def _staged(self, journal: Journal, row: Row, stage: str) -> str:
        """Where the new content of a file is; a part that is kept may have been moved already."""
        staged = row.staged or ""
        place, kept = os.path.join(stage, staged), f"{journal.keep}/"
        if staged.startswith(kept) and not os.path.lexists(place):
            return f"{self._area.kept}/{journal.id}/{staged.removeprefix(kept)}"
        return place

    def _drop_journal(self) -> None:
        # It may be gone though dropping it failed: that could not be made durable.
        if self.is_pending:
            self._disk.remove(str(self._area.journal))

    def linked(self, source: str, path: str) -> bool:
        """Whether a file could be given a second name."""
        try:
            self._disk.link(source, path)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            return False
        return True

    def _clear(self, temporary: str) -> None:
        if os.path.lexists(temporary):
            self._disk.remove(temporary)

    def _tidy(self, journal: Journal) -> None:
        """Remove the stage, and directories that are now empty and not to stay so."""
        self._remove_emptied()
        self._discard()
        tops = tuple(f"{top}/" for top in self._area.tidied)
        for row in journal.rows if tops else ():
            directory = os.path.dirname(row.path)
            with suppress(OSError):
                while directory.startswith(tops) and self._remove_empty(directory):
                    directory = os.path.dirname(directory)

    def _remove_emptied(self) -> None:
        """Remove what a swap has left empty; the list outlives the journal, in case of a kill."""
        for listed in self._area.staging.glob(f"*/{_EMPTIED}"):
            with suppress(OSError, ValueError):
                for directory in json.loads(listed.read_bytes()):
                    with suppress(OSError):  # the others go all the same
                        self._remove_empty(directory)

    def _remove_empty(self, directory: str) -> bool:
        try:
            self._disk.remove_directory(directory)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            return error.errno == errno.ENOENT
        self._made.discard(directory)
        return True

    def _discard(self) -> None:
        """Throw away what is staged; what cannot be removed now goes next time."""
        if os.path.isdir(self._area.staging):
            self._disk.remove_tree(str(self._area.staging))


def _is_halfway(row: Row, found: State | None, stage: str) -> bool:
    """Whether the old content has been moved away and the new one has not come yet."""
    moved_away = row.moved and found is None and row.backup is not None
    return moved_away and os.path.lexists(f"{stage}/{row.backup}")
