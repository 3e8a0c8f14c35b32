"""What the ledger knows of agents: those that we made, and those that are gone."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet_agentpack.fleet.ledger import Ledger, written

KEPT_DAYS = 30  # how long the history of a deleted agent stays


@dataclass(frozen=True)
class AgentRecord:
    """An agent that we made, or one that we deleted."""

    workspace_id: str
    name: str
    role: str = ""
    spec: str = ""
    untold: str = ""  # what its first task has to tell, because no parameter could


class AgentRecords:
    """Agents in the ledger's database."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def add(self, record: AgentRecord) -> None:
        """Remember an agent that we made."""
        values = [record.workspace_id, record.name, record.role, record.spec, record.untold]
        with self._ledger.writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO agents (workspace_id, name, role, spec, untold)"
                " VALUES (?, ?, ?, ?, ?)",
                values,
            )

    def made(self) -> dict[str, AgentRecord]:
        """The agents that we made and did not delete, by workspace id."""
        query = "SELECT workspace_id, name, role, spec, untold FROM agents WHERE deleted_at IS NULL"
        with self._ledger.reading() as db:
            found = [AgentRecord(*row) for row in db.execute(query)]
        return {record.workspace_id: record for record in found}

    def told(self, workspace_id: str) -> None:
        """Note that an agent was told everything that its first task had to tell."""
        with self._ledger.writing() as db:
            db.execute("UPDATE agents SET untold = '' WHERE workspace_id = ?", [workspace_id])

    def bury(self, workspace_id: str, name: str, now: datetime) -> None:
        """Note that an agent was deleted; the histories of those long gone go for good."""
        long_ago = written(now - timedelta(days=KEPT_DAYS))
        with self._ledger.writing() as db:
            db.execute(
                "INSERT INTO agents (workspace_id, name, role, spec, deleted_at)"
                " VALUES (?, ?, '', '', ?)"
                " ON CONFLICT (workspace_id) DO UPDATE SET deleted_at = excluded.deleted_at",
                [workspace_id, name, written(now)],
            )
            done = "SELECT id FROM tasks WHERE workspace_id = ?"
            db.execute(f"DELETE FROM streams WHERE task_id IN ({done})", [workspace_id])  # noqa: S608
            gone = "SELECT workspace_id FROM agents WHERE deleted_at < ?"
            db.execute(f"DELETE FROM tasks WHERE workspace_id IN ({gone})", [long_ago])  # noqa: S608
            db.execute("DELETE FROM agents WHERE deleted_at < ?", [long_ago])

    def deleted_at(self, workspace_id: str) -> datetime | None:
        """When we deleted an agent."""
        query = "SELECT deleted_at FROM agents WHERE workspace_id = ? AND deleted_at IS NOT NULL"
        with self._ledger.reading() as db:
            at = _first(db, query, [workspace_id])
        return datetime.fromisoformat(at) if at else None

    @staticmethod
    def is_long_ago(deleted_at: datetime, now: datetime) -> bool:
        """Whether the history of an agent deleted then is no longer kept."""
        return deleted_at < now - timedelta(days=KEPT_DAYS)

    def gone(self, name: str, now: datetime) -> str | None:
        """The workspace id of the agent that had this name last and whose history is kept."""
        long_ago = written(now - timedelta(days=KEPT_DAYS))
        with self._ledger.reading() as db:
            return _first(
                db,
                "SELECT t.workspace_id FROM tasks t LEFT JOIN agents a USING (workspace_id)"
                " WHERE t.agent_name = ? COLLATE NOCASE"
                " AND (a.deleted_at IS NULL OR a.deleted_at >= ?)"
                " ORDER BY t.created_at DESC LIMIT 1",
                [name, long_ago],
            )


def _first(db: sqlite3.Connection, query: str, values: list[object]) -> str | None:
    row = db.execute(query, values).fetchone()
    return str(row[0]) if row else None
