"""Failed audits that were seen once: a registry that hides one later changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleet_agentpack.enact.trust.identity import Signer
from fleet_agentpack.enact.trust.state_file import StateFile
from fleet_agentpack.kit.results import jsonable
from fleet_agentpack.kit.shapes import objects


class KnownVetoes:
    """Who has reported which version as failed; whether that counts is today's policy."""

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path)

    def of(self, label: str) -> Sequence[Signer]:
        """The auditors who reported `name@version`. Raises `EnactError` for a corrupt file."""
        return [*map(Signer.from_json, objects(self._file.read().get(label)))]

    def remember(self, label: str, signer: Signer) -> None:
        """Keep a failed audit whose signature was verified."""
        if signer in self.of(label):
            return
        row = jsonable(signer)
        self._file.change(lambda known: {**known, label: [*objects(known.get(label)), row]})
