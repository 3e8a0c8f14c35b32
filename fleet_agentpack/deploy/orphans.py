"""Files left behind: deployed to a root that the configuration no longer names."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fleet_agentpack.deploy import looks
from fleet_agentpack.deploy.model import Root
from fleet_agentpack.deploy.recorded import read_manifest
from fleet_agentpack.deploy.workspace import Workspace

_RECORDS = 10  # how far back a target's last deploy is looked for


def left_behind(workspace: Workspace, roots: Iterable[Root]) -> list[str]:
    """Warnings about roots of this project's last deploys that are no longer roots.

    Their files are never touched: only the user knows whether they are still wanted.
    """
    current = {root.manifest_path for root in roots}
    warnings = []
    for root in _last_roots(workspace):
        if root.manifest_path in current:
            continue
        recorded = list(read_manifest(root, {}).files)
        looks.files(recorded)
        files = [path for path in recorded if os.path.lexists(path)]
        if files:
            warnings.append(
                f"{len(files)} file(s) that were deployed to {root.dir} for {root.target} are left"
                f" behind, the first is {files[0]}: the configuration no longer covers that place;"
                f" delete them and {root.manifest_path} yourself, or restore the old setting"
            )
    return warnings


def _last_roots(workspace: Workspace) -> list[Root]:
    """The roots that each target's latest deploy in this project wrote."""
    store, wanted = workspace.snapshots, workspace.request.target
    found: list[Root] = []
    settled: set[str] = set()
    for snapshot_id in reversed(store.ids()[-_RECORDS:]):
        project = store.project_of(snapshot_id)
        if project not in (None, workspace.project_root):
            continue
        roots = [
            root
            for root in store.roots_of(snapshot_id)
            if root.target not in settled
            and wanted in ("all", root.target)
            and (project is not None or _could_be_ours(workspace, root))
        ]
        found += roots
        settled |= {root.target for root in roots}
        if settled >= set(workspace.targets):
            break
    return found


def _could_be_ours(workspace: Workspace, root: Root) -> bool:
    """agentpack's own records do not name their project: trust what can only be this one."""
    user = str(workspace.home.user).rstrip("/")
    own = [f"{workspace.project_root}/"] if workspace.project else []
    return root.path("").startswith((*own, f"{user}/.codex/", f"{user}/.claude/"))
