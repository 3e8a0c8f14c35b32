"""Which script of a tool a reference means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet_agentpack.enact.errors import EnactError
from fleet_agentpack.enact.names import Entry, Reference
from fleet_agentpack.kit.actions import Action

if TYPE_CHECKING:
    from fleet_agentpack.enact.manifest import Manifest, Script


def script_of(manifest: Manifest, wanted: Reference) -> Script | None:
    """The script that a reference names. Raises `EnactError`."""
    if wanted.script and wanted.script in manifest.scripts:
        return manifest.scripts[wanted.script]
    entries, main = manifest.entries(), Entry(manifest.name)
    if not wanted.script and main in entries:
        return entries[main]
    known = sorted(manifest.scripts)
    said = f"has no script {wanted.script}" if wanted.script else "has several scripts: name one"
    runs = [f"{manifest.name}:{each}" for each in known[:5]]
    raise EnactError(
        "SCRIPT_NOT_FOUND",
        f"{manifest.name} {said}",
        *[Action("enact__run", {"tool": each}, "call {}", "{}") for each in runs],
        *([] if known else [f"run {manifest.name} without a script"]),
        tool=manifest.name,
        scripts=known,
    )
