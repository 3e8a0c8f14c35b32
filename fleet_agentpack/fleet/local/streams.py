"""How far programs' outputs were read, and what was found in them, in the ledger's database."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass

from msgspec import convert

from fleet_agentpack.fleet.errors import FleetError
from fleet_agentpack.fleet.ledger import Ledger
from fleet_agentpack.fleet.local.stream import Stream

# Several processes read on from the same place: who got further counts, and the end is final.
_SAVE = """
INSERT INTO streams (task_id, position, whole, facts) VALUES (?, ?, ?, ?)
ON CONFLICT (task_id) DO UPDATE
SET position = excluded.position, whole = excluded.whole, facts = excluded.facts
WHERE NOT streams.whole AND (excluded.whole OR excluded.position > streams.position)
"""


@dataclass(frozen=True)
class Streams:
    """The streams of all tasks. A ledger that cannot be used costs reading them once more."""

    ledger: Ledger

    def load(self, task_id: str) -> Stream:
        """What was read of a task's output; a new stream where nothing was."""
        with suppress(FleetError, ValueError), self.ledger.reading() as db:
            found = db.execute("SELECT facts FROM streams WHERE task_id = ?", [task_id]).fetchone()
            return convert(json.loads(found[0]), Stream) if found else Stream()
        return Stream()

    def save(self, task_id: str, stream: Stream) -> None:
        """Record what was read."""
        values = [task_id, stream.offset, stream.whole, json.dumps(asdict(stream))]
        with suppress(FleetError), self.ledger.writing() as db:
            db.execute(_SAVE, values)
