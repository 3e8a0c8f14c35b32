"""Which directories hold an installed plugin."""

from __future__ import annotations

import os
from pathlib import Path

from fleet_agentpack.kit.paths import is_inside
from fleet_agentpack.kit.swap import Area, Swap

MANIFESTS = ("plugin.json", ".claude-plugin/plugin.json", "plugin.yaml")


def plugin_folders(base: Path) -> list[tuple[str, Path]]:
    """Name and directory of each plugin below `plugins`, scoped ones included, sorted by name."""
    found = []
    for folder in _folders(base):
        if folder.name.startswith("@"):
            found += [
                (f"{folder.name}/{inner.name}", inner)
                for inner in _folders(folder)
                if manifest_of(inner)
            ]
        elif manifest_of(folder):
            found.append((folder.name, folder))
    return sorted(found)


def manifest_of(folder: Path) -> Path | None:
    """The manifest in a plugin's directory; a directory without one is not a plugin."""
    for name in MANIFESTS:
        path = folder / name
        if path.is_file() and is_inside(path, folder):
            return path
    return None


def plugin_swap(base: Path) -> Swap:
    """Replaces plugin folders below `plugins` together; the caller holds the lock."""
    staging = base / ".staging"
    return Swap(Area(staging / "journal.json", staging, base / ".kept"))


def _folders(base: Path) -> list[Path]:
    try:
        with os.scandir(base) as entries:
            return [
                base / each.name
                for each in entries
                if not each.name.startswith(".") and each.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []
