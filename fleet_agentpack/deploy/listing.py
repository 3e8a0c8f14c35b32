"""Directory listings, cached by the directory's stat, which changes with its names."""

from __future__ import annotations

import os
from typing import NamedTuple

from fleet_agentpack.deploy import reads
from fleet_agentpack.kit.stamps import Stamp, settled, stamp_of


class Listing(NamedTuple):
    """The names in one directory with their paths, by kind."""

    directories: list[tuple[str, str]]
    files: list[tuple[str, str]]
    others: list[tuple[str, str]]  # links and special files


class Lister:
    """Lists directories; an unchanged one is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Stamp, Listing]] = {}

    def list(self, directory: str, status: os.stat_result | None = None) -> Listing:
        """What a directory holds; pass its stat if it was just taken. Raises `OSError`."""
        reads.into(directory)
        status = status or os.stat(directory)
        stamp = stamp_of(status)
        known = self._known.get(directory)
        if known is not None and known[0] == stamp:
            return known[1]
        listing = _read(directory)
        if settled(stamp):
            self._known[directory] = (stamp, listing)
        else:
            self._known.pop(directory, None)
        return listing


def _read(directory: str) -> Listing:
    found = Listing([], [], [])
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                kind = found.files
            elif entry.is_dir(follow_symlinks=False):
                kind = found.directories
            else:
                kind = found.others
            kind.append((entry.name, entry.path))
    return found
