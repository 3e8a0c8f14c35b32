"""Opens files in the person's editor, where there is a terminal to edit on."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping

from fleet_agentpack.console.ask import is_attended


def open_editor(environ: Mapping[str, str], path: str) -> int | None:
    """Run what `VISUAL` or `EDITOR` names and wait for it; None where there is none."""
    editor = environ.get("VISUAL", "").strip() or environ.get("EDITOR", "").strip()
    if not editor or not is_attended():
        return None
    return subprocess.call([*shlex.split(editor), path])
