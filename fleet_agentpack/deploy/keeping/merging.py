"""Joins an edit with what the pack has become meanwhile, line by line."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.deploy.errors import DeployError
from fleet_agentpack.deploy.home import Home, git

_MOST_CONFLICTS = 127  # git's exit status counts them up to here


@dataclass(frozen=True)
class Merged:
    """Both sides' changes in one text; with markers where they meet."""

    data: bytes
    conflicts: int


def merge(home: Home, base: bytes, edited: bytes, pack: bytes) -> Merged:
    """What comes of two changes of the same text. Raises `DeployError`."""
    if edited == pack or base == pack:
        return Merged(edited, 0)
    if base == edited:
        return Merged(pack, 0)
    with tempfile.TemporaryDirectory(prefix="fleet-agentpack-merge-") as scratch:
        names = {"edited": edited, "deployed": base, "pack": pack}
        for name, data in names.items():
            Path(scratch, name).write_bytes(data)
        labels = [word for label in ("edited", "deployed", "the pack") for word in ("-L", label)]
        done = git(home, scratch, "merge-file", "-p", "--diff3", *labels, *names, ceiling=scratch)
        if done.status < 0 or done.status > _MOST_CONFLICTS:  # not text, for example
            raise DeployError.because("merge_failed", f"the two cannot be merged: {done.complaint}")
        return Merged(done.stdout, done.status)
