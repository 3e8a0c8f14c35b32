"""Files left behind: deployed to a root that the configuration no longer names."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.model import Root
from fleet_agentpack.deploy.ownership import Holding
from fleet_agentpack.deploy.whereabouts import is_in
from fleet_agentpack.deploy.workspace import Workspace


def left_behind(workspace: Workspace, roots: Iterable[Root]) -> list[str]:
    """Warnings about files that this pack holds for the user or this project, but nowhere names.

    They are never touched: only the user knows whether they are still wanted.
    """
    current = {(root.target, root.dir) for root in roots}
    warnings = []
    for holding in workspace.ownership.record.holdings:
        if (holding.target, holding.root) in current or not _is_ours(workspace, holding):
            continue
        paths = sorted(holding.by_path)
        reads.files(paths)
        files = [path for path in paths if os.path.lexists(path)]
        if files:
            warnings.append(
                f"{len(files)} file(s) deployed to {holding.root} for {holding.target} are"
                f" left behind, the first is {files[0]}: the configuration no longer covers that"
                f" place; restore the old setting, or `fleet-agentpack uninstall --target"
                f" {holding.target}` takes back all that was deployed for it, these too, and"
                " a deploy then brings the others again"
            )
    return warnings


def _is_ours(workspace: Workspace, holding: Holding) -> bool:
    """Whether files are this pack's, in places that this command is about."""
    if workspace.request.target not in ("all", holding.target):
        return False
    if not workspace.pack.is_called(holding.pack):
        return False
    if holding.scope == "user":
        return True
    if is_in(holding, workspace.project_root):
        return True
    place, user = holding.holder.path(""), str(workspace.home.user).rstrip("/")
    # agentpack does not say: trust what can only be this one
    return not holding.scope and place.startswith((f"{user}/.codex/", f"{user}/.claude/"))
