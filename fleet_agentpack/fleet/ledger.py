"""Tasks in SQLite, shared by every process of this user: ids, source, times and outcome."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.migrations import NewerLedgerError, migrate
from fleet_agentpack.fleet.models import Task, TaskStatus
from fleet_agentpack.kit.locks import file_lock

BUSY_TIMEOUT_S = 10.0
LEAST_ROOM = 100_000  # bytes; below that, SQLite fails in ways of its own
COLUMNS = tuple(field.name for field in fields(Task))
_TIMES = {"created_at", "started_at", "completed_at", "reported_before", "reported_until"}
_OPEN = "status IN ('pending', 'running')"
# ruff: noqa: S608 - statements are made of our own column names
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM tasks"
_INSERT = f"INSERT INTO tasks ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
_UPDATE = f"UPDATE tasks SET {', '.join(f'{name} = ?' for name in COLUMNS)} WHERE id = ?"


class TaskOpenError(RuntimeError):
    """The agent already has an open task."""


class Ledger:
    """The task ledger; safe for several threads and several processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def open_tasks(self) -> dict[str, Task]:
        """The open task of every agent that has one, by workspace id."""
        with self.reading() as db:
            rows = db.execute(f"{_SELECT} WHERE {_OPEN}")
            return {task.workspace_id: task for task in map(_task, rows)}

    def open_tasks_at_once(self) -> dict[str, Task] | None:
        """The same without ever blocking; None when the database is closed or in use.

        Readers never wait for other processes' writes (WAL), only for our own threads.
        """
        if self._db is None or not self._lock.acquire(blocking=False):
            return None
        try:
            return self.open_tasks()
        finally:
            self._lock.release()

    def newest(self, workspace_id: str) -> Task | None:
        """The task that an agent was given last."""
        found, _ = self.page(workspace_id, 0, 1)
        return found[0] if found else None

    def totals(self) -> tuple[dict[str, Task], dict[str, float]]:
        """Each agent's last task, and what its tasks cost where that is known; by workspace id."""
        newest = "SELECT workspace_id, max(created_at) FROM tasks GROUP BY workspace_id"
        costs = "SELECT workspace_id, sum(cost_usd) FROM tasks GROUP BY workspace_id"
        with self.reading() as db:
            rows = db.execute(f"{_SELECT} WHERE (workspace_id, created_at) IN ({newest})")
            last = {task.workspace_id: task for task in map(_task, rows)}
            return last, {agent: cost for agent, cost in db.execute(costs) if cost is not None}

    def spent(self, workspace_id: str) -> float | None:
        """What an agent's tasks have cost; None where no program said so."""
        query = "SELECT sum(cost_usd) FROM tasks WHERE workspace_id = ?"
        with self.reading() as db:
            cost: float | None = db.execute(query, [workspace_id]).fetchone()[0]
            return cost

    def page(self, workspace_id: str, offset: int, limit: int) -> tuple[list[Task], int]:
        """Some of an agent's tasks, newest first, and how many there are in all."""
        where = "WHERE workspace_id = ?"
        with self.reading() as db:
            total = db.execute(f"SELECT count(*) FROM tasks {where}", [workspace_id]).fetchone()[0]
            if offset >= total:
                return [], int(total)
            rows = db.execute(
                f"{_SELECT} {where} ORDER BY created_at DESC, id LIMIT ? OFFSET ?",
                [workspace_id, limit, offset],
            ).fetchall()
        return [_task(row) for row in rows], int(total)

    def claim(self, task: Task) -> None:
        """Add a task that is about to start. Raises `TaskOpenError` when another one is open."""
        with self.writing() as db:
            try:
                db.execute(_INSERT, _row(task))
            except sqlite3.IntegrityError as error:
                raise TaskOpenError(task.workspace_id) from error

    def release(self, task_id: str) -> None:
        """Take a claim back: the task never reached its agent."""
        with self.writing() as db:
            db.execute("DELETE FROM tasks WHERE id = ? AND status = 'pending'", [task_id])

    def confirm(self, task_id: str, started_at: datetime) -> Task:
        """The agent has accepted a claimed task; a status reported meanwhile is kept."""
        return self._change_claim(task_id, status="running", started_at=started_at)

    def doubt(self, task_id: str, at: datetime) -> Task:
        """It is unknown whether a claimed task arrived; the agent's next snapshot will tell."""
        return self._change_claim(task_id, started_at=at)

    def request_stop(self, task_id: str, requested: bool) -> Task:
        """Note that a stop of this task was requested, or that the request failed."""
        return self._change(task_id, lambda task: replace(task, stop_requested=requested))

    def finish(
        self, task_id: str, status: TaskStatus, at: datetime, until: datetime | None = None
    ) -> Task:
        """End a task, whatever was reported about it until then, by the engine's clock."""
        return self._change(
            task_id, lambda task: replace(task.ended(status, at), reported_until=until)
        )

    def relabel(self, tasks: Sequence[Task]) -> None:
        """Correct who started these tasks."""
        with self.writing() as db:
            for task in tasks:
                db.execute("UPDATE tasks SET source = ? WHERE id = ?", [task.source, task.id])

    def adjust(
        self, workspace_id: str, build: str, decide: Callable[[Sequence[Task]], list[Task]]
    ) -> Task | None:
        """Let `decide` add or change an agent's tasks of one build; returns the open one.

        Nothing is locked or written while there is nothing to change.
        """
        with self.reading() as db:
            tasks = _of_build(db, workspace_id, build)
        if decide(tasks):
            with self.writing() as db:
                for task in decide(_of_build(db, workspace_id, build)):
                    _upsert(db, task)
                tasks = _of_build(db, workspace_id, build)
        return next((task for task in tasks if task.open), None)

    def _change_claim(self, task_id: str, **values: Any) -> Task:
        return self._change(
            task_id, lambda task: replace(task, **values) if task.status == "pending" else task
        )

    def _change(self, task_id: str, change: Callable[[Task], Task]) -> Task:
        with self.writing() as db:
            row = db.execute(f"{_SELECT} WHERE id = ?", [task_id]).fetchone()
            if row is None:
                raise FleetError.unavailable(f"Task {task_id} is no longer in the ledger.")
            task = change(_task(row))
            _upsert(db, task)
        return task

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The database, to be read. Raises 503 if it cannot be used."""
        with self._lock:
            try:
                yield self._connected()
            except (sqlite3.Error, OSError, NewerLedgerError) as error:
                raise self._unusable(error) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The database in a transaction of its own, which an error takes back."""
        with self.reading() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                # SQLite has taken back some failures itself, a full disk among them.
                with suppress(sqlite3.Error):
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                raise

    def _unusable(self, error: Exception) -> FleetError:
        if self._is_disk_full(error):
            told = f"The disk is full: the task ledger {self.path} cannot be written. Free some"
            return FleetError.unavailable(f"{told} space and try again.", ledger=str(self.path))
        told = f"The task ledger {self.path} cannot be used: {error}"
        return FleetError.unavailable(told, ledger=str(self.path))

    def _is_disk_full(self, error: Exception) -> bool:
        """Whether there is no room; SQLite reports that as an I/O error of its own, too."""
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in (ENOSPC, EDQUOT):
            return True
        if code is None or code & 0xFF != sqlite3.SQLITE_IOERR:
            return False
        with suppress(OSError):
            return shutil.disk_usage(self.path.parent).free < LEAST_ROOM
        return False

    def _connected(self) -> sqlite3.Connection:
        if self._db is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(
                self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            try:
                # Connections that switch a new file to WAL at the same time lock each other out.
                with file_lock(self.path.with_name(f"{self.path.name}.lock")):
                    db.execute("PRAGMA journal_mode = WAL")
                    db.execute("PRAGMA synchronous = NORMAL")
                    migrate(db)
            except BaseException:
                db.close()
                raise
            self.path.chmod(0o600)
            self._db = db
        return self._db


def _of_build(db: sqlite3.Connection, workspace_id: str, build: str) -> list[Task]:
    rows = db.execute(
        f"{_SELECT} WHERE workspace_id = ? AND (build = ? OR {_OPEN}) ORDER BY created_at, id",
        [workspace_id, build],
    )
    return [_task(row) for row in rows]


def _upsert(db: sqlite3.Connection, task: Task) -> None:
    """Add or change a task, unless it would be a second open one: then it waits for next time.

    `INSERT OR REPLACE` would silently delete the row it clashes with, hence update and insert.
    """
    try:
        if db.execute(_UPDATE, [*_row(task), task.id]).rowcount == 0:
            db.execute(_INSERT, _row(task))
    except sqlite3.IntegrityError:
        if not task.open:
            raise


def _row(task: Task) -> list[object]:
    values = [getattr(task, name) for name in COLUMNS]
    return [written(value) if isinstance(value, datetime) else value for value in values]


def written(moment: datetime) -> str:
    """A time as text of one width, so that their order is the text's order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _task(row: Sequence[Any]) -> Task:
    values = dict(zip(COLUMNS, row, strict=True))
    for name in _TIMES:
        values[name] = values[name] and datetime.fromisoformat(values[name])
    values["stop_requested"] = bool(values["stop_requested"])
    return Task(**values)
