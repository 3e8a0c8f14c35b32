"""The ledger's schema, step by step; a step that has been released is never changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable


class NewerLedgerError(RuntimeError):
    """The ledger was written by a newer version of this package."""


def _tasks(db: sqlite3.Connection) -> None:
    db.execute(
        """
        CREATE TABLE tasks (
          id TEXT PRIMARY KEY,
          workspace_id TEXT NOT NULL,
          agent_name TEXT NOT NULL,
          description TEXT NOT NULL,
          status TEXT NOT NULL,
          source TEXT NOT NULL,
          created_at TEXT NOT NULL,
          started_at TEXT,
          completed_at TEXT,
          outcome TEXT,
          build TEXT NOT NULL,
          reported_before TEXT,
          episode TEXT,
          stop_requested INTEGER NOT NULL DEFAULT 0,
          cost_usd REAL
        ) WITHOUT ROWID
        """
    )
    db.execute("CREATE INDEX tasks_by_agent ON tasks (workspace_id, created_at DESC)")
    # The database itself enforces that an agent has one open task at a time.
    db.execute(
        "CREATE UNIQUE INDEX one_open_task ON tasks (workspace_id)"
        " WHERE status IN ('pending', 'running')"
    )


def _reports(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE tasks ADD COLUMN progress TEXT")
    db.execute("ALTER TABLE tasks ADD COLUMN reported_until TEXT")


def _agents(db: sqlite3.Connection) -> None:
    db.execute(
        """
        CREATE TABLE agents (
          workspace_id TEXT PRIMARY KEY,
          name TEXT NOT NULL COLLATE NOCASE,
          role TEXT NOT NULL,
          spec TEXT NOT NULL,
          untold TEXT NOT NULL DEFAULT '',
          deleted_at TEXT
        ) WITHOUT ROWID
        """
    )
    db.execute("CREATE INDEX tasks_by_name ON tasks (agent_name COLLATE NOCASE, created_at DESC)")


def _streams(db: sqlite3.Connection) -> None:
    db.execute(
        """
        CREATE TABLE streams (
          task_id TEXT PRIMARY KEY,
          position INTEGER NOT NULL,
          whole INTEGER NOT NULL,
          facts TEXT NOT NULL
        ) WITHOUT ROWID
        """
    )


STEPS: list[Callable[[sqlite3.Connection], None]] = [_tasks, _reports, _agents, _streams]


def migrate(db: sqlite3.Connection) -> None:
    """Bring a database to the newest schema. Raises `NewerLedgerError`."""
    if _version(db) == len(STEPS):
        return
    with db:  # commits, or rolls back when an error leaves it
        db.execute("BEGIN IMMEDIATE")
        done = _version(db)  # again, now that no other process can be migrating
        if done > len(STEPS):
            raise NewerLedgerError("it was written by a newer version of fleet-agentpack")
        for step in STEPS[done:]:
            step(db)
        db.execute(f"PRAGMA user_version = {len(STEPS)}")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
