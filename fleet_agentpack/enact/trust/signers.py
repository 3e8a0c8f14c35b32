"""Who signed each tool when it was last installed: an uninstall is no way around the question."""

from __future__ import annotations

from pathlib import Path

from fleet_agentpack.enact.receipt import Receipt
from fleet_agentpack.enact.trust.state_file import StateFile
from fleet_agentpack.kit.results import jsonable
from fleet_agentpack.kit.shapes import objects


class KnownSigners:
    """The signers of what a user has installed, or had."""

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path)

    def last(self, name: str) -> Receipt | None:
        """What is known of the last install. Raises `EnactError` for a corrupt file."""
        row = self._file.read().get(name)
        if not isinstance(row, dict):
            return None
        version, digest = str(row.get("version")), str(row.get("digest"))
        trust: dict[str, object] = {"signers": objects(row.get("signers"))}
        return Receipt(name=name, version=version, source="", digest=digest, trust=trust, files={})

    def remember(self, receipt: Receipt) -> None:
        """Keep who signed what was just installed."""
        row = {
            "version": receipt.version,
            "digest": receipt.digest,
            "signers": jsonable(receipt.signers),
        }
        self._file.change(lambda known: {**known, receipt.name: row})
