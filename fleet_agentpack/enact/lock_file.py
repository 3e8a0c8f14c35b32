"""`tools.lock.json`: exactly which tools a project, or a toolset, is made of.

It is committed and shared, so it is read as a stranger's file: it says what to expect, and can
make an install be refused, never be let in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import is_name, is_version
from fleet_agentpack.enact.receipt import Receipt
from fleet_agentpack.enact.tool_lists import read_object
from fleet_agentpack.enact.trust.identity import Signer
from fleet_agentpack.kit.results import UNKNOWN, Maybe, json_file, jsonable
from fleet_agentpack.kit.shapes import objects

LOCK_NAME = "tools.lock.json"
FORMAT = 1
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class LockedRow:
    """One tool, as the file has it."""

    version: str
    digest: str
    signers: tuple[Signer, ...]
    image: Maybe[str] = UNKNOWN


@dataclass(frozen=True)
class LockedTool:
    """One tool, down to its bytes."""

    version: str
    digest: str  # sha256 of the bundle, in hex
    signers: tuple[Signer, ...] = ()
    image: str | None = None  # by digest, where the tool names one

    @classmethod
    def of(cls, receipt: Receipt) -> LockedTool:
        """What was installed."""
        return cls(receipt.version, receipt.digest, receipt.signers, receipt.image)

    @property
    def parties(self) -> tuple[str, ...]:
        """Who signed it, each auditor once."""
        return tuple(sorted({each.party for each in self.signers}))

    def row(self) -> LockedRow:
        """The tool as the file has it."""
        signers = sorted(self.signers, key=str)
        return LockedRow(
            self.version, f"sha256:{self.digest}", tuple(signers), self.image or UNKNOWN
        )

    def differs(self, found: Receipt) -> tuple[str, str, str] | None:
        """What is not as it was locked: which fact, then, and now."""
        if found.version != self.version:
            return "version", self.version, found.version
        if found.digest != self.digest:
            return "digest", f"sha256:{self.digest}", f"sha256:{found.digest}"
        if self.image and found.image and self.image != found.image:
            return "image", self.image, found.image
        if self.signers and not {*self.parties} & {*found.parties}:
            return "signers", ", ".join(self.parties), ", ".join(found.parties) or "nobody"
        return None


@dataclass(frozen=True)
class LockFile:
    """The tools of a project, or of a toolset that was exported."""

    path: Path
    tools: Mapping[str, LockedTool] = field(default_factory=dict)
    toolset: str | None = None

    @classmethod
    def beside(cls, project_file: Path) -> Path:
        """Where the lock file of a project's `tools.json` is."""
        return project_file.with_name(LOCK_NAME)

    @classmethod
    def read(cls, path: Path) -> LockFile | None:
        """The file as it is; None when there is none. Raises `EnactError`."""
        data = read_object(path)
        if data is None:
            return None
        if data.get("lockfile_version") != FORMAT:
            raise _invalid(path, f"lockfile_version is not {FORMAT}")
        rows = data.get("tools")
        if not isinstance(rows, dict):
            raise _invalid(path, "tools is not an object")
        tools = {str(name): _locked(path, str(name), row) for name, row in rows.items()}
        toolset = data.get("toolset")
        return cls(path, tools, toolset if isinstance(toolset, str) else None)

    def adding(self, receipt: Receipt) -> LockFile:
        """The same, with this tool as it was installed."""
        return replace(self, tools={**self.tools, receipt.name: LockedTool.of(receipt)})

    def removing(self, name: str) -> LockFile:
        """The same, without this tool."""
        return replace(self, tools={k: v for k, v in self.tools.items() if k != name})

    def content(self) -> bytes:
        """What the file holds; the same tools are the same bytes."""
        rows = {name: jsonable(each.row()) for name, each in sorted(self.tools.items())}
        named = {"toolset": self.toolset} if self.toolset else {}
        return json_file({"lockfile_version": FORMAT, **named, "tools": rows})


def _locked(path: Path, name: str, row: object) -> LockedTool:
    if not is_name(name):
        raise _invalid(path, f"{name[:80]!r} is not a tool's name")
    if not isinstance(row, dict):
        raise _invalid(path, f"{name} is not an object")
    version, digest = str(row.get("version")), str(row.get("digest"))
    kind, _, hexadecimal = digest.partition(":")
    if not is_version(version):
        raise _invalid(path, f"{name}: {version[:80]!r} is not a version")
    if kind != "sha256" or len(hexadecimal) != 64 or not _HEX.issuperset(hexadecimal):
        raise _invalid(path, f"{name}: {digest[:80]!r} is not a sha256 digest")
    signers = tuple(map(Signer.from_json, objects(row.get("signers"))))
    image = row.get("image")
    return LockedTool(version, hexadecimal, signers, image if isinstance(image, str) else None)


def _invalid(path: Path, reason: str) -> EnactError:
    step = "write it anew with: fleet-agentpack tool lock"
    return EnactError("LOCK_INVALID", f"{path}: {reason}", step, file=str(path), reason=reason)
