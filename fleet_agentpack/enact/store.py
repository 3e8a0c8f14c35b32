"""Installed tools on disk: versioned directories and receipts, never half-written.

Every change holds the store's lock and is one swap, staged in `.incoming`; the next change finishes
what a killed process left behind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import is_version
from fleet_agentpack.enact.tool_lists import McpFile, ToolsFile, read_object
from fleet_agentpack.kit.disk import Disk
from fleet_agentpack.kit.files import write_atomic
from fleet_agentpack.kit.journal import SwapError
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock
from fleet_agentpack.kit.stamps import stamp
from fleet_agentpack.kit.swap import Area, New, Swap

if TYPE_CHECKING:
    from fleet_agentpack.enact.bundle import Package
    from fleet_agentpack.enact.lock_file import LockFile
    from fleet_agentpack.enact.manifest import Manifest
    from fleet_agentpack.enact.permissions import Permissions
    from fleet_agentpack.enact.receipt import Receipt

LOCK_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class StoreChange:
    """The version that was replaced or removed, if any."""

    version: str | None
    warnings: tuple[str, ...]  # paths that recovery after a kill has left alone


class Store:
    """The directory that holds installed tools; `~/.enact`, or a session's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools_path = root / "tools.json"
        self.mcp_path = root / "mcp.json"
        incoming = root / ".incoming"
        tidied = (root / "tools", root / "receipts")
        self._journal = incoming / "journal.json"
        area = Area(self._journal, incoming, root / ".kept", tidied)
        self._swap = Swap(area, Disk(durable=True))

    # Reading

    def tools(self) -> ToolsFile:
        """What is installed. Raises `EnactError` when the file is corrupt."""
        return ToolsFile.read(self.tools_path)

    def mcp(self) -> McpFile:
        """What clients see. Raises `EnactError` when a file is corrupt."""
        return McpFile.read(self.mcp_path, lambda: self.tools().tools)

    def folder(self, name: str, version: str) -> Path:
        """Where a version's files are."""
        return self.root / "tools" / name / version

    def receipt(self, name: str, version: str) -> Receipt | None:
        """The receipt of an installed version. Raises `EnactError` for a corrupt one."""
        from fleet_agentpack.enact.receipt import Receipt

        path = self._receipt_path(name, version)
        data = read_object(path)
        if data is None:
            return None
        try:
            found = Receipt.from_json(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnactError.store_corrupt(path, "it is not a receipt") from error
        if (found.name, found.version) != (name, version):
            raise EnactError.store_corrupt(path, "it is the receipt of another tool")
        return found

    def manifest(self, name: str, version: str) -> Manifest:
        """The manifest of an installed version, as it was verified. Raises `EnactError`."""
        from fleet_agentpack.enact.manifest import ManifestError, load
        from fleet_agentpack.enact.receipt import VerifiedFolder

        receipt = self.needed_receipt(name, version)
        try:
            return load(VerifiedFolder(self.folder(name, version), receipt))
        except ManifestError as error:
            raise EnactError.manifest_invalid(f"{name}@{version}", str(error)) from error

    def verify(self, name: str, version: str) -> Receipt:
        """Compare the files on disk with the receipt. Raises `EnactError` when they differ."""
        from fleet_agentpack.enact.bundle import BundleError, tree_records

        receipt = self.needed_receipt(name, version)
        try:
            found = tree_records(self.folder(name, version))
        except (BundleError, OSError) as error:
            raise EnactError.tool_changed(name, version, str(error)) from error
        if found != receipt.files:
            differing = sorted({path for path, _ in found.items() ^ receipt.files.items()})
            raise EnactError.tool_changed(name, version, ", ".join(differing[:5]))
        return receipt

    def stamp(self) -> tuple[object, ...]:
        """A value that differs when something was installed, removed or selected."""
        return tuple(stamp(path) for path in (self.tools_path, self.mcp_path, self.root / "tools"))

    def sources(self) -> tuple[Path, ...]:
        """The files that say which tools there are, and whether a change is under way."""
        return (self.tools_path, self.mcp_path, self.root / "tools", self._journal)

    def sources_of(self, name: str, version: str) -> list[Path]:
        """The files that say how an installed version looks to clients."""
        if not is_version(version):
            return []
        from fleet_agentpack.enact.manifest import MANIFEST_FILES

        folder = self.folder(name, version)
        above = [each for each in folder.parents if each.is_relative_to(self.root / "tools")]
        manifests = [folder / each for each in MANIFEST_FILES if (folder / each).exists()]
        return [*above, folder, self._receipt_path(name, version), *manifests]

    def unfinished(self) -> bool:
        """Whether a killed process left a change that the next one will finish."""
        return self._swap.is_pending

    # Changing

    def install(
        self, package: Package, receipt: Receipt, *, project: Path | None = None
    ) -> StoreChange:
        """Install a verified package, replacing the version that was there.

        With a project, the project's `tools.json` pins the version and MCP clients do not see it.
        Raises `EnactError`.
        """
        name, version = receipt.name, receipt.version
        with self._locked() as warnings:
            before = ToolsFile.read(project or self.tools_path)
            mcp = self.mcp()  # also for a project: a corrupt file is found before anything changes
            kept = self.receipt(name, version)
            pinning = [*(kept.projects if kept else ()), *([str(project)] if project else [])]
            pins, previous = before.adding(name, version), before.tools.get(name)
            receipt = replace(
                receipt,
                projects=tuple(dict.fromkeys(pinning)),
                granted=self._granted(name, previous or version, receipt),
            )
            changes: dict[Path, New] = {
                self.folder(name, version): lambda place: write_tree(place, package),
                self._receipt_path(name, version): receipt.content(),
                pins.path: pins.content(),
            }
            if project is None:
                changes[self.mcp_path] = mcp.adding(name, version).content()
            elif lock := _lock_of(project):
                changes[lock.path] = lock.adding(receipt).content()
            if previous is not None and previous != version:
                changes |= self._unneeded(name, previous, pins)
            self._swap.replace(changes)
        return StoreChange(previous, warnings)

    def uninstall(self, name: str, *, project: Path | None = None) -> StoreChange:
        """Remove a tool, and its files unless a project still needs them. Raises `EnactError`."""
        with self._locked() as warnings:
            before = ToolsFile.read(project or self.tools_path)
            version = before.tools.get(name)
            if version is None:
                raise EnactError.not_installed(name)
            mcp, pins = self.mcp(), before.removing(name)
            changes: dict[Path, New] = {pins.path: pins.content()}
            if project is None:
                changes[self.mcp_path] = mcp.removing(name).content()
            elif lock := _lock_of(project):
                changes[lock.path] = lock.removing(name).content()
            self._swap.replace(changes | self._unneeded(name, version, pins))
        return StoreChange(version, warnings)

    def grant(
        self, name: str, version: str, change: Callable[[Permissions], Permissions]
    ) -> Permissions:
        """Change what a tool may do, in its receipt as it is now. Raises `EnactError`."""
        with self._locked():
            receipt = self.needed_receipt(name, version)
            receipt = replace(receipt, granted=change(receipt.has))
            write_atomic(self._receipt_path(name, version), receipt.content(), durable=True)
            return receipt.has

    def write_for_project(self, path: Path, content: Callable[[], bytes]) -> None:
        """Write a project's file that says what is installed, under the lock.

        Raises `EnactError`.
        """
        with self._locked():
            write_atomic(path, content(), durable=True)

    def change_mcp(self, change: Callable[[McpFile], McpFile]) -> McpFile:
        """Change `mcp.json` under the lock. Raises `EnactError`."""
        with self._locked():
            changed = change(self.mcp())
            write_atomic(changed.path, changed.content(), durable=True)
            return changed

    @contextmanager
    def _locked(self) -> Iterator[tuple[str, ...]]:
        """Hold the store's lock and finish what a killed change left; yields its warnings."""
        path = self.root / ".lock"
        try:
            with file_lock(path, timeout_s=LOCK_TIMEOUT_S):
                recovered = self._swap.recover()
                yield recovered.left if recovered else ()
        except LockTimeoutError as error:
            raise EnactError.busy(path) from error
        except OSError as error:
            raise EnactError.store_unavailable(self.root, error.strerror or str(error)) from error
        except SwapError as error:
            if error.kind == "unreadable":
                raise EnactError.store_corrupt(error.path, "it is not a journal") from error
            raise EnactError.store_unavailable(self.root, str(error)) from error

    def _unneeded(self, name: str, version: str, pins: ToolsFile) -> dict[Path, New]:
        """The removal of a version's files, unless a tool list still pins it after this change."""
        if self._is_needed(name, version, pins):
            return {}
        return {self.folder(name, version): None, self._receipt_path(name, version): None}

    def _is_needed(self, name: str, version: str, pins: ToolsFile) -> bool:
        pinning = {self.tools_path}
        with contextlib.suppress(EnactError):
            receipt = self.receipt(name, version)
            pinning |= {Path(path) for path in (receipt.projects if receipt else ())}
        for path in pinning - {pins.path}:
            try:
                if ToolsFile.read(path).tools.get(name) == version:
                    return True
            except EnactError:
                return True  # an unreadable list may pin it
        return pins.tools.get(name) == version

    def _granted(self, name: str, version: str, new: Receipt) -> Permissions | None:
        """What the version before had, and no more; nothing if it came from another registry."""
        with contextlib.suppress(EnactError):
            before = self.receipt(name, version)
            if before and before.source == new.source:
                return before.has
        return new.granted

    def needed_receipt(self, name: str, version: str) -> Receipt:
        """The same, of a version that has to have one. Raises `EnactError`."""
        receipt = self.receipt(name, version)
        if receipt is None:
            raise EnactError.tool_changed(name, version, "it has no receipt")
        return receipt

    def names(self) -> list[str]:
        """Every tool of which some version is in the store."""
        found = {each.parent for each in (self.root / "receipts").rglob("*.json")}
        return sorted(each.relative_to(self.root / "receipts").as_posix() for each in found)

    def digests(self, name: str) -> set[str]:
        """The bundles of the versions of a tool that are in the store."""
        found = set()
        for path in (self.root / "receipts" / name).glob("*.json"):
            with contextlib.suppress(EnactError):
                receipt = self.receipt(name, path.stem)
                found |= {receipt.digest} if receipt else set()
        return found

    def _receipt_path(self, name: str, version: str) -> Path:
        return self.root / "receipts" / name / f"{version}.json"


def _lock_of(project: Path) -> LockFile | None:
    """The lock file of a project that has one; it follows what is installed."""
    from fleet_agentpack.enact.lock_file import LockFile

    return LockFile.read(LockFile.beside(project))


def write_tree(root: Path, package: Package) -> None:
    """Write a package's files to disk and sync them."""
    root.mkdir()
    for path, packed in package.files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            stream.write(packed.content)
            stream.flush()
            os.fsync(stream.fileno())
        file.chmod(0o755 if packed.executable else 0o644)
