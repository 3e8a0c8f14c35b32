"""Installs what was verified: a new tool, another version, or exactly what a lock file names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_agentpack.enact import permissions, results
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.lock_file import LockedTool
from fleet_agentpack.enact.names import Reference
from fleet_agentpack.enact.permissions import Permissions
from fleet_agentpack.enact.results import if_any
from fleet_agentpack.enact.tool_lists import ToolsFile
from fleet_agentpack.enact.trust.signers import KnownSigners
from fleet_agentpack.kit.approval import Group, Question, Remedy, digest_of

if TYPE_CHECKING:
    from fleet_agentpack.enact.config import Config
    from fleet_agentpack.enact.receipt import Receipt
    from fleet_agentpack.enact.registries.sources import Acquired, Sources
    from fleet_agentpack.enact.runner import Report, Runner
    from fleet_agentpack.enact.store import Store


@dataclass(frozen=True)
class Consent:
    """What the person agrees to, beforehand or when asked."""

    downgrade: bool = False
    signers: Sequence[str] = ()  # as `tool install --accept-signer` names them
    agree: Callable[[EnactError], bool] | None = None  # asks about a change of signers


class Installer:
    """Acquires tools and puts them into a store."""

    def __init__(
        self,
        sources: Sources,
        config: Callable[[], Config],
        runner: Callable[[], Runner],
        state: Path,
    ) -> None:
        self._sources = sources
        self._signers = KnownSigners(state / "enact-signers.json")
        self._config = config
        self._runner = runner
        self._accepted: set[str] = set()  # changes of signers that a person has agreed to

    def install(
        self,
        wanted: Reference,
        stores: Sequence[Store],
        report: Report,
        consent: Consent,
        project: Path | None = None,
    ) -> results.ChangeResult:
        """Verify a tool and install it into the last of the stores. Raises `EnactError`."""
        acquired = self._acquire(wanted, report)
        if not (project or consent.downgrade):
            acquired.receipt.check_not_older(stores[-1].tools().tools.get(wanted.name))
        known = _receipts(wanted.name, stores, project)
        is_users = len(stores) == 1 and not project
        if is_users and not known:
            known = [*filter(None, [self._signers.last(wanted.name)])]
        self._check_signers(acquired.receipt, known, consent)
        done = self._put(self._pinned(acquired, report), stores[-1], report, project)
        self._sources.renew(acquired.receipt, self._config())
        if is_users and not acquired.receipt.is_builtin:
            self._signers.remember(acquired.receipt)
        return done

    def install_locked(
        self,
        locked: Mapping[str, LockedTool],
        store: Store,
        report: Report,
        project: Path | None = None,
    ) -> tuple[results.ChangeResult, ...]:
        """Install exactly these tools; nothing if one of them is not to be had.

        Raises `EnactError`, which names the difference.
        """
        ready = [self._exactly(name, each, store, report) for name, each in locked.items()]
        done = tuple(self._put(each, store, report, project) for each in ready)
        for each in () if project else ready:
            self._signers.remember(each.receipt)
        return done

    def _exactly(self, name: str, locked: LockedTool, store: Store, report: Report) -> Acquired:
        acquired = self._present(name, locked, store)
        if acquired is None:
            acquired = self._acquire(Reference(name, locked.version), report)
            acquired = self._pinned(acquired, report)
            self._sources.renew(acquired.receipt, self._config())
        difference = locked.differs(acquired.receipt)
        if difference and difference[0] == "signers" and not self._config().trust.auditors:
            told = f"{name}: you trust no auditors, so its signers were not compared with the lock"
            return replace(acquired, warnings=(*acquired.warnings, told))
        if difference:
            raise EnactError.lock_differs(f"{name}@{locked.version}", *difference)
        return acquired

    def _present(self, name: str, locked: LockedTool, store: Store) -> Acquired | None:
        """What is in the store already, if these are the locked bytes and may run."""
        from fleet_agentpack.enact import bundle
        from fleet_agentpack.enact.registries.sources import Acquired

        receipt = store.receipt(name, locked.version)
        if receipt is None or receipt.digest != locked.digest:
            return None
        try:
            store.verify(name, locked.version)
            manifest = store.manifest(name, locked.version)
            self._sources.recheck(receipt, manifest.image, self._config())
            package = bundle.unpack(bundle.pack(store.folder(name, locked.version)))
        except (EnactError, bundle.BundleError, OSError):
            return None  # the registry may have it in order
        return Acquired(package, manifest, receipt, ())

    def _pinned(self, acquired: Acquired, report: Report) -> Acquired:
        """The same, with the image that its tag names today."""
        if not acquired.manifest.image:
            return acquired
        execution = self._config().execution_or_default
        image, notes = self._runner().pinned(acquired.manifest.image, execution, report)
        receipt = replace(acquired.receipt, image=image)
        return replace(acquired, receipt=receipt, warnings=(*acquired.warnings, *notes))

    def _put(
        self, acquired: Acquired, store: Store, report: Report, project: Path | None
    ) -> results.ChangeResult:
        """Write what was acquired, in one step. Raises `EnactError`."""
        execution, receipt = self._config().execution_or_default, acquired.receipt
        report(1, 2, f"installing {receipt.name}@{receipt.version}")
        replaced = store.install(acquired.package, receipt, project=project)
        if replaced.version:
            self._runner().builds.forget_unneeded(store, receipt.name)
        message = f"Installed {receipt.name}@{receipt.version}"
        if replaced.version and replaced.version != receipt.version:
            message += f" (was {replaced.version})"
        warnings = [*acquired.warnings, *replaced.warnings]
        mcp = store.mcp()
        if mcp.active is not None and receipt.name not in mcp.visible():
            warnings.append(f"the active toolset {mcp.active!r} does not show {receipt.name}")
        asked = permissions.wanted(acquired.manifest)
        found = store.receipt(receipt.name, receipt.version)
        granted = found.has if found else Permissions()
        if missing := asked - granted:
            command = permissions.allow_command(receipt.name, missing)
            warnings.append(f"not granted: {missing.said()}; a person can grant it with: {command}")
        changes = permissions.changes(acquired.manifest)
        if not (asked or granted or receipt.image or changes):
            return results.ChangeResult(message, warnings=if_any(warnings))
        bounds = permissions.bounds(acquired.manifest, execution, receipt.image)
        shown = results.PermissionsOf(asked, granted, bounds, if_any(changes))
        return results.ChangeResult(message, shown, if_any(warnings))

    def _acquire(self, wanted: Reference, report: Report) -> Acquired:
        fetching = f"fetching {wanted}"
        return self._sources.acquire(wanted, self._config(), lambda: report(0, 2, fetching))

    def _check_signers(self, new: Receipt, known: Iterable[Receipt], consent: Consent) -> None:
        """Refuse a bundle that nobody signed who signed the installed one. Raises `EnactError`."""
        for before in known:
            change = digest_of("signer", before.parties, new.name, new.digest, new.parties)
            if change in self._accepted or new.is_continued(before, consent.signers):
                continue
            refusal = new.signer_changed(before)
            refusal.remedy = self._remedy(refusal, new, change)
            if consent.agree is None or not consent.agree(refusal):
                raise refusal

    def _remedy(self, refusal: EnactError, new: Receipt, change: str) -> Remedy:
        """The question to the person at the client; a yes counts for exactly this bundle."""
        question = Question(
            f"{new.name}@{new.version} is not signed by whoever signed the installed version.",
            [
                Group("Signed until now by", refusal.details["before"]),
                Group("Signed now by", refusal.details["now"] or ["nobody whom you trust"]),
            ],
            "Install it all the same",
            risky=True,
            digest=change,
        )
        return Remedy(question, lambda: self._accepted.add(change))


def _receipts(name: str, stores: Sequence[Store], project: Path | None) -> list[Receipt]:
    """The receipts of what is installed under this name, for the user or for the project."""
    pins = [(store, store.tools().tools.get(name)) for store in stores]
    if project:
        pins += [(store, ToolsFile.read(project).tools.get(name)) for store in stores]
    found = [store.receipt(name, version) for store, version in pins if version]
    return [each for each in found if each]
