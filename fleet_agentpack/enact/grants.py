"""What a person grants an installed tool, and takes back; kept in the tool's receipt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_agentpack.enact import permissions
from fleet_agentpack.enact.denied import DenyList
from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.permissions import Permissions
from fleet_agentpack.enact.results import ChangeResult, PermissionsOf, if_any
from fleet_agentpack.kit.approval import Group, Question, Remedy, digest_of

if TYPE_CHECKING:
    from fleet_agentpack.enact.config import ExecutionConfig
    from fleet_agentpack.enact.projection import Installed
    from fleet_agentpack.enact.receipt import Receipt
    from fleet_agentpack.enact.settings import EnactSettings

Find = Callable[[str], "tuple[Installed, Receipt]"]


class Grants:
    """The permissions of the tools that a user has installed."""

    def __init__(
        self, settings: EnactSettings, find: Find, execution: Callable[[], ExecutionConfig]
    ) -> None:
        self._settings = settings
        self._execution = execution
        self._denied = DenyList.of(settings)
        self._find = find

    def of(self, tool: str) -> PermissionsOf:
        """What a tool asks for, and what it has."""
        found, receipt = self._find(tool)
        return self._shown(found, receipt, receipt.has)

    def shown(self, found: Installed, receipt: Receipt) -> PermissionsOf:
        """The same, also of a tool that must not run."""
        return self._shown(found, receipt, receipt.has)

    def allow(self, tool: str, more: Permissions) -> ChangeResult:
        """Grant a tool what it asks for. Raises `EnactError`."""
        return self._allow(*self._find(tool), more)

    def remedy(self, found: Installed, receipt: Receipt, refusal: EnactError) -> Remedy:
        """What a person may agree to so that a call that lacked permissions succeeds."""
        missing = Permissions.from_json(refusal.details["missing"])
        question = Question(
            f"{found.name} asks for more than it was granted.",
            [Group("It wants", missing.said().split("; "))],
            "Grant it, for this and later calls",
            risky=True,
            digest=digest_of("grant", found.name, found.version, missing),
        )
        return Remedy(question, lambda: self._allow(found, receipt, missing))

    def _allow(self, found: Installed, receipt: Receipt, more: Permissions) -> ChangeResult:
        permissions.check_grant(more, permissions.wanted(found.manifest))
        for field, paths in (("read", more.read), ("write", more.write)):
            for path in paths:
                if reason := self._denied.reason(Path(path)):
                    raise EnactError.bad_argument(field, f"{path} {reason}")
        return self._record(found, receipt, lambda has: has | more)

    def revoke(self, tool: str, less: Permissions) -> ChangeResult:
        """Take back what was granted; everything where nothing is named."""
        found, receipt = self._find(tool)
        return self._record(found, receipt, lambda has: has - (less or has))

    def absolute(self, path: str, field: str = "write", *, strict: bool = True) -> str:
        """A file or directory that a person names, with links followed. Raises `EnactError`.

        What is taken back need not exist any more.
        """
        try:
            return str(self._settings.paths.resolve(path).resolve(strict=strict))
        except (OSError, ValueError) as error:
            raise EnactError.bad_argument(field, f"{path[:200]} does not exist") from error

    def named(self, path: str) -> Path:
        """A file that a person names, whether or not it exists. Raises `EnactError`."""
        try:
            return self._settings.paths.resolve(path)
        except ValueError as error:
            raise EnactError.bad_argument("file", str(error)) from error

    def _record(
        self, found: Installed, receipt: Receipt, change: Callable[[Permissions], Permissions]
    ) -> ChangeResult:
        granted = found.store.grant(found.name, found.version, change)
        message = f"{found.name} may use {granted.said() or 'nothing beyond its sandbox'}"
        return ChangeResult(message, self._shown(found, receipt, granted))

    def _shown(self, found: Installed, receipt: Receipt, granted: Permissions) -> PermissionsOf:
        bounds = permissions.bounds(found.manifest, self._execution(), receipt.image)
        changes = if_any(permissions.changes(found.manifest))
        return PermissionsOf(permissions.wanted(found.manifest), granted, bounds, changes)
