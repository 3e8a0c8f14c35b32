"""What an import left where it was: known and meant, so that no `status` calls it drift."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from fleet_agentpack.deploy import reads
from fleet_agentpack.deploy.home import Home
from fleet_agentpack.kit.files import write_atomic

_VERSION = 1


@dataclass(frozen=True)
class LeftOut:
    """Files, and directories with all that is in them."""

    paths: frozenset[str]

    def covers(self, path: str) -> bool:
        """Whether a path is one of them, or below one."""
        while path not in self.paths:
            above = path.rpartition("/")[0]
            if not above:
                return False
            path = above
        return True


def left_out(home: Home) -> LeftOut:
    """What imports into this home have left; nothing, if that cannot be read."""
    place = _file(home)
    reads.at(place)
    try:
        document = json.loads(place.read_bytes())
        known = document["paths"] if document["version"] == _VERSION else ()
        return LeftOut(frozenset(map(str, known)))
    except (OSError, ValueError, KeyError, TypeError):
        return LeftOut(frozenset())


def is_known(home: Home, paths: Iterable[str]) -> bool:
    """Whether all of these were left before."""
    return left_out(home).paths.issuperset(paths)


def remember(home: Home, paths: Iterable[str], imported: Collection[str]) -> None:
    """Add to what was left before; what is gone or in the pack by now is forgotten."""
    known = left_out(home).paths
    kept = {path for path in {*known, *paths} if os.path.lexists(path) and path not in imported}
    if kept != known:
        document = {"version": _VERSION, "paths": sorted(kept)}
        write_atomic(_file(home), json.dumps(document, indent=1), mode=0o600)


def _file(home: Home) -> Path:
    return home.root / "state" / "left-out.json"
