"""The journal: what a running transaction is about to do, so that another process can finish it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fleet_agentpack.deploy.disk import Found
from fleet_agentpack.deploy.errors import DeployError

VERSION = 1


class Before(NamedTuple):
    """What stood at a place: content, mode, and where it led if it was a link."""

    sha256: str
    mode: int
    link: str | None

    def describes(self, found: Found | None) -> bool:
        """Whether this is what stands there now."""
        return (
            found is not None
            and (found.sha256, found.link) == (self.sha256, self.link)
            and bool(found.mode & 0o100) == bool(self.mode & 0o100)
        )


class After(NamedTuple):
    """What shall stand there."""

    sha256: str
    mode: int
    exact: bool  # whether the mode holds regardless of the umask

    def describes(self, found: Found | None) -> bool:
        """Whether this is what stands there now."""
        return (
            found is not None
            and found.link is None
            and found.sha256 == self.sha256
            and (found.mode & 0o100 or not self.mode & 0o100) != 0
        )


class Row(NamedTuple):
    """One file's way from before to after; the names are relative to the snapshot's directory."""

    target: str
    op: str
    path: str
    before: Before | None
    after: After | None
    backup: str | None
    staged: str | None

    def is_done(self, found: Found | None) -> bool:
        """Whether the file is as it shall be."""
        return found is None if self.after is None else self.after.describes(found)

    def is_undone(self, found: Found | None) -> bool:
        """Whether the file is as it was."""
        return found is None if self.before is None else self.before.describes(found)


@dataclass(frozen=True)
class Journal:
    """A whole transaction."""

    id: str
    rows: tuple[Row, ...]
    directories: tuple[str, ...]  # made by the transaction, outermost first
    record: dict[str, Any]  # the snapshot that completes it

    def encode(self) -> bytes:
        """The journal as text."""
        document = {
            "version": VERSION,
            "id": self.id,
            "rows": self.rows,
            "directories": self.directories,
            "record": self.record,
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def load(path: Path) -> Journal | None:
    """The pending journal, if there is one. Raises `DeployError` when it cannot be read."""
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != VERSION:
            raise ValueError("unknown version")
        return Journal(
            str(document["id"]),
            tuple(_row(*row) for row in document["rows"]),
            tuple(document["directories"]),
            dict(document["record"]),
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DeployError.io(path, error, "read") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DeployError(
            "E_UNEXPECTED",
            f"the journal of an interrupted deploy cannot be read: {path}; move it away to go on,"
            f" the backups are under {path.parent}",
            reason="journal_unreadable",
            next_actions=("move_journal_away", "retry_command"),
            path=str(path),
        ) from error


def _row(
    target: str,
    op: str,
    path: str,
    before: list[Any] | None,
    after: list[Any] | None,
    backup: str | None,
    staged: str | None,
) -> Row:
    return Row(
        target,
        op,
        path,
        Before(*before) if before else None,
        After(*after) if after else None,
        backup,
        staged,
    )
