"""Installed tools on disk: versioned directories, receipts, and a journal so that none is half.

Every change holds the store's lock. A tool's files are staged in `.incoming`, a journal is written,
then everything is switched; the next change finishes what a killed process left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.statefiles import McpFile, ToolsFile, read_object, write_object
from fleet_agentpack.kit.files import sync_directory
from fleet_agentpack.kit.locks import LockTimeoutError, file_lock
from fleet_agentpack.kit.stamps import stamp

if TYPE_CHECKING:
    from fleet_agentpack.enact.bundle import Package
    from fleet_agentpack.enact.manifest import Manifest
    from fleet_agentpack.enact.receipt import Receipt

LOCK_TIMEOUT_S = 10.0


class Store:
    """The directory that holds installed tools; `~/.enact`, or a session's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools_path = root / "tools.json"
        self.mcp_path = root / "mcp.json"
        self._incoming = root / ".incoming"

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

        receipt = self._needed_receipt(name, version)
        try:
            found = load(VerifiedFolder(self.folder(name, version), receipt))
        except ManifestError as error:
            raise EnactError.manifest_invalid(f"{name}@{version}", str(error)) from error
        return found

    def verify(self, name: str, version: str) -> Receipt:
        """Compare the files on disk with the receipt. Raises `EnactError` when they differ."""
        from fleet_agentpack.enact.bundle import BundleError, tree_records

        receipt = self._needed_receipt(name, version)
        try:
            found = tree_records(self.folder(name, version))
        except (BundleError, OSError) as error:
            raise EnactError.tool_changed(name, version, str(error)) from error
        if found != receipt.files:
            differing = sorted(
                path
                for path in {*found, *receipt.files}
                if found.get(path) != receipt.files.get(path)
            )
            raise EnactError.tool_changed(name, version, ", ".join(differing[:5]))
        return receipt

    def stamp(self) -> tuple[object, ...]:
        """A value that differs when something was installed, removed or selected."""
        return tuple(stamp(path) for path in (self.tools_path, self.mcp_path, self.root / "tools"))

    def folder_stamp(self, name: str, version: str) -> object:
        """A value that differs when a version's directory was replaced or removed."""
        return stamp(self.folder(name, version))

    def unfinished(self) -> bool:
        """Whether a killed process left a change that the next one will finish."""
        return any(self._incoming.glob("*/journal.json"))

    # Changing

    def install(
        self, package: Package, receipt: Receipt, *, project: Path | None = None
    ) -> str | None:
        """Put a verified package in place; gives the version that it replaces, if any.

        With a project, the project's `tools.json` pins the version and MCP clients do not see it.
        Raises `EnactError`.
        """
        with self._locked():
            pins = ToolsFile.read(project) if project else self.tools()
            self.mcp()  # a corrupt file is found before anything is touched
            previous = pins.tools.get(receipt.name)
            kept = self.receipt(receipt.name, receipt.version)
            projects = dict.fromkeys(
                [*(kept.projects if kept else ()), *([str(project)] if project else [])]
            )
            receipt = replace(receipt, projects=tuple(projects))
            stage = self._stage(package, receipt, project, previous)
            with self._undone_on_error(stage):
                self._finish(stage)
        return previous

    def uninstall(self, name: str, *, project: Path | None = None) -> str:
        """Remove a tool; gives the version that was installed. Raises `EnactError`."""
        with self._locked():
            pins = ToolsFile.read(project) if project else self.tools()
            version = pins.tools.get(name)
            if version is None:
                raise EnactError.not_installed(name)
            self.mcp()
            stage = self._new_stage()
            self._write_journal(
                stage,
                {
                    "operation": "uninstall",
                    "name": name,
                    "version": version,
                    "project": str(project) if project else None,
                },
            )
            with self._undone_on_error(stage):
                self._finish(stage)
            return version

    def change_mcp(self, change: Callable[[McpFile], McpFile]) -> McpFile:
        """Change `mcp.json` under the lock. Raises `EnactError`."""
        with self._locked():
            changed = change(self.mcp())
            changed.write()
            return changed

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self.root / ".lock"
        try:
            with file_lock(path, timeout_s=LOCK_TIMEOUT_S):
                self._recover()
                yield
        except LockTimeoutError as error:
            raise EnactError.busy(path) from error
        except OSError as error:
            raise EnactError.store_unavailable(self.root, error.strerror or str(error)) from error

    def _recover(self) -> None:
        """Finish what a killed process had journaled; throw away what it had not."""
        for stage in sorted(self._incoming.glob("*")):
            if (stage / "journal.json").exists():
                self._finish(stage)
            else:
                _remove(stage)

    def _new_stage(self) -> Path:
        stage = self._incoming / secrets.token_hex(8)
        stage.mkdir(parents=True)
        return stage

    def _stage(
        self, package: Package, receipt: Receipt, project: Path | None, previous: str | None
    ) -> Path:
        stage = self._new_stage()
        try:
            write_tree(stage / "files", package)
            write_object(stage / "receipt.json", receipt.to_json())
            self._write_journal(
                stage,
                {
                    "operation": "install",
                    "name": receipt.name,
                    "version": receipt.version,
                    "previous": previous,
                    "project": str(project) if project else None,
                },
            )
        except BaseException:
            _remove(stage)
            raise
        return stage

    def _write_journal(self, stage: Path, journal: dict[str, Any]) -> None:
        project = journal.get("project")
        receipt = self._receipt_path(journal["name"], journal["version"])
        touched = [self.tools_path, self.mcp_path, receipt, *([Path(project)] if project else [])]
        before = {str(path): _text_of(path) for path in touched}
        write_object(stage / "journal.json", {**journal, "before": before})

    def _finish(self, stage: Path) -> None:
        """Carry out a journal from wherever it stands; doing it twice is doing it once."""
        journal = read_object(stage / "journal.json") or {}
        step = self._finish_install if journal["operation"] == "install" else self._finish_removal
        step(stage, journal)
        (stage / "journal.json").unlink()
        _remove(stage)

    def _finish_install(self, stage: Path, journal: dict[str, Any]) -> None:
        from fleet_agentpack.enact import toolsets

        name, version, project = journal["name"], journal["version"], journal["project"]
        staged, target = stage / "files", self.folder(name, version)
        if staged.exists():
            if target.exists():
                _move(target, stage / "old")
            target.parent.mkdir(parents=True, exist_ok=True)
            _move(staged, target)
        write_object(self._receipt_path(name, version), read_object(stage / "receipt.json") or {})
        pins = ToolsFile.read(Path(project)) if project else self.tools()
        pins.adding(name, version).write()
        if not project:
            toolsets.with_tool(self.mcp(), name, version).write()
        previous = journal.get("previous")
        if previous and previous != version:
            self._drop_files(stage, name, previous)

    def _finish_removal(self, stage: Path, journal: dict[str, Any]) -> None:
        from fleet_agentpack.enact import toolsets

        name, version, project = journal["name"], journal["version"], journal["project"]
        if project:
            ToolsFile.read(Path(project)).removing(name).write()
        else:
            mcp = self.mcp()
            self.tools().removing(name).write()
            toolsets.without_tool(mcp, name).write()
        self._drop_files(stage, name, version)

    def _drop_files(self, stage: Path, name: str, version: str) -> None:
        """Remove a version's files, unless somebody still needs them."""
        if self._needed(name, version):
            return
        folder = self.folder(name, version)
        if folder.exists():
            _move(folder, stage / "dropped")
        self._receipt_path(name, version).unlink(missing_ok=True)
        for parent in (folder.parent, self._receipt_path(name, version).parent):
            _prune(parent, self.root)

    def _needed(self, name: str, version: str) -> bool:
        pinning = [self.tools_path]
        with contextlib.suppress(EnactError):
            receipt = self.receipt(name, version)
            pinning += [Path(path) for path in (receipt.projects if receipt else ())]
        for path in pinning:
            try:
                if ToolsFile.read(path).tools.get(name) == version:
                    return True
            except EnactError:
                return True  # what cannot be read may need it
        return False

    @contextmanager
    def _undone_on_error(self, stage: Path) -> Iterator[None]:
        """Put everything back when a change fails half-way."""
        try:
            yield
        except Exception:
            self._undo(stage)
            raise

    def _undo(self, stage: Path) -> None:
        journal = read_object(stage / "journal.json")
        if journal is None:
            return
        target = self.folder(journal["name"], journal["version"])
        if journal["operation"] == "install" and not (stage / "files").exists():
            if target.exists():
                _move(target, stage / "failed")
            if (stage / "old").exists():
                _move(stage / "old", target)
        dropped = stage / "dropped"
        if dropped.exists():
            version = journal.get("previous") or journal["version"]
            back = self.folder(journal["name"], version)
            back.parent.mkdir(parents=True, exist_ok=True)
            _move(dropped, back)
        for path, text in journal["before"].items():
            _restore(Path(path), text)
        (stage / "journal.json").unlink()
        _remove(stage)

    def _needed_receipt(self, name: str, version: str) -> Receipt:
        receipt = self.receipt(name, version)
        if receipt is None:
            raise EnactError.tool_changed(name, version, "there is no receipt for it")
        return receipt

    def _receipt_path(self, name: str, version: str) -> Path:
        return self.root / "receipts" / name / f"{version}.json"


def write_tree(root: Path, package: Package) -> None:
    """Put a package's files on disk, whole."""
    root.mkdir()
    for path, packed in package.files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            stream.write(packed.content)
            stream.flush()
            os.fsync(stream.fileno())
        file.chmod(0o755 if packed.executable else 0o644)


def _move(source: Path, target: Path) -> None:
    source.rename(target)
    sync_directory(target.parent)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _prune(folder: Path, root: Path) -> None:
    """Remove directories that have become empty, up to the store's own."""
    while folder.parent not in (root, folder):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise EnactError.store_corrupt(path, str(error)) from error


def _restore(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink(missing_ok=True)
    elif _text_of(path) != text:
        write_object(path, json.loads(text))
