"""Receipts: what was installed, from where, why it was trusted, and every file's hash."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet_agentpack.enact.bundle import FileRecord, Folder
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.permissions import NOTHING, Permissions
from fleet_agentpack.enact.trust.identity import NOBODY, Signer
from fleet_agentpack.kit.results import json_file, jsonable
from fleet_agentpack.kit.semver import Version, VersionError
from fleet_agentpack.kit.shapes import objects

BUILTIN = "builtin"


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What was installed, from where, and why it was trusted."""

    name: str
    version: str
    source: str
    digest: str  # sha256 of the bundle
    installed_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat("T", "seconds"))
    trust: dict[str, object]
    projects: tuple[str, ...] = ()  # tools.json files of projects that pin this version
    granted: Permissions | None = NOTHING  # by the person; None in a receipt of 0.1
    image: str | None = None  # by digest, as it was at the install
    files: dict[str, FileRecord]

    @property
    def has(self) -> Permissions:
        """What the tool may do; nothing with a receipt of 0.1."""
        return self.granted or NOTHING

    @property
    def is_builtin(self) -> bool:
        """Whether it claims to come from this package; `Sources.recheck` proves it."""
        return self.source == BUILTIN

    @property
    def signers(self) -> tuple[Signer, ...]:
        """Who signed the bundle, of those who were trusted; nobody where it cannot be read."""
        rows = self.trust.get("signers")
        return tuple(map(Signer.from_json, objects(rows)))

    @property
    def parties(self) -> tuple[str, ...]:
        """The same, each auditor once."""
        return tuple(sorted({each.party for each in self.signers}))

    def is_continued(self, before: Receipt, accepted: Iterable[str] = ()) -> bool:
        """Whether someone who signed the version before signed this one, or is accepted now."""
        if self.digest == before.digest or not before.signers:
            return True
        now = {text for each in self.signers for text in (each.party, each.identity)}
        return bool({*before.parties, *accepted} & (now or {NOBODY}))

    def signer_changed(self, before: Receipt) -> EnactError:
        """The question that a change of signers is, and how to answer it."""
        label = f"{self.name}@{self.version}"
        return EnactError.signer_changed(label, before.parties, self.parties)

    def check_not_older(self, installed: str | None) -> None:
        """Refuse to replace a newer version: a registry can withhold one. Raises `EnactError`."""
        with contextlib.suppress(VersionError):
            if installed and Version.parse(self.version) < Version.parse(installed):
                raise EnactError.downgraded(self.name, installed, self.version)

    def content(self) -> bytes:
        """The receipt as it is stored; the order of the fields is that of the file."""
        files = dict(sorted(self.files.items()))
        return json_file(jsonable(replace(self, digest=f"sha256:{self.digest}", files=files)))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Receipt:
        """A stored receipt. Raises `ValueError`, `KeyError` or `TypeError`."""
        return cls(
            name=str(data["name"]),
            version=str(data["version"]),
            source=str(data["source"]),
            digest=str(data["digest"]).removeprefix("sha256:"),
            files={
                path: FileRecord(str(each["sha256"]), bool(each["executable"]))
                for path, each in data["files"].items()
            },
            trust=dict(data["trust"]),
            installed_at=str(data.get("installed_at", "")),
            projects=tuple(map(str, data.get("projects", ()))),
            granted=Permissions.from_json(data["granted"]) if data.get("granted") else None,
            image=str(data["image"]) if data.get("image") else None,
        )


class VerifiedFolder(Folder):
    """Reads a tool's files, and refuses those that differ from the receipt."""

    def __init__(self, root: Path, receipt: Receipt) -> None:
        super().__init__(root)
        self._receipt = receipt

    def read(self, path: str) -> bytes | None:
        """The content of one file. Raises `EnactError` if it has changed since the install."""
        content = super().read(path)
        known = self._receipt.files.get(path)
        found = None if content is None else hashlib.sha256(content).hexdigest()
        if found != (known.sha256 if known else None):
            raise EnactError.tool_changed(self._receipt.name, self._receipt.version, path)
        return content
