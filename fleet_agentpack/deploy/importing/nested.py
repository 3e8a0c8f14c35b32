"""What tools read in a part of a project: it is named, since no target writes there."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from fleet_agentpack.deploy.importing.results import SkippedRow

_FILES = {
    "CLAUDE.md": "claude_code",
    "CLAUDE.local.md": "claude_code",
    "AGENTS.md": "codex",
    "AGENTS.override.md": "codex",
    "GEMINI.md": "gemini",
    ".cursorrules": "cursor",
}
_DIRECTORIES = {
    ".claude": "claude_code",
    ".codex": "codex",
    ".agents": "agents",
    ".cursor": "cursor",
    ".gemini": "gemini",
}
_NOT_OURS = frozenset({"node_modules", "vendor", "target", "dist", "build", "venv", "__pycache__"})
DEEPEST = 8
MOST_DIRECTORIES = 5_000
_REASON = "for a part of the project; no target writes this place"


def nested(project: str, targets: Collection[str]) -> Iterator[SkippedRow]:
    """Files and directories of these tools below a project's own ones, nearest first."""
    pending, seen = [(project, 0)], 0
    while pending:
        directory, depth = pending.pop(0)
        seen += 1
        if seen > MOST_DIRECTORIES:
            reason = f"only the first {MOST_DIRECTORIES:,} directories were searched for more"
            yield SkippedRow(project, "instructions", reason)
            return
        for entry in _entries(directory):
            table = _DIRECTORIES if entry.is_dir(follow_symlinks=False) else _FILES
            if depth and table.get(entry.name) in targets:
                what = "instructions" if table is _FILES else "configuration"
                yield SkippedRow(entry.path, what, _REASON)
            elif table is _DIRECTORIES and depth < DEEPEST and _is_part(entry):
                pending.append((entry.path, depth + 1))


def _is_part(directory: os.DirEntry[str]) -> bool:
    """Whether a directory is of the project itself, and not a repository or a tool's own."""
    hidden = directory.name.startswith(".") or directory.name in _NOT_OURS
    return not hidden and not os.path.lexists(f"{directory.path}/.git")


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return []
